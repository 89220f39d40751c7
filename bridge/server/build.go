package server

import (
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/accesslog"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin/console"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	wire "github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/logs"
)

func build(c *config.Config, log *slog.Logger, reach backendMaker) *server {
	return buildOn(c, log, reach, (*server).onRedis)
}

// buildOn is build with a function that makes the backing of a cluster.
func buildOn(c *config.Config, log *slog.Logger, reach backendMaker, backs func(s *server, id string, life time.Duration) (*backing, error)) *server {
	lines := logs.New()
	s := &server{
		log:        slog.New(lines.Handler(log.Handler())),
		reacher:    reach,
		newBacking: backs,
		began:      time.Now(),
		leaving:    map[string]int{},
		times:      times{},
		noHook:     newHook(rand.Text(), nil),
		listeners:  listeners{serving: make(chan struct{})},
		operating:  operating{logs: lines, calls: calls.New()},
	}
	s.conf.Store(c)
	var err error
	if c.Cluster.Enabled() {
		s.instance, err = s.newInstance()
		s.fail(err)
	}
	s.access, err = s.newAccess()
	s.fail(err)
	s.table.Store(&table{})
	now, fresh := s.tableOf(slices.Clone(c.Servers), nil)
	s.fail(now.documentFaults(c, fresh))
	s.table.Store(now)
	s.observe(c)
	o := s.gatewayOptions(c)
	o.Servers = fresh
	s.g = gateway.New(o)
	s.operate()
	if c.TLS.CertFile != "" {
		s.cert = &certificate{files: c.TLS, log: s.log}
	}
	s.measure()
	s.serveMCP(c)
	if s.instance != nil {
		s.instance.join(s)
	}
	s.access.Start()
	s.serveHTTP(c)
	return s
}

// fail records the reason that the bridge cannot serve the configuration, unless err is nil.
func (s *server) fail(err error) {
	if err != nil {
		s.fault = err
	}
}

func (s *server) newAccess() (*access.Access, error) {
	o := access.Options{
		Bridge: s,
		Log:    s.log,
	}
	if s.instance != nil {
		o.Store = s.instance.kept.values
	}
	return access.New(o)
}

// gatewayOptions returns the options of the gateway without its servers.
func (s *server) gatewayOptions(c *config.Config) gateway.Options {
	o := gateway.Options{
		Common:   c.Common,
		Log:      s.log,
		Version:  Version(),
		Sessions: session.NewMemory(c.MaxSessions),
		MaxBytes: int64(c.MaxInFlight),
		MaxLanes: c.MaxChildren,
		Grants:   s.access.Grants().All(),
		Watch:    s.watch,
		Calls:    s.calls,
		Client:   s.access.ClientOf,
		Traces:   c.Traces,
		Offer:    c.Offer,
		Groups:   c.GatewayGroups(),
	}
	if c.Meters != nil {
		o.Sent = func(r report.Report) { s.metrics.Sent(&r) }
		o.SessionEnded = func(p report.Session) { s.metrics.SessionEnded(&p) }
		o.ConnectionEnded = func(p report.Session) { s.metrics.ConnectionEnded(&p) }
	}
	if i := s.instance; i != nil {
		o.Sessions, o.Front = i.node, wire.Front
		o.Cluster = bridge.Cluster{
			Instance: i.id,
			Places:   i.homes,
			Owners:   i.kept.tasks,
			Secrets:  c.Cluster.Keys(),
		}
	}
	return o
}

// observe makes the metrics, the timeline and the access log.
func (s *server) observe(c *config.Config) {
	s.metrics = metrics.New(Version())
	s.metrics.Set(s.table.Load().names())
	s.timeline = newTimeline(s.metrics)
	if c.Meters != nil {
		s.fail(s.metrics.Export(c.Meters, Version()))
	}
	written, err := accesslog.Open(c.AccessLog, s.instance.tag(), s.log)
	if err != nil {
		s.fail(err)
		s.log.Error("the access log cannot be opened", "err", err)
	}
	s.accessLog.Store(written)
}

func (s *server) operate() {
	s.calls.Traffic.Mask, s.calls.Keeps = accesslog.Redact, func() bool { return s.Config().Console == config.ConsolePayloads }
	acts := &admin.Operator{
		Bridge: s.g,
		Calls:  s.calls,
		Logs:   s.logs,
		States: s,
	}
	s.events = &admin.Events{Operator: acts}
	s.pages, s.page = admin.NewPages(s), console.Handler()
	s.actions = s.newAPI()
	s.actions.Add(append(acts.Routes(), s.events.Routes()...)...)
}

// measure adds the state of the bridge to the metrics.
func (s *server) measure() {
	b := metrics.Bridge{Counts: s, Door: s.access.Door()}
	if s.instance != nil {
		b.Cluster, b.Workers = s.instance.node, s.instance.workers
	}
	if s.cert != nil {
		b.Certificate = s.cert
	}
	s.metrics.AddBridge(b)
}

// serveMCP makes the downstream halves of the transports.
func (s *server) serveMCP(c *config.Config) {
	so := streamable.Options{
		Log:        s.log,
		MaxMessage: int(c.MaxMessage),
		Heartbeat:  c.Heartbeat,
		Tag:        s.instance.tag(),
	}
	eo := sse.Options{
		Log:        s.log,
		MaxMessage: int(c.MaxMessage),
		MaxStreams: c.MaxSessions,
		MaxEach:    c.PerPrincipal.Sessions,
		Heartbeat:  c.Heartbeat,
		Tag:        s.instance.tag(),
	}
	if i := s.instance; i != nil {
		so.Elsewhere, eo.Elsewhere = i.peers, i.peers
		so.Copies = i.copies
	}
	if s.access.Door().Tokens() {
		so.Screen, eo.Screen = s.access.Screen, s.access.Screen
	}
	s.streamable, s.sse = streamable.New(s.g, so), sse.New(s.g, eo)
}

// serveHTTP makes the HTTP server, and bounds the connections of its clients.
func (s *server) serveHTTP(c *config.Config) {
	s.http = &http.Server{
		Handler:           s.treeAt(c.BasePath),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		// One limit for all: the caller is known only after the headers are read. Node's HTTP
		// server has the same limit.
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // faults of clients
		BaseContext:    s.base,
	}
	if s.access.Keyed() {
		s.http.ConnContext = withClient
	}
	if s.access.Keyed() || s.instance != nil {
		s.http.ConnState = func(c net.Conn, state http.ConnState) {
			if client := clientOf(c); client != nil {
				client.countIdle(state)
				if s.access.Keyed() {
					client.limitIdle(state)
				}
			}
		}
	}
	s.clients = newConnections(c.MaxConnections, s.access.Keyed(), s.access.Proxy, s.log)
	if s.cert != nil {
		s.http.TLSConfig, s.http.Protocols = s.cert.config(), protocols(runtime.Version(), s.log)
	}
}
