// Package server serves a bridge over HTTP: the MCP endpoints of its servers,
// and what operators ask.
//
// For a server NAME there are /NAME/mcp (Streamable HTTP), /NAME/sse and
// /NAME/messages (HTTP+SSE). The same without /NAME is all servers as one. Where
// it is configured, POST /hooks/NAME announces that a server's tools have
// changed. /healthz, /readyz and /metrics are for operators.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin/console"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// Server is a bridge and the HTTP server in front of it.
type Server struct {
	conf       atomic.Pointer[config.Config] // what counts now; it is not changed
	log        *slog.Logger
	reacher    reacher
	backs      func(s *Server, id string, life time.Duration) (*backing, error)
	now        atomic.Pointer[table]
	changing   sync.Mutex // held while conf and now are exchanged
	times      times
	leaving    map[string]int // servers that are in use although others have their place, or none; guarded by changing
	b          *gateway.Gateway
	streamable *streamable.Downstream
	sse        *sse.Downstream
	access     *access.Access // who comes in, and what that one may do
	anyHook    *hook          // in place of one that is not there: nobody knows its secret
	metrics    *metrics.Metrics
	calllog    atomic.Pointer[accesslog.Log] // the access log; nil when there is none
	lost       atomic.Uint64                 // lines of access logs that there were before
	fault      error                         // why the bridge cannot be served as it is configured
	listeners
	operating
	began    time.Time
	instance *instance // nil when it is the only one
}

// listeners is how clients and operators are served: on which listeners, and how many.
type listeners struct {
	http      *http.Server
	serving   chan struct{} // closed when clients are served
	served    sync.Once     // closes it
	operators net.Listener  // of console_listen; nil without it, or when nobody listens yet
	clients   *connections
	cert      *certificate // nil without TLS
}

// operating is what operators see and do.
type operating struct {
	reloader *reload.Reloader // nil when nobody reads the configuration again
	actions  *admin.API
	events   *admin.Events
	page     http.Handler
	pages    *admin.Pages // on which somebody has signed in
	calls    *calls.Calls // of clients, for those who look
	logs     *logs.Log
	drained  atomic.Pointer[drained] // by an operator; nil if it is not
}

// New builds everything that the configuration names. It starts nothing but
// the bridge itself: Close ends that, also when Serve was never called. A server
// that cannot be used as it is configured keeps nothing else from working.
func New(c *config.Config, log *slog.Logger) *Server { return build(c, log, (*Server).reach) }

func build(c *config.Config, log *slog.Logger, reach reacher) *Server {
	return buildOn(c, log, reach, (*Server).onRedis)
}

// buildOn is build with what the instances of a cluster have in common.
func buildOn(c *config.Config, log *slog.Logger, reach reacher, backs func(s *Server, id string, life time.Duration) (*backing, error)) *Server {
	lines := logs.New()
	log = slog.New(lines.Handler(log.Handler()))
	s := &Server{
		log:       log,
		reacher:   reach,
		backs:     backs,
		began:     time.Now(),
		leaving:   map[string]int{},
		times:     times{},
		anyHook:   newHook(rand.Text(), nil),
		listeners: listeners{serving: make(chan struct{})},
		operating: operating{logs: lines, calls: calls.New()},
	}
	s.conf.Store(c)
	s.actions, s.page = s.newAPI(), console.Handler()
	var err error
	s.pages = admin.NewPages(func(sum auth.Sum) (string, bool) { return s.access.Door().Holder(sum) }, s.pagePath)
	var sessions session.Keeper = session.NewMemory(c.MaxSessions)
	var tag string
	var elsewhere *wire.Peers
	if c.Cluster.Enabled() {
		if s.instance, err = s.newInstance(); err != nil {
			s.fault = err
		} else {
			sessions, tag, elsewhere = s.instance.node, s.instance.tag(), s.instance.peers
		}
	}
	if s.access, err = s.newAccess(); err != nil {
		s.fault = err
	}
	o := gateway.Options{
		Log: log, Version: Version(), Sessions: sessions, SessionIdle: c.SessionIdle, SessionLeft: c.SessionLeft,
		MaxBytes: int64(c.MaxInFlight), MaxLanes: c.MaxChildren, Grants: s.access.Grants().All(), PerPrincipal: c.PerPrincipal,
		Watch: s.watch, Calls: s.calls, Traces: c.Traces, Offer: gateway.Offer(c.Offer),
	}
	if s.instance != nil {
		o.Cluster = bridge.Cluster{Instance: s.instance.id, Places: s.instance.homes, Owners: s.instance.kept.tasks, Secrets: c.Cluster.Keys()}
	}
	s.now.Store(&table{})
	now, fresh := s.tableOf(slices.Clone(c.Servers), nil)
	o.Servers = fresh
	if err := now.mistakes(c, fresh); err != nil {
		s.fault = err
	}
	if elsewhere != nil {
		o.Front = wire.Front
	}
	s.now.Store(now)
	s.metrics = metrics.New(Version())
	s.metrics.Set(now.names())
	written, err := accesslog.Open(c.AccessLog, tag, log)
	if err != nil {
		s.fault = err
		log.Error("there is no access log", "err", err)
	}
	s.calllog.Store(written)
	s.b = gateway.New(o)
	acts := &admin.Operator{Bridge: s.b, Calls: s.calls, Logs: s.logs, State: func(name string) (any, error) { return s.stateOf(name) }}
	s.calls.Traffic.Mask, s.calls.Keeps = accesslog.Redact, func() bool { return s.c().Console == config.ConsolePayloads }
	s.events = &admin.Events{
		Operator: acts, Overview: func(c *admin.Caller) admin.Overview { return s.overview(c) }, Alone: !s.access.Keyed(),
		Heartbeat: func() time.Duration { return s.c().Heartbeat }, Payloads: s.calls.Keeps,
		Most: func() int { return s.c().ConsoleStreams },
	}
	s.actions.Add(append(acts.Routes(), s.events.Routes()...)...)
	s.measure()
	so := streamable.Options{Log: log, MaxMessage: int(c.MaxMessage), Heartbeat: c.Heartbeat, Tag: tag}
	eo := sse.Options{Log: log, MaxMessage: int(c.MaxMessage), MaxStreams: c.MaxSessions, MaxEach: c.PerPrincipal.Sessions, Heartbeat: c.Heartbeat, Tag: tag}
	if elsewhere != nil {
		so.Elsewhere, eo.Elsewhere = elsewhere, elsewhere
		so.Copies = s.instance.copies
	}
	if s.access.Door().Tokens() {
		so.Screen, eo.Screen = s.access.Screen, s.access.Screen
	}
	s.streamable, s.sse = streamable.New(s.b, so), sse.New(s.b, eo)
	s.access.Start()
	s.http = &http.Server{
		Handler:           s.treeAt(c.BasePath),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		// It has to be one number for all: who asks is known when the header has been
		// read. As much is what node's HTTP server takes.
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients' slips, not ours
		BaseContext:    s.base,
	}
	if s.access.Keyed() {
		s.http.ConnContext = withClient
	}
	if s.access.Keyed() || s.instance != nil {
		s.http.ConnState = func(c net.Conn, state http.ConnState) {
			if client := clientOf(c); client != nil {
				client.follow(state)
				if s.access.Keyed() {
					client.heed(state)
				}
			}
		}
	}
	s.clients = newConnections(c.MaxConnections, s.access.Proxy, log)
	if c.TLS.CertFile != "" {
		s.cert = &certificate{files: c.TLS, log: log}
		s.http.TLSConfig, s.http.Protocols = s.cert.config(), protocols(runtime.Version(), log)
	}
	return s
}

// newAccess makes what says who a caller is and what it may do.
func (s *Server) newAccess() (*access.Access, error) {
	o := access.Options{
		Config: s.c, Log: s.log,
		Servers: func() []string { return s.b.Servers() },
		Has:     func(server string) bool { return s.now.Load().reached[server] != nil },
		Allowed: func(server, principal string) error { return s.b.Allowed(server, principal) },
		Heed: func(principal string, good bool) {
			if good {
				s.b.Restore(principal)
				return
			}
			s.b.Revoke(principal)
			s.sse.Revoke(principal)
		},
		Known: shown,
	}
	if s.instance != nil {
		o.Store = s.instance.kept.values
	}
	return access.New(o)
}

// c returns the configuration that counts now. It is not to be changed.
func (s *Server) c() *config.Config { return s.conf.Load() }

// watch takes what became of a request.
func (s *Server) watch(p report.Report) {
	s.metrics.Take(&p)
	s.calls.Take(&p)
	s.note(func(l *accesslog.Log) bool { return l.Take(&p) })
}

// note has a line written to the access log, if there is one. take reports false when
// that one is closed, and the line belongs to the one in its place.
func (s *Server) note(take func(*accesslog.Log) bool) {
	for l := s.calllog.Load(); l != nil && !take(l); {
		next := s.calllog.Load()
		if next == l {
			return // the bridge has ended
		}
		l = next
	}
}

// measure has the metrics show the state of the bridge.
func (s *Server) measure() {
	b := metrics.Bridge{
		Totals: s.b.Totals, Status: s.b.Status,
		Ready: func(all []gateway.Status) bool {
			why, _ := s.unready(all)
			return why == ""
		},
		Stdio: func(server string) bool {
			return s.transport(server) == transportStdio
		},
		Refused: func() uint64 { return s.clients.refused.Load() },
	}
	b.LogLost = func() uint64 {
		n := s.lost.Load()
		if l := s.calllog.Load(); l != nil {
			n += l.Lost()
		}
		return n
	}
	if s.instance != nil {
		b.Cluster, b.Workers = s.instance.node, s.instance.workers.Status
	}
	if door := s.access.Door(); door.Tokens() {
		b.Door = door
	}
	s.metrics.Ask(b)
}

// options makes a server's options of its configuration.
func options(c *config.Server, r reached) gateway.ServerOptions {
	o := gateway.ServerOptions{
		Name: c.Name, Share: gateway.Share(c.Share), Offer: gateway.Offer(c.Offer), EndWithServer: !c.Restart, Idle: c.IdleStop,
		Handshake: c.HandshakeTimeout, Restarts: c.StartsPerMinute, MaxPause: c.RestartMaxPause, MaxLanes: c.MaxChildren,
		Prefix: c.Prefix, Filter: filter.Options{Tools: c.Tools, Prompts: c.Prompts, Resources: c.Resources},
		Ping: c.Ping, MaxTask: c.MaxTimeout, Forward: c.Forwards(), Adapter: r.Adapter, Check: r.check,
		Validate: c.Validate && c.Rest == nil,
		Process:  c.Stdio != nil,
		Homed:    c.Rest == nil && c.Adapter == nil,
		Cache:    c.Cache, Breaker: c.Breaker, Limits: c.Limits, Retry: c.Retry,
	}
	o.Idle = cmp.Or(o.Idle, -1) // never: the configuration has filled in its default
	return o
}

// version is set by the linker where a release is built, which knows no version
// control: -X github.com/mcp-bridge/bridge/bridge/server.version=v1.2.3.
var version string

// Version returns the version of the program, as its build says it.
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

// Fault tells why the bridge cannot be served as it is configured; nil if it can. Listen
// and Serve return it.
func (s *Server) Fault() error { return s.fault }

// Activity returns how many calls of clients are under way, and how many there
// have been.
func (s *Server) Activity() (now int, all uint64) { return s.b.Activity() }

// Status is the state of a server.
type Status = gateway.Status

// Whoami is what the bridge makes of the key or the token that a request shows: the answer
// of GET /whoami.
type Whoami = access.Whoami

// Status returns the state of each server, in the order of the configuration.
func (s *Server) Status() []Status { return s.b.Status() }

// ServeStdio serves one client on in and out, which a program passes os.Stdin and
// os.Stdout: as desktop clients start servers. Nothing else may be written to out.
// The empty name means all servers as one. It returns when the client has left, or
// ctx has ended; Close ends the rest. Where ctx has a principal (WithPrincipal), that
// is who the client is.
func (s *Server) ServeStdio(ctx context.Context, server string, in io.Reader, out io.Writer) error {
	return stdio.Serve(ctx, s.b, server, in, out, stdio.DownstreamOptions{Log: s.log, MaxMessage: int(s.c().MaxMessage), Principal: auth.Principal(ctx)})
}

// WithPrincipal returns the context of a request whose caller is known to the
// program. The program puts it into the requests that it passes to Handler. What
// callers have is kept apart by that name: sessions, connections that are shared by
// principal, lists that are kept, quotas. A configuration with Access goes by its
// keys instead.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return auth.WithPrincipal(ctx, name)
}

// Listen opens the configured address, and that of console_listen if there is one, which
// Serve serves beside it. With TLS, a certificate that cannot be used is an error.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
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
	l, err := lc.Listen(ctx, "tcp", config.Address(s.c().Listen))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w (choose another address with --listen or listen:, port 0 picks a free one)", s.c().Listen, err)
	}
	return l, nil
}

// Serve serves on l until ctx ends. Then it refuses new calls, lets those under
// way finish for as long as the configuration allows, and stops everything.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	err := s.fault
	if err == nil {
		err = s.listenForOperators(ctx) // the listener is somebody else's
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
	watching, unwatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watchMemory(watching, machine(), health.Usage) })
	defer watch.Wait()
	defer unwatch()
	failed := make(chan error, 2)
	door := newBacklog(l)
	go func() { failed <- s.serve(door) }()
	if s.operators != nil {
		go func() { failed <- s.serve(s.operators) }()
	}
	s.b.StartAhead()
	joined, stop := s.begun(ctx)
	defer joined.Wait()
	defer stop()
	select {
	case err := <-failed:
		s.Close(context.Background())
		return s.ended(err, failed)
	case <-ctx.Done():
	}
	s.log.Info("stopping", "drain", s.c().Drain.String())
	drain, cancel := context.WithTimeout(context.Background(), s.c().Drain)
	others := &sync.WaitGroup{}
	if s.instance != nil {
		others = s.instance.leave(drain, s)
		s.clients.quiet(drain, lastRequests)
		s.shut(closeLimit, door) // only then are calls refused
	}
	if err := s.b.Drain(drain); err != nil {
		s.log.Warn("calls were still under way after the time to drain")
	}
	others.Wait()
	if s.instance != nil {
		_ = s.http.Shutdown(drain) // what other instances still answer by this one
	}
	cancel()
	s.Close(context.Background())
	if err := s.ended(<-failed, failed); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// begun closes s.serving when clients are served: where there are several instances, when
// this one has joined the others.
func (s *Server) begun(ctx context.Context) (wait *sync.WaitGroup, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	wait = &sync.WaitGroup{}
	if s.instance == nil {
		s.served.Do(func() { close(s.serving) })
		return wait, stop
	}
	wait.Go(func() {
		select {
		case <-s.instance.node.Joined():
			s.served.Do(func() { close(s.serving) })
		case <-ctx.Done():
		}
	})
	return wait, stop
}

// Serving returns what is closed when Serve has begun to serve clients. One of several
// instances has joined the others by then: before, clients are turned away.
func (s *Server) Serving() <-chan struct{} { return s.serving }

// shut takes no connections any more but those that wait to be accepted, and waits for
// responses, for as long at most.
func (s *Server) shut(most time.Duration, door *backlogListener) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	door.Finish(ctx)
	_ = s.http.Shutdown(ctx) // the others are waited for elsewhere
}

// serve serves on l, encrypted if that is configured.
func (s *Server) serve(l net.Listener) error {
	if s.clients.most < s.c().MaxConnections && l != s.operators { // once
		s.log.Debug("max_connections is lowered to half of the files that the process may open (ulimit -n)", "max_connections", s.clients.most)
	}
	counted := bounded{l, s.clients}
	if l == s.operators { // clients cannot take their places
		counted.c = newConnections(operatorConnections, s.access.Proxy, s.log)
	}
	if s.cert == nil {
		return s.http.Serve(counted)
	}
	if s.cert.current.Load() == nil { // a listener of somebody else's
		if err := s.cert.load(); err != nil {
			_ = l.Close()
			return fmt.Errorf("tls: %w", err)
		}
	}
	return s.http.ServeTLS(counted, "", "")
}

// closeLimit bounds how long responses may take to end once the bridge has
// closed, and how long the access log may after that.
const closeLimit = 2 * time.Second

// lastRequests is how long an instance that goes waits for another request on connections
// that are open: each ends with its answer.
const lastRequests = time.Second

// Close stops everything at once: sessions, children, connections.
func (s *Server) Close(ctx context.Context) {
	s.access.Stop()
	defer s.logs.Close()
	defer s.calls.Close()
	defer s.events.Close()
	if s.instance != nil {
		s.instance.homes.CloseLanes(ctx)
	}
	s.b.Close(ctx)
	s.sse.Close()
	s.streamable.Close()
	if s.instance != nil {
		s.instance.close(context.WithoutCancel(ctx))
	}
	for _, r := range s.now.Load().reached {
		if r.close != nil {
			r.close()
		}
	}
	answers, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := s.http.Shutdown(answers); err != nil {
		_ = s.http.Close() // what is left are clients that do not read
	}
	if s.operators != nil {
		_ = s.operators.Close() // if it was never served
	}
	s.access.Close()
	if l := s.calllog.Load(); l != nil {
		s.end(l)
	}
}

// end closes an access log. It has time of its own: a client may have used up all other.
func (s *Server) end(l *accesslog.Log) {
	lines, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	l.Close(lines.Done())
}
