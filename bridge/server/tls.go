package server

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/toolchain"
)

// certificate is the bridge's certificate. At handshakes, and when its status is read, it checks whether its files
// changed, and reads changed files again.
type certificate struct {
	files   config.TLS
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
	next    atomic.Int64 // when the files are checked again, Unix nanoseconds

	// fault is the fault of the files; nil while they can be used.
	fault atomic.Pointer[certificateFault]

	turn sync.Mutex // guards files; held while they are read, so handshakes only use TryLock
}

// certificateFault is the reason that the files of a certificate cannot be used.
type certificateFault struct {
	text  string
	since time.Time
}

// oldCertificate is the beginning of messages about files that cannot be used.
const oldCertificate = "the new certificate cannot be used: the old one stays in use"

// status checks the files, at most once in certificateEvery, and returns the state. status returns nil without a
// certificate.
func (c *certificate) status() *status.Certificate {
	if c == nil {
		return nil
	}
	pair, _ := c.get(nil) // get returns no error
	if pair == nil {
		return nil // the bridge does not serve yet
	}
	st := &status.Certificate{Until: pair.Leaf.NotAfter}
	if f := c.fault.Load(); f != nil {
		st.LastError, st.LastErrorAt, st.FullError = oldCertificate+"; see the log for the reason", &f.since, oldCertificate+": "+f.text
	}
	return st
}

// Good implements metrics.Certificate.
func (c *certificate) Good() (until time.Time, good bool) {
	st := c.status()
	if st == nil {
		return time.Time{}, false
	}
	return st.Until, st.LastError == ""
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
	if c.current.Load() != nil && time.Now().UnixNano() >= c.next.Load() && c.turn.TryLock() {
		c.reload()
		c.turn.Unlock()
	}
	return c.current.Load(), nil
}

// replace replaces the certificate and its files.
func (c *certificate) replace(files config.TLS, pair *tls.Certificate) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.files = files
	c.fault.Store(nil)
	c.current.Store(pair)
	c.next.Store(time.Now().Add(certificateEvery).UnixNano())
}

// reload reads the files again. The caller holds c.turn.
func (c *certificate) reload() {
	defer func() { c.next.Store(time.Now().Add(certificateEvery).UnixNano()) }()
	pair, err := c.files.Pair()
	if err != nil {
		was, now := c.fault.Load(), &certificateFault{err.Error(), time.Now()}
		if was != nil && was.text == now.text {
			return // logged before
		}
		if was != nil {
			now.since = was.since
		}
		c.fault.Store(now)
		c.log.Warn(oldCertificate, "err", now.text)
		return
	}
	c.fault.Store(nil)
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
