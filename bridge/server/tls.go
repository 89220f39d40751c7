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

// certificate is that which clients are shown. Its files are read again when
// they change, which is looked for when somebody connects.
type certificate struct {
	files   config.TLS
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
	next    atomic.Int64 // when the files are looked at again, Unix nanoseconds

	turn sync.Mutex // guards the rest; nobody waits for it, since it is held while files are read
	said string     // what was logged last about files that cannot be used
}

// certificateEvery is how long the files may have changed before it is noticed.
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

// get returns what is shown in a handshake. Of files that cannot be used, one of
// which may just be being written, nothing is taken over.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if time.Now().UnixNano() >= c.next.Load() && c.turn.TryLock() {
		c.look()
		c.turn.Unlock()
	}
	return c.current.Load(), nil
}

// use has another certificate be shown, and its files be looked at.
func (c *certificate) use(files config.TLS, pair *tls.Certificate) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.files, c.said = files, ""
	c.current.Store(pair)
	c.next.Store(time.Now().Add(certificateEvery).UnixNano())
}

// look reads the files again. The caller holds c.turn.
func (c *certificate) look() {
	defer func() { c.next.Store(time.Now().Add(certificateEvery).UnixNano()) }()
	pair, err := c.files.Pair()
	if err != nil {
		if text := err.Error(); text != c.said {
			c.said = text
			c.log.Warn("the certificate cannot be read again: the one before stays in use", "err", text)
		}
		return
	}
	c.said = ""
	if !bytes.Equal(pair.Certificate[0], c.current.Load().Certificate[0]) {
		c.log.Info("another certificate is in use", "cert_file", c.files.CertFile, "until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	c.current.Store(pair)
}

// protocols returns the protocols to serve with TLS by a program that this version of Go
// has built: nil stands for HTTP/1.1 and HTTP/2. A vulnerable version serves no HTTP/2.
func protocols(version string, log *slog.Logger) *http.Protocols {
	if !toolchain.Vulnerable(version) {
		return nil
	}
	log.Warn("tls: no HTTP/2, since a stranger could end this program by it (GO-2026-6617): build it with "+toolchain.Fixed, "go", version)
	p := &http.Protocols{}
	p.SetHTTP1(true)
	return p
}

// config returns the settings for connections. HTTP/2 is offered too, by the HTTP
// server.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
