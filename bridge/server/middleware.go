package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// recovered ends a request whose handler panics. An answer that has begun is broken off: the client must not take
// half of it for the whole.
func (t *tree) recovered(c *gin.Context) {
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		w, r := of(c)
		if fault != http.ErrAbortHandler {
			t.s.log.Error("panic in a handler", "path", r.URL.Path, "err", fmt.Sprint(fault))
		}
		if n, ok := w.(*noted); fault == http.ErrAbortHandler || ok && n.begun {
			// The write deadline in the past cuts the answer off. The panic alone may not: in a program around the
			// bridge, gin.Recovery takes the panic for the end of the request.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusInternalServerError)
		c.Abort()
	}()
	c.Next()
}

// limitBody limits the time in which the body of a request must arrive.
func (t *tree) limitBody(c *gin.Context) {
	w, r := of(c)
	r, ok := httpio.LimitBody(w, r)
	if c.Request = r; !ok {
		answer.Refuse(w, http.StatusBadRequest, "the body of this GET is incomplete or too large: send none")
		c.Abort()
	}
}

// stripClusterHeaders removes headers that only other instances may send.
func (t *tree) stripClusterHeaders(c *gin.Context) {
	if t.s.instance != nil {
		wire.Strip(c.Request.Header)
	}
}

// closeWhileDraining makes clients of an instance that stops reconnect: their next request reaches another instance,
// and is not lost with this instance.
func (t *tree) closeWhileDraining(c *gin.Context) {
	if t.s.instance != nil && t.s.instance.node.Draining() {
		w, _ := of(c)
		w.Header().Set("Connection", "close")
	}
}

// checkHost accepts requests whose Host is served here.
func (t *tree) checkHost(c *gin.Context) {
	if !t.s.access.CheckHost(of(c)) {
		c.Abort()
	}
}

// checkOrigin accepts requests of allowed web pages, and answers preflights.
func (t *tree) checkOrigin(c *gin.Context) {
	if !t.s.access.CheckOrigin(of(c)) {
		c.Abort()
	}
}

// allowAllOrigins allows the pages of all sites to read public documents.
func (t *tree) allowAllOrigins(c *gin.Context) {
	if !access.Readable(of(c)) {
		c.Abort()
	}
}

// admit accepts requests with a key or a token for a target. path is for the log.
func (t *tree) admit(c *gin.Context, path string, to access.Target) (ok bool) {
	w, r := of(c)
	if c.Request, ok = t.s.access.Admit(w, r, path, to); !ok {
		c.Abort()
	}
	return ok
}

// checkClient accepts callers of an endpoint.
func (t *tree) checkClient(c *gin.Context) { t.admit(c, c.Request.URL.Path, t.target(c)) }

// checkCaller accepts callers of /whoami.
func (t *tree) checkCaller(c *gin.Context) {
	t.admit(c, c.Request.URL.Path, t.s.access.TargetFor(c.Request, t.base))
}

// checkOperator accepts callers that may see the state of the bridge: with public_status, all callers.
func (t *tree) checkOperator(c *gin.Context) {
	if !t.s.Config().PublicStatus {
		t.admit(c, c.Request.URL.Path, access.Target{Base: t.base})
	}
}

// checkSender accepts requests for a webhook that exists. A POST proves the webhook's secret later; other
// methods need a key.
func (t *tree) checkSender(c *gin.Context) {
	name := c.Param("server")
	switch {
	case t.s.hookOf(name) == nil:
		t.nowhere(c)
	case c.Request.Method != http.MethodPost && t.admit(c, c.Request.URL.Path, access.Target{Base: t.base}):
		t.checkGrant(c)
	}
}

// serverExists accepts requests for a server or group that exists, or for all servers as one.
func (t *tree) serverExists(c *gin.Context) {
	if name, one := c.Params.Get("server"); one && !t.s.HasAddress(name) {
		t.nowhere(c)
	}
}

// servesClients accepts requests if this instance serves clients.
func (t *tree) servesClients(c *gin.Context) {
	if t.s.instance != nil && t.s.instance.c.Role == cluster.RoleWorker {
		w, _ := of(c)
		httpio.RetryAfter(w.Header(), 2*time.Second)
		answer.Refuse(w, http.StatusServiceUnavailable, "this instance is a worker and serves no clients: use another instance")
		c.Abort()
	}
}

// checkTools accepts requests whose URL asks for no mode of tools, or for a known mode.
func (t *tree) checkTools(c *gin.Context) {
	w, r := of(c)
	if _, err := gateway.ToolsModeOf(r.URL.Query()); err != nil {
		answer.Refuse(w, http.StatusBadRequest, err.Error())
		c.Abort()
	}
}

// identify adds to a request the data about its caller that servers get.
func (t *tree) identify(c *gin.Context) { c.Request = t.s.access.Identify(c.Request, t.target(c)) }

// endWithToken ends a stream with the token of its caller.
func (t *tree) endWithToken(c *gin.Context) {
	r, done := t.s.access.Follow(c.Request, c.Param("server"), t.target(c))
	defer done()
	c.Request = r
	c.Next()
}

// checkGrant accepts callers that may use the server. For other callers, the server does not exist.
func (t *tree) checkGrant(c *gin.Context) {
	if name := c.Param("server"); name != "" && !t.s.access.Covers(auth.Principal(c.Request.Context()), name) {
		t.unknown(c)
	}
}

// checkScopes accepts a GET whose token has the scopes that the GET needs. A POST is checked when its body is read.
func (t *tree) checkScopes(c *gin.Context) {
	w, r := of(c)
	if r.Method == http.MethodGet && t.s.access.Screen(w, r, c.Param("server"), nil) {
		c.Abort()
	}
}

// forOperators accepts requests that came in at an address for operators.
func (t *tree) forOperators(c *gin.Context) {
	if !t.s.forOperators(c.Request) {
		t.nowhere(c)
	}
}

// hasConsole accepts requests if the console is enabled.
func (t *tree) hasConsole(c *gin.Context) {
	if !admin.HasConsole(t.s.Config()) {
		t.nowhere(c)
	}
}

// checkPage accepts the requests that checkClient accepts, and requests with the console's cookie.
func (t *tree) checkPage(c *gin.Context) {
	w, r := of(c)
	r, done, ok := t.s.fromPage(w, r, t.base, t.target(c))
	if c.Request = r; !ok {
		c.Abort()
		return
	}
	defer done()
	c.Next()
}

func (t *tree) target(c *gin.Context) access.Target {
	path := c.Request.URL.Path[len(t.base):]
	if server, ok := strings.CutPrefix(path, "/ui/mcp"); ok {
		return access.Target{Base: t.base, Endpoint: server + "/mcp"} // tokens name that endpoint
	}
	return access.TargetOf(t.base, path)
}
