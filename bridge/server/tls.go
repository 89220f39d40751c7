package server

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/toolchain"
)

// certificate is the bridge's certificate. It checks at handshakes whether its files changed, and reads them
// again.
type certificate struct {
	files   config.TLS
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
	next    atomic.Int64 // when the files are checked again, Unix nanoseconds

	turn      sync.Mutex // guards the rest; held while files are read, so only tried
	lastFault string     // the last logged fault of the files
}

// certificateEvery is the interval between checks of the files.
const certificateEvery = 2 * time.Second

// load reads the files for the first time.
func (c *certificate) load() error {
	pair, err := c.files.Pair()
	if err != nil {
		return err
	}
	c.current.Store(pair)
	c.next.Store(time.Now().Add(certificateEvery).UnixNano())
	return nil
}

// get returns the certificate for a handshake. Unusable files, such as a file that is being written,
// change nothing.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if time.Now().UnixNano() >= c.next.Load() && c.turn.TryLock() {
		c.reload()
		c.turn.Unlock()
	}
	return c.current.Load(), nil
}

// replace replaces the certificate and its files.
func (c *certificate) replace(files config.TLS, pair *tls.Certificate) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.files, c.lastFault = files, ""
	c.current.Store(pair)
	c.next.Store(time.Now().Add(certificateEvery).UnixNano())
}

// reload reads the files again. The caller holds c.turn.
func (c *certificate) reload() {
	defer func() { c.next.Store(time.Now().Add(certificateEvery).UnixNano()) }()
	pair, err := c.files.Pair()
	if err != nil {
		if text := err.Error(); text != c.lastFault {
			c.lastFault = text
			c.log.Warn("the new certificate cannot be used: the old one stays in use", "err", text)
		}
		return
	}
	c.lastFault = ""
	if !bytes.Equal(pair.Certificate[0], c.current.Load().Certificate[0]) {
		c.log.Info("the certificate was replaced", "cert_file", c.files.CertFile, "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c.current.Store(pair)
}

// protocols returns the protocols for TLS, by the version of Go that built the program; nil means HTTP/1.1
// and HTTP/2. A vulnerable version serves no HTTP/2.
func protocols(version string, log *slog.Logger) *http.Protocols {
	if !toolchain.Vulnerable(version) {
		return nil
	}
	log.Warn("tls: HTTP/2 is off, since any client could crash this program with it (GO-2026-6617): build it with "+toolchain.Fixed, "go", version)
	p := &http.Protocols{}
	p.SetHTTP1(true)
	return p
}

// config returns the TLS settings. The HTTP server adds HTTP/2.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
