package streamable

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// counting counts the connections that come.
type counting struct {
	net.Listener
	n atomic.Int64
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// A certificate that is not accepted does not become better by trying again.
func TestUpstreamCertificate(t *testing.T) {
	site := httptest.NewUnstartedServer(http.NotFoundHandler())
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	c := &counting{Listener: site.Listener}
	site.Listener = c
	site.StartTLS()
	defer site.Close()
	u, err := NewUpstream("fake", remote.Config{URL: site.URL, Proxy: "none"}, conn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_, err = u.Open(t.Context(), &bridge.Caller{Revision: "2025-11-25", Capabilities: []byte("{}"), Params: []byte("{}")}, &adaptertest.Client{})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Open = %v, want the fault of the certificate", err)
	}
	if n := c.n.Load(); n != 1 {
		t.Errorf("it was tried %d times", n)
	}
}
