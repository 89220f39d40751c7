package server

import (
	"net/http"
	"path"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// mcp serves Streamable HTTP.
func (t *tree) mcp(c *gin.Context) {
	w, r := of(c)
	t.s.streamable.Serve(c.Param("server"), w, r)
}

// sse serves the stream of HTTP+SSE. Some clients try Streamable HTTP first at any URL, so sse serves that too. The
// header with the session's id distinguishes the two kinds of GET.
func (t *tree) sse(c *gin.Context) {
	w, r := of(c)
	if r.Method != http.MethodGet || streamable.HasSession(r) {
		t.mcp(c)
		return
	}
	t.s.sse.Stream(c.Param("server"), t.s.outside(r)+strings.TrimSuffix(r.URL.Path, "sse")+"messages", w, r)
}

// messages serves the POSTs of HTTP+SSE clients.
func (t *tree) messages(c *gin.Context) {
	w, r := of(c)
	t.s.sse.Message(c.Param("server"), w, r)
}

// hook serves the webhook of a server.
func (t *tree) hook(c *gin.Context) {
	w, r := of(c)
	name := c.Param("server")
	if h := t.s.hookOf(name); h != nil {
		t.s.hook(w, r, name, h)
	} else { // the server was just removed
		t.nowhere(c)
	}
}

// healthz answers while the process runs.
func (t *tree) healthz(c *gin.Context) {
	w, _ := of(c)
	answer.Text(w, http.StatusOK, "ok\n")
}

// describe serves the metadata of an endpoint, or of the whole bridge.
func (t *tree) describe(c *gin.Context) {
	w, r := of(c)
	endpoint := c.Param("endpoint")
	if endpoint == "/" {
		endpoint = ""
	}
	t.s.access.Describe(w, r, access.Target{Base: t.base, Endpoint: endpoint})
}

// root answers a browser at the root: with the page for operators, or with the address of MCP.
func (t *tree) root(c *gin.Context) {
	w, r := of(c)
	switch {
	case !takes(reading, r.Method) || !strings.Contains(r.Header.Get("Accept"), "text/html"):
		t.nowhere(c)
	case admin.HasConsole(t.s.Config()) && t.s.forOperators(r):
		to := "ui/" // relative, so that a prefix of a proxy stays
		if !strings.HasSuffix(r.URL.Path, "/") {
			to = path.Base(r.URL.Path) + "/" + to
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect) // temporary, because an operator may disable the page
	default:
		answer.Text(w, http.StatusNotFound, "This is an MCP bridge, and no web page: MCP clients use "+t.s.outside(r)+t.base+"/mcp\n")
	}
}

// toConsole redirects to the page for operators. The target is relative, so that a prefix of a proxy stays.
func (t *tree) toConsole(c *gin.Context) {
	w, r := of(c)
	if !takes(reading, r.Method) {
		t.nowhere(c)
		return
	}
	w.Header().Set("Location", "ui/")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// file serves the page for operators.
func (t *tree) file(c *gin.Context) {
	w, r := of(c)
	r = r.Clone(r.Context())
	r.URL.Path = strings.TrimPrefix(r.URL.Path, t.base+"/ui")
	t.s.page.ServeHTTP(w, r)
}

// action serves the API of operators.
func (t *tree) action(c *gin.Context) {
	w, r := of(c)
	at := strings.TrimPrefix(r.URL.Path, t.base+"/"+admin.Base)
	if !t.s.actions.Has(at) {
		t.nowhere(c)
		return
	}
	t.s.actions.Serve(w, r, at, func(w http.ResponseWriter, r *http.Request) (admin.Caller, bool, error) {
		return t.s.caller(w, r, t.base)
	})
}

// serveMetrics serves the metrics that the caller may see.
func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	sees := s.access.View(auth.Principal(r.Context()))
	if sees.All {
		sees.Of = nil
	}
	s.metrics.Serve(w, r, sees.Of)
}
