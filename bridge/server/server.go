// Package server serves a bridge over HTTP: the MCP endpoints of its servers,
// and what operators ask.
//
// For a server NAME there are /NAME/mcp (Streamable HTTP), /NAME/sse and
// /NAME/messages (HTTP+SSE). The same without /NAME is all servers as one. Where
// it is configured, POST /hooks/NAME announces that a server's tools have
// changed. /healthz, /readyz and /metrics are for operators.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge/auth"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list/filter"
	"github.com/mcp-bridge/bridge/bridge/observe/report"
	"github.com/mcp-bridge/bridge/bridge/server/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/metrics"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
)

// Server is a bridge and the HTTP server in front of it.
//
// It has many fields: all that starts and stops with it.
type Server struct {
	c          *config.Config
	log        *slog.Logger
	reached    []reached // as Config.Servers
	b          *gateway.Gateway
	streamable *streamable.Downstream
	sse        *sse.Downstream
	guard      guard
	keys       *auth.Keys // nil when there are no access rules
	complaints complaints // about requests without a good key
	wrong      *wrongKeys
	unfollow   func() // ends following the files of keys, and returns when it has
	metrics    *metrics.Metrics
	access     *accesslog.Log // nil when there is none
	fault      error          // why the bridge cannot be served as it is configured
	http       *http.Server
	clients    *connections
	cert       *certificate // nil without TLS
}

// New builds everything that the configuration names. It starts nothing but
// the bridge itself: Close ends that, also when Serve was never called. A server
// that cannot be used as it is configured keeps nothing else from working.
func New(c *config.Config, log *slog.Logger) *Server { return build(c, log, (*Server).reach) }

func build(c *config.Config, log *slog.Logger, reach reacher) *Server {
	s := &Server{c: c, log: log, guard: newGuard(c)}
	if keys := keysOf(c); keys != nil {
		s.keys, s.wrong = auth.New(keys, log), newWrongKeys(log)
	}
	o := gateway.Options{
		Log: log, Version: Version(), Sessions: session.NewMemory(c.MaxSessions), SessionIdle: c.SessionIdle,
		MaxBytes: int64(c.MaxInFlight), MaxLanes: c.MaxChildren, Grants: c.Grants(), PerPrincipal: c.PerPrincipal,
		Watch: s.watch, Traces: c.Traces, Offer: gateway.Offer(c.Offer),
	}
	for i := range c.Servers {
		r := reach(s, &c.Servers[i])
		s.reached = append(s.reached, r)
		o.Servers = append(o.Servers, options(&c.Servers[i], r))
	}
	s.metrics = metrics.New(Version(), names(c))
	var err error
	if s.access, err = accesslog.Open(c.AccessLog, log); err != nil {
		s.fault = err
		log.Error("there is no access log", "err", err)
	}
	s.b = gateway.New(o)
	s.measure()
	s.streamable = streamable.New(s.b, streamable.Options{Log: log, MaxMessage: int(c.MaxMessage), Heartbeat: c.Heartbeat})
	s.sse = sse.New(s.b, sse.Options{Log: log, MaxMessage: int(c.MaxMessage), MaxStreams: c.MaxSessions, MaxEach: c.PerPrincipal.Sessions, Heartbeat: c.Heartbeat})
	s.unfollow = s.follow()
	s.http = &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		// It has to be one number for all: who asks is known when the header has been
		// read. As much is what node's HTTP server takes.
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients' slips, not ours
	}
	if s.keys != nil {
		s.http.ConnContext = withClient
		s.http.ConnState = func(c net.Conn, state http.ConnState) {
			if client := clientOf(c); client != nil {
				client.heed(state)
			}
		}
	}
	s.clients = newConnections(c.MaxConnections, &s.guard, log)
	if c.TLS.CertFile != "" {
		s.cert = &certificate{files: c.TLS, log: log}
		s.http.TLSConfig = s.cert.config()
	}
	return s
}

// watch takes what became of a request.
func (s *Server) watch(p report.Report) {
	s.metrics.Take(&p)
	if s.access != nil {
		s.access.Take(&p)
	}
}

// measure has the metrics show how the bridge fares.
func (s *Server) measure() {
	b := metrics.Bridge{
		Totals: s.b.Totals, Status: s.b.Status,
		Ready: func(all []gateway.Status) bool {
			why, _ := s.unready(all)
			return why == ""
		},
		Stdio: func(server string) bool {
			i := slices.IndexFunc(s.c.Servers, func(c config.Server) bool { return c.Name == server })
			return s.reached[i].transport() == transportStdio
		},
		Refused: func() uint64 { return s.clients.refused.Load() },
	}
	if s.access != nil {
		b.LogLost = s.access.Lost
	}
	s.metrics.Ask(b)
}

// serveMetrics serves the metrics that the caller may see.
func (s *Server) serveMetrics(c *gin.Context) {
	sees := s.sight(auth.Principal(c.Request.Context()))
	if sees.all {
		sees.of = nil
	}
	s.metrics.Serve(c.Writer, c.Request, sees.of)
}

// names returns the names of the configured servers.
func names(c *config.Config) []string {
	all := make([]string, len(c.Servers))
	for i := range c.Servers {
		all[i] = c.Servers[i].Name
	}
	return all
}

// options makes a server's options of its configuration.
func options(c *config.Server, r reached) gateway.ServerOptions {
	o := gateway.ServerOptions{
		Name: c.Name, Share: gateway.Share(c.Share), Offer: gateway.Offer(c.Offer), EndWithServer: !c.Restart, Idle: c.IdleStop,
		Handshake: c.HandshakeTimeout, Restarts: c.StartsPerMinute, MaxPause: c.RestartMaxPause, MaxLanes: c.MaxChildren,
		Prefix: c.Prefix, Filter: filter.Options{Tools: c.Tools, Prompts: c.Prompts, Resources: c.Resources},
		Ping: c.Ping, MaxTask: c.MaxTimeout, Forward: c.Forward, Adapter: r.Adapter, Check: r.check,
		Validate: c.Validate && c.Rest == nil,
		Process:  c.Stdio != nil,
		Cache:    c.Cache, Breaker: c.Breaker, Limits: c.Limits, Retry: c.Retry,
	}
	if o.Idle == 0 {
		o.Idle = -1 // never: the configuration has filled in its default
	}
	return o
}

// Version returns the version of the program, as its build says it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// Bridge returns the bridge that is served.
func (s *Server) Bridge() *gateway.Gateway { return s.b }

// Handler returns the HTTP surface, for a listener of one's own.
func (s *Server) Handler() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	e.Use(gin.CustomRecoveryWithWriter(nil, s.recovered), s.guard.check)
	e.NoRoute(s.noRoute())
	e.NoMethod(s.noMethod)
	s.routes(e.Group(s.c.BasePath))
	return e
}

// Mount adds the HTTP surface to a gin engine of one's own, below the group's
// path, beside its other routes: those are not guarded. The configuration's
// base_path is not used.
func (s *Server) Mount(at *gin.RouterGroup) {
	s.routes(at.Group("", gin.CustomRecoveryWithWriter(nil, s.recovered), s.guard.check))
}

// looking are the methods of those who only look.
var looking = []string{http.MethodGet, http.MethodHead}

func (s *Server) routes(at *gin.RouterGroup) {
	at.Match([]string{http.MethodGet, http.MethodHead}, "/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	at.Match(looking, "/readyz", s.ready)
	at.Match(looking, "/metrics", s.operator, s.serveMetrics)
	mcp := at.Group("", s.admit)
	for i, name := range s.b.Servers() {
		s.mount(mcp.Group("/"+name, s.granted(name)), name)
		if h := s.reached[i].hook; h != nil {
			at.POST("/hooks/"+name, s.hook(name, h))
		}
	}
	s.mount(mcp, "")
}

// mount adds the endpoints of a server; without a name, those of all servers as
// one.
func (s *Server) mount(at *gin.RouterGroup, name string) {
	path := strings.TrimSuffix(at.BasePath(), "/")
	mcp := func(c *gin.Context) { s.streamable.Serve(name, c.Writer, c.Request) }
	at.Any("/mcp", mcp)
	at.Any("/sse", func(c *gin.Context) {
		// Clients that try the newer transport first, on whatever URL they were
		// given, find it here too; a session tells the two kinds of GET apart.
		if c.Request.Method == http.MethodGet && !streamable.HasSession(c.Request) {
			s.sse.Stream(name, s.outside(c.Request)+path+"/messages", c.Writer, c.Request)
			return
		}
		s.streamable.Serve(name, c.Writer, c.Request)
	})
	at.POST("/messages", func(c *gin.Context) { s.sse.Message(name, c.Writer, c.Request) })
	// Preflights are answered before, but in an engine of somebody else's nothing
	// sees a request that has no route.
	at.OPTIONS("/messages", wrongMethod)
}

// outside returns what proxies have taken off the path under which the client
// reaches us.
func (s *Server) outside(r *http.Request) string {
	prefix := r.Header.Get("X-Forwarded-Prefix")
	if prefix == "" || !s.guard.trusts(r.RemoteAddr) || !cleanPrefix(prefix) {
		return ""
	}
	return strings.TrimRight(prefix, "/")
}

// cleanPrefix reports whether a forwarded prefix is nothing but a path.
func cleanPrefix(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return false
	}
	for _, c := range []byte(p) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}

// unknown answers a request for a path that is not there. Somebody who is known is
// told what there is, as far as that is any of its business.
func (s *Server) unknown(c *gin.Context) {
	c.Abort()
	caller := auth.Principal(c.Request.Context())
	if s.keys != nil && caller == "" {
		refuse(c, http.StatusNotFound, "nothing is served here")
		return
	}
	all := []string{s.c.BasePath + "/mcp"}
	for _, name := range s.b.Servers() {
		if s.b.Allowed(name, caller) == nil {
			all = append(all, s.c.BasePath+"/"+name+"/mcp")
		}
	}
	refuse(c, http.StatusNotFound, "nothing is served here; MCP is at "+strings.Join(all, ", "))
}

// noRoute answers requests for paths that are not there. Which there are is for
// those with a key: to everybody else all are alike.
func (s *Server) noRoute() gin.HandlerFunc {
	anyHook := s.hook("", newHook(rand.Text(), nil)) // nobody knows that secret
	return func(c *gin.Context) {
		path := c.Request.URL.Path
		switch {
		case strings.Contains(path, "/.well-known/"): // where clients look whether there is OAuth
		case s.keys != nil && c.Request.Method == http.MethodPost && strings.HasPrefix(path, s.c.BasePath+"/hooks/"):
			anyHook(c)
			return
		default:
			if s.admit(c); c.IsAborted() {
				return
			}
		}
		s.unknown(c)
	}
}

// noMethod answers requests whose method the path does not take, and tells which it
// does only those to whom the path exists.
func (s *Server) noMethod(c *gin.Context) {
	rest, _ := strings.CutPrefix(c.Request.URL.Path, s.c.BasePath+"/")
	if rest == "healthz" || rest == "readyz" {
		wrongMethod(c)
		return
	}
	allow := c.Writer.Header()["Allow"]
	c.Writer.Header().Del("Allow")
	if s.admit(c); c.IsAborted() {
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(rest, "hooks/"), "/")
	if s.granted(name)(c); c.IsAborted() {
		return
	}
	c.Writer.Header()["Allow"] = allow
	wrongMethod(c)
}

func wrongMethod(c *gin.Context) {
	if h := c.Writer.Header(); strings.Contains(h.Get("Allow"), http.MethodTrace) {
		h.Set("Allow", "GET, POST, DELETE, OPTIONS") // the route is for any method, so that we refuse the others ourselves
	}
	refuse(c, http.StatusMethodNotAllowed, "this method is not served here")
}

func refuse(c *gin.Context, status int, why string) {
	c.Data(status, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, nil).Append(nil, nil, nil))
}

func (s *Server) recovered(c *gin.Context, fault any) {
	s.log.Error("panic in a handler", "path", c.FullPath(), "err", fmt.Sprint(fault))
	c.AbortWithStatus(http.StatusInternalServerError)
}

// Listen opens the configured address. With TLS, a certificate that cannot be
// used is an error.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	if s.cert != nil {
		if err := s.cert.load(); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if s.fault != nil {
		return nil, s.fault
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (choose another address with --listen or listen:, port 0 picks a free one)", s.c.Listen, err)
	}
	return l, nil
}

// Serve serves on l until ctx ends. Then it refuses new calls, lets those under
// way finish for as long as the configuration allows, and stops everything.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- s.serve(l) }()
	select {
	case err := <-failed:
		s.Close(context.Background())
		return err
	case <-ctx.Done():
	}
	s.log.Info("stopping", "drain", s.c.Drain.String())
	drain, cancel := context.WithTimeout(context.Background(), s.c.Drain)
	if err := s.b.Drain(drain); err != nil {
		s.log.Warn("calls were still under way after the time to drain")
	}
	cancel()
	s.Close(context.Background())
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serve serves on l, encrypted if that is configured.
func (s *Server) serve(l net.Listener) error {
	if s.clients.most < s.c.MaxConnections {
		s.log.Info("max_connections is lowered: half of the files that the process may open are for connections of clients", "max_connections", s.clients.most)
	}
	l = bounded{l, s.clients}
	if s.cert == nil {
		return s.http.Serve(l)
	}
	if s.cert.current.Load() == nil { // a listener of somebody else's
		if err := s.cert.load(); err != nil {
			_ = l.Close()
			return fmt.Errorf("tls: %w", err)
		}
	}
	return s.http.ServeTLS(l, "", "")
}

// closeLimit bounds how long responses may take to end once the bridge has
// closed, and how long the access log may after that.
const closeLimit = 2 * time.Second

// Close stops everything at once: sessions, children, connections.
func (s *Server) Close(ctx context.Context) {
	s.unfollow()
	s.b.Close(ctx)
	s.sse.Close()
	s.streamable.Close()
	for _, r := range s.reached {
		if r.close != nil {
			r.close()
		}
	}
	answers, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := s.http.Shutdown(answers); err != nil {
		_ = s.http.Close() // what is left are clients that do not read
	}
	if s.access != nil { // with time of its own: a client may have used up all other
		lines, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		s.access.Close(lines.Done())
	}
}
