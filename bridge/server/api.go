package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
)

// Server is a bridge and the HTTP server in front of it.
type Server struct{ b bridging }

// bridging is what server does for a Server. It is an interface because a package that names a type compiles the
// methods of every generic type among the fields of that type: thousands of functions for *server.
type bridging interface {
	Fault() error
	Listen(ctx context.Context) (net.Listener, error)
	Serve(ctx context.Context, l net.Listener) error
	Serving() <-chan struct{}
	ServeStdio(ctx context.Context, server string, in io.Reader, out io.Writer) error
	Handler() http.Handler
	HandlerAt(base string) http.Handler
	Mount(on gin.IRouter)
	ConsoleAddr() net.Addr
	Status() []Status
	Activity() (now int, all uint64)
	CloseUnused()
	Add(s config.Server) error
	Remove(name string) error
	Replace(s config.Server) error
	Plan(c *config.Config) ([]config.Change, error)
	Apply(c *config.Config) ([]config.Change, error)
	Reloads(r *reload.Reloader)
	Close(ctx context.Context)
}

// New builds everything that the configuration describes. New starts no server. Close ends the bridge, also if Serve
// was never called. A server whose settings cannot be used does not affect the others.
func New(c *config.Config, log *slog.Logger) *Server {
	return &Server{build(c, log, (*server).reach)}
}

// Fault returns the error that prevents the bridge from serving the configuration, or nil. Listen and Serve return it.
func (s *Server) Fault() error { return s.b.Fault() }

// Listen opens the configured address, and console_listen if it is set, which Serve serves too. With TLS, a
// certificate that cannot be used is an error.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) { return s.b.Listen(ctx) }

// Serve serves on l until ctx ends. Then it refuses new calls, waits for calls in flight as long as the
// configuration allows, and stops everything.
func (s *Server) Serve(ctx context.Context, l net.Listener) error { return s.b.Serve(ctx, l) }

// Serving returns a channel that is closed when Serve serves clients. In a cluster, the instance refuses clients
// until it has joined.
func (s *Server) Serving() <-chan struct{} { return s.b.Serving() }

// ServeStdio serves one client on in and out, usually os.Stdin and os.Stdout, as desktop clients start servers.
// Nothing else may be written to out. server may name a group; empty means all servers as one. ServeStdio returns
// when the client leaves, or ctx ends; Close then stops the servers. A principal in ctx (WithPrincipal) is the
// client's.
func (s *Server) ServeStdio(ctx context.Context, server string, in io.Reader, out io.Writer) error {
	return s.b.ServeStdio(ctx, server, in, out)
}

// Handler returns the HTTP surface, for a listener or a router of the program. Its paths are below the
// configuration's base_path. Handler works behind http.StripPrefix too: HTTP+SSE clients get the path that they
// requested.
func (s *Server) Handler() http.Handler { return s.b.Handler() }

// HandlerAt is Handler with another base path, such as /tools: without a slash at its end, and without *. The empty
// path is the root. HandlerAt logs the documents that Listen would refuse: their servers do not work, but all others
// do.
func (s *Server) HandlerAt(base string) http.Handler { return s.b.HandlerAt(base) }

// Mount adds the HTTP surface to a gin engine, or below the path of one of its groups. Other routes of the
// engine do not pass the bridge's checks of Origin, Host and keys. The group's path must have no
// parameters. Mount panics, as gin does, if a route has a path of the bridge, such as /health and
// /ready. An engine with HandleMethodNotAllowed panics in gin v1.12.0 for methods without routes: leave
// it off. The configuration's base_path is not used. Mount logs faults like HandlerAt.
func (s *Server) Mount(on gin.IRouter) { s.b.Mount(on) }

// ConsoleAddr returns the address of console_listen, after Listen or Serve opened it; nil otherwise.
func (s *Server) ConsoleAddr() net.Addr { return s.b.ConsoleAddr() }

// Status returns the state of each server, in the order of the configuration.
func (s *Server) Status() []Status { return s.b.Status() }

// Activity returns the number of calls of clients that are in flight, and of all calls so far.
func (s *Server) Activity() (now int, all uint64) { return s.b.Activity() }

// CloseUnused closes the connections to servers that were opened for clients without sessions, and that no request
// uses. The next request of such a client opens a connection again.
func (s *Server) CloseUnused() { s.b.CloseUnused() }

// Add adds a server. Its addresses exist at once, and clients of the aggregate are notified. The server
// starts on demand.
func (s *Server) Add(c config.Server) error { return s.b.Add(c) }

// Remove removes a server. New calls are refused. Calls in flight may end within the configuration's
// Drain, then its sessions and connections end. Remove does not wait for that. The last server
// cannot be removed.
func (s *Server) Remove(name string) error { return s.b.Remove(name) }

// Replace changes the settings of the server of c's name. Its sessions keep the old settings until they
// end, also when they reopen a connection; only Timeout and MaxTimeout change for them too. Remove ends
// these sessions too. New sessions, stateless clients, and clients of all servers as one use the new
// settings at once.
func (s *Server) Replace(c config.Server) error { return s.b.Replace(c) }

// Plan returns the changes that Apply would make, and when each takes effect. Plan changes nothing. It fails if Apply
// would fail because of a document.
func (s *Server) Plan(c *config.Config) ([]config.Change, error) { return s.b.Plan(c) }

// Apply makes another configuration current, and returns the changes; docs/reload.md has the time when
// each setting takes effect. Servers that are the same in both are not affected: none of their sessions,
// connections or calls ends. Settings that need a restart stay as they were. An error changes nothing.
//
// The configuration is compared with the current one, which Add, Remove and Replace may have changed.
// Traces and Meters stay as they are.
func (s *Server) Apply(c *config.Config) ([]config.Change, error) { return s.b.Apply(c) }

// Reloads makes r reload the configuration while Serve runs, also at the request of operators over HTTP. Reloads is
// called before the first request. Only the commands of this module can use it: other programs use Apply.
func (s *Server) Reloads(r *reload.Reloader) { s.b.Reloads(r) }

// Close stops everything at once: sessions, children, connections.
func (s *Server) Close(ctx context.Context) { s.b.Close(ctx) }
