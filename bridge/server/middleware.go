package server

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// recovered ends a request whose handler panics.
func (t *tree) recovered(c *gin.Context) {
	defer func() {
		if fault := recover(); fault != nil {
			w, r := of(c)
			t.s.log.Error("panic in a handler", "path", r.URL.Path, "err", fmt.Sprint(fault))
			w.WriteHeader(http.StatusInternalServerError)
			c.Abort()
		}
	}()
	c.Next()
}

// hurried limits how long the body of a request may take.
func (t *tree) hurried(c *gin.Context) {
	w, r := of(c)
	r, ok := httpio.Hurry(w, r)
	if c.Request = r; !ok {
		answer.Refuse(w, http.StatusBadRequest, "the body of this GET did not come, or is too large: leave it out")
		c.Abort()
	}
}

// stripped takes away what only other instances may say.
func (t *tree) stripped(c *gin.Context) {
	if t.s.instance != nil {
		wire.Strip(c.Request.Header)
	}
}

// leaving has clients of an instance that goes connect again: the next request goes to
// another, rather than be lost with this one.
func (t *tree) leaving(c *gin.Context) {
	if t.s.instance != nil && t.s.instance.node.Draining() {
		w, _ := of(c)
		w.Header().Set("Connection", "close")
	}
}

// named lets on what comes under a name that is served here.
func (t *tree) named(c *gin.Context) {
	if !t.s.access.Named(of(c)) {
		c.Abort()
	}
}

// ownPages lets on what pages send that may, and answers preflights.
func (t *tree) ownPages(c *gin.Context) {
	if !t.s.access.FromOwn(of(c)) {
		c.Abort()
	}
}

// readable lets the pages of all sites read what is served to anybody.
func (t *tree) readable(c *gin.Context) {
	if !access.Readable(of(c)) {
		c.Abort()
	}
}

// admit lets on who shows a key or a token for a place. path is for the log.
func (t *tree) admit(c *gin.Context, path string, to access.Place) (ok bool) {
	w, r := of(c)
	if c.Request, ok = t.s.access.Admit(w, r, path, to); !ok {
		c.Abort()
	}
	return ok
}

// client lets on who may use the endpoint.
func (t *tree) client(c *gin.Context) { t.admit(c, c.Request.URL.Path, t.place(c)) }

// caller lets on who is asked about itself.
func (t *tree) caller(c *gin.Context) {
	t.admit(c, c.Request.URL.Path, t.s.access.PlaceFor(c.Request, t.base))
}

// operator lets on who may look at the state of the bridge: everybody, if the configuration
// says so.
func (t *tree) operator(c *gin.Context) {
	if !t.s.c().PublicStatus {
		t.admit(c, c.Request.URL.Path, access.Place{Base: t.base})
	}
}

// sender lets on what is for a webhook that there is. Who sends to it shows its secret, and
// who does something else a key.
func (t *tree) sender(c *gin.Context) {
	name := c.Param("server")
	switch {
	case t.s.hooked(name) == nil:
		t.nowhere(c)
	case c.Request.Method != http.MethodPost && t.admit(c, c.Request.URL.Path, access.Place{Base: t.base}):
		t.granted(c)
	}
}

// known lets on what is for a server that there is, or for all as one.
func (t *tree) known(c *gin.Context) {
	if name, one := c.Params.Get("server"); one && t.s.now.Load().reached[name] == nil {
		t.nowhere(c)
	}
}

// works lets on what is for an instance that serves clients.
func (t *tree) works(c *gin.Context) {
	if t.s.instance != nil && t.s.instance.c.Role == cluster.RoleWorker {
		w, _ := of(c)
		httpio.RetryAfter(w.Header(), 2*time.Second)
		answer.Refuse(w, http.StatusServiceUnavailable, "this instance is a worker and serves no clients: send them to the others")
		c.Abort()
	}
}

// identified puts into a request what servers are told of its caller.
func (t *tree) identified(c *gin.Context) { c.Request = t.s.access.Identify(c.Request, t.place(c)) }

// followed ends a stream with the token that was shown for it.
func (t *tree) followed(c *gin.Context) {
	r, done := t.s.access.Follow(c.Request, c.Param("server"), t.place(c))
	defer done()
	c.Request = r
	c.Next()
}

// granted lets on who may use the server. For others it does not exist.
func (t *tree) granted(c *gin.Context) {
	if name := c.Param("server"); name != "" && !t.s.access.Covers(auth.Principal(c.Request.Context()), name) {
		t.unknown(c)
	}
}

// scoped lets on a GET whose token has the scopes that it needs. Of a POST, what it says has
// to be known.
func (t *tree) scoped(c *gin.Context) {
	w, r := of(c)
	if r.Method == http.MethodGet && t.s.access.Screen(w, r, c.Param("server"), nil) {
		c.Abort()
	}
}

// forOperators lets on what came to where operators are served.
func (t *tree) forOperators(c *gin.Context) {
	if !t.s.forOperators(c.Request) {
		t.nowhere(c)
	}
}

// hasConsole lets on where there is a page for operators.
func (t *tree) hasConsole(c *gin.Context) {
	if !admin.HasConsole(t.s.c()) {
		t.nowhere(c)
	}
}

// page lets on what the page for operators sends: as client does, but also by its cookie.
func (t *tree) page(c *gin.Context) {
	w, r := of(c)
	r, done, ok := t.s.fromPage(w, r, t.base, t.place(c))
	if c.Request = r; !ok {
		c.Abort()
		return
	}
	defer done()
	c.Next()
}

// place returns what a request of a client is for.
func (t *tree) place(c *gin.Context) access.Place {
	path := c.Request.URL.Path[len(t.base):]
	if server, ok := strings.CutPrefix(path, "/ui/mcp"); ok {
		return access.Place{Base: t.base, Endpoint: server + "/mcp"} // of which a token is for this too
	}
	return access.PlaceOf(t.base, path)
}
