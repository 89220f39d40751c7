// Package server serves a bridge over HTTP: the MCP endpoints of its servers, and the API of operators.
//
// A server or group NAME has /NAME/mcp (Streamable HTTP), /NAME/sse and /NAME/messages (HTTP+SSE). The same paths
// without /NAME serve all servers as one. If configured, POST /hooks/NAME announces that a server's tools changed.
// /healthz, /readyz and /metrics are for operators.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// server is the bridge and the HTTP server of a Server.
type server struct {
	conf       atomic.Pointer[config.Config] // the current configuration; read only
	log        *slog.Logger
	reacher    backendMaker
	newBacking func(s *server, id string, life time.Duration) (*backing, error)
	table      atomic.Pointer[table]
	changing   sync.Mutex // held while conf and table are replaced
	times      times
	leaving    map[string]int // by name, removed or replaced servers that are still in use; guarded by changing
	g          gateway.Gateway
	streamable *streamable.Downstream
	sse        *sse.Downstream
	access     *access.Access // checks callers and their rights
	noHook     *hook          // answers for webhooks that do not exist: its secret is random
	metrics    *metrics.Metrics
	accessLog  atomic.Pointer[accesslog.Log] // the access log; nil if there is none
	lostLines  atomic.Uint64                 // lines lost by earlier access logs
	fault      error                         // the reason that the bridge cannot serve the configuration
	listeners
	operating
	began    time.Time
	instance *instance // nil for a single instance
}

// listeners has the listeners for clients and operators, and their limits.
type listeners struct {
	http      *http.Server
	serving   chan struct{} // closed when clients are served
	serveOnce sync.Once     // closes serving
	operators net.Listener  // of console_listen; nil if that is not set, and before Listen
	clients   *connections
	cert      *certificate // nil without TLS
}

// operating has the parts for operators.
type operating struct {
	reloader *reload.Reloader // nil if the configuration is never reloaded
	actions  *admin.API
	events   *admin.Events
	page     http.Handler
	pages    *admin.Pages // the sign-ins
	timeline *timeline
	calls    *calls.Calls // the recorded calls
	logs     *logs.Log
	drained  atomic.Pointer[status.Drain] // the order of an operator; nil if there is none
}

// watch records the outcome of a request.
func (s *server) watch(r report.Report) {
	if r.Own {
		s.metrics.Listed(&r)
		return
	}
	s.metrics.Take(&r)
	s.calls.Take(&r)
	if s.timeline.counts.Load() {
		s.timeline.clients.Take(&r)
	}
	s.note(func(l *accesslog.Log) bool { return l.Take(&r) })
}

// note writes a line to the access log, if there is one. take reports false if that log is closed: the line
// belongs to its replacement.
func (s *server) note(take func(*accesslog.Log) bool) {
	for l := s.accessLog.Load(); l != nil && !take(l); {
		next := s.accessLog.Load()
		if next == l {
			return // the bridge is closed
		}
		l = next
	}
}

func options(s *config.Server, b backend) gateway.ServerOptions {
	o := gateway.ServerOptions{
		ServerSettings: s.ServerSettings,
		Name:           s.Name,
		EndWithServer:  !s.Restart,
		Idle:           s.IdleStop,
		MaxTask:        s.MaxTimeout,
		Forward:        s.Forwards(),
		Adapter:        b.Adapter,
		Check:          b.check,
		Process:        s.Stdio != nil,
		Address:        serverAddress(s),
		Homed:          s.Rest == nil && s.Adapter == nil,
	}
	o.Validate = s.Validate && s.Rest == nil // the adapter for HTTP APIs checks the arguments itself
	if b.local != nil {
		o.Queued = queued(s)
	}
	o.Idle = cmp.Or(o.Idle, -1) // 0 means never: the configuration has the default already
	return o
}

// serverAddress returns where a server is. If only its document has the address of an HTTP API, the host is empty.
func serverAddress(s *config.Server) bridge.Address {
	text := ""
	switch {
	case s.Stdio != nil:
		return bridge.Address{Network: bridge.Pipe}
	case s.Rest != nil:
		text = s.Rest.BaseURL
	case s.Remote() != nil:
		text = s.Remote().URL
	default:
		return bridge.Address{}
	}
	a := bridge.Address{Network: bridge.TCP}
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		a.Host, a.Port = u.Hostname(), map[string]int{"http": 80, "https": 443}[u.Scheme]
		if port, err := strconv.Atoi(u.Port()); err == nil {
			a.Port = port
		}
	}
	return a
}

// version is set by the linker for a release, which is built without version control:
// -X github.com/mcp-bridge/bridge/bridge/server.version=v1.2.3.
var version string

// Version returns the version of the program.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func (s *server) Fault() error { return s.fault }

func (s *server) CloseUnused() { s.g.CloseUnused() }

func (s *server) Activity() (now int, all uint64) { return s.g.Activity() }

// Status is the state of a server.
type Status = gateway.Status

// Whoami is the answer of GET /whoami: the caller that the bridge recognizes by a key or a token.
type Whoami = access.Whoami

func (s *server) ServeStdio(ctx context.Context, server string, in io.Reader, out io.Writer) error {
	return stdio.Serve(ctx, s.g, server, in, out, stdio.DownstreamOptions{
		Log:        s.log,
		MaxMessage: int(s.Config().MaxMessage),
		Principal:  auth.Principal(ctx),
	})
}

// WithPrincipal returns the context of a request whose caller the embedding program has identified. The
// program sets it in requests that it passes to Handler. The bridge stores all data of the caller under
// that name: sessions, connections shared by principal, cached lists, quotas. A configuration with Access
// uses its keys instead.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return auth.WithPrincipal(ctx, name)
}

func (s *server) Listen(ctx context.Context) (net.Listener, error) {
	if s.cert != nil {
		if err := s.cert.load(); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	if s.fault != nil {
		return nil, s.fault
	}
	if err := s.access.Open(); err != nil {
		return nil, fmt.Errorf("oauth: front: %w", err)
	}
	if err := s.listenForOperators(ctx); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", config.Address(s.Config().Listen))
	if err != nil {
		return nil, cannotListen(s.Config().Listen, err, "--port or listen:, or port 0 for any free one")
	}
	return l, nil
}

// cannotListen returns the error of an address. other says how to choose another address.
func cannotListen(at string, err error, other string) error {
	if reason, ok := errors.AsType[syscall.Errno](err); ok { // without the library's words around the reason
		err = reason
	}
	return fmt.Errorf("cannot listen on %s: %w: choose another address with %s", at, err, other)
}

func (s *server) Serve(ctx context.Context, l net.Listener) error {
	err := s.fault
	if err == nil {
		err = s.listenForOperators(ctx) // l may not come from Listen
	}
	if err != nil {
		_ = l.Close()
		s.Close(ctx)
		return err
	}
	if s.instance != nil {
		if err := s.instance.begin(ctx); err != nil {
			_ = l.Close()
			s.Close(ctx)
			return err
		}
	}
	if s.reloader != nil {
		following, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { s.reloader.Follow(following) })
		defer wg.Wait()
		defer stop()
	}
	s.follow()
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watchMemory(watching, totalMemory(), health.Usage) })
	defer watch.Wait()
	defer unwatch()
	failed := make(chan error, 2)
	door := newBacklog(l)
	go func() { failed <- s.serve(door) }()
	if s.operators != nil {
		go func() { failed <- s.serve(s.operators) }()
	}
	if !s.Config().NoAhead {
		s.g.StartAhead()
	}
	joined, stop := s.awaitJoined(ctx)
	defer joined.Wait()
	defer stop()
	select {
	case err := <-failed:
		s.Close(context.Background())
		return s.ended(err, failed)
	case <-ctx.Done():
	}
	s.log.Info("stopping", "drain", s.Config().Drain.String())
	drain, cancel := context.WithTimeout(context.Background(), s.Config().Drain)
	others := &sync.WaitGroup{}
	if s.instance != nil {
		others = s.instance.leave(drain, s)
		s.clients.awaitIdle(drain, lastRequests)
		s.finish(closeLimit, door) // calls are refused only after that
	}
	if err := s.g.Drain(drain); err != nil {
		s.log.Warn("calls were still in flight after the time to drain")
	}
	others.Wait()
	if s.instance != nil {
		_ = s.http.Shutdown(drain) // answers that other instances send through this one
	}
	cancel()
	s.Close(context.Background())
	if err := s.ended(<-failed, failed); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// awaitJoined closes s.serving when clients are served: in a cluster, after this instance has joined.
func (s *server) awaitJoined(ctx context.Context) (wait *sync.WaitGroup, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	wait = &sync.WaitGroup{}
	if s.instance == nil {
		s.serveOnce.Do(func() { close(s.serving) })
		return wait, stop
	}
	wait.Go(func() {
		select {
		case <-s.instance.node.Joined():
			s.serveOnce.Do(func() { close(s.serving) })
		case <-ctx.Done():
		}
	})
	return wait, stop
}

func (s *server) Serving() <-chan struct{} { return s.serving }

// finish accepts the connections of the backlog and no others, and waits for their responses. finish waits at most
// for the duration most.
func (s *server) finish(most time.Duration, door *backlogListener) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	door.Finish(ctx)
	_ = s.http.Shutdown(ctx) // Serve waits for the other responses
}

// serve serves on l, with TLS if that is configured.
func (s *server) serve(l net.Listener) error {
	if s.clients.most < s.Config().MaxConnections && l != s.operators { // logged once
		s.log.Debug("max_connections is lowered to half of the files that the process may open (ulimit -n)", "max_connections", s.clients.most)
	}
	counted := bounded{l, s.clients}
	if l == s.operators { // clients cannot use up the connections of operators
		counted.c = newConnections(operatorConnections, s.access.Keyed(), s.access.Proxy, s.log)
	}
	if s.cert == nil {
		return s.http.Serve(counted)
	}
	if s.cert.current.Load() == nil { // l does not come from Listen
		if err := s.cert.load(); err != nil {
			_ = l.Close()
			return fmt.Errorf("tls: %w", err)
		}
	}
	return s.http.ServeTLS(counted, "", "")
}

// closeLimit bounds the time for responses after the bridge closed, and again the time for writing the access log.
const closeLimit = 2 * time.Second

// lastRequests limits the time in which an instance that stops waits for another request on open
// connections. Each connection is closed with its answer.
const lastRequests = time.Second

// patience returns how long sessions and connections may take to close before they are forced to. Children of
// sessions stop first, and shared ones after them: both may take their stop_stdin and stop_term.
func (s *server) patience() time.Duration {
	var most time.Duration
	for _, one := range s.Config().Servers {
		if one.Stdio != nil {
			most = max(most, one.Stdio.StopStdin+one.Stdio.StopTerm)
		}
	}
	return 2*most + 5*time.Second
}

func (s *server) Close(ctx context.Context) {
	s.access.Stop()
	s.timeline.close()
	defer s.calls.Close()
	defer s.events.Close()
	within, cancel := context.WithTimeout(ctx, s.patience())
	if s.instance != nil {
		s.instance.homes.CloseTunnels(within)
	}
	s.g.Close(within)
	cancel()
	s.sse.Close()
	s.streamable.Close()
	if s.instance != nil { // other instances must learn that this one leaves, even if ctx has ended
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.patience())
		s.instance.close(within)
		cancel()
	}
	for _, b := range s.table.Load().backends {
		if b.close != nil {
			b.close()
		}
	}
	answers, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := s.http.Shutdown(answers); err != nil {
		_ = s.http.Close() // the remaining clients do not read
	}
	if s.operators != nil {
		_ = s.operators.Close() // in case Serve was never called
	}
	s.access.Close()
	if l := s.accessLog.Load(); l != nil {
		s.end(l)
	}
}

// end closes an access log. end has its own time limit, because clients may have used up the limit of Close.
func (s *server) end(l *accesslog.Log) {
	lines, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	l.Close(lines.Done())
}
