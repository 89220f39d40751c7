package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Bridge has the parts of the bridge that are read with the metrics.
type Bridge struct {
	Counts      Counts
	Certificate Certificate         // nil without TLS
	Cluster     *cluster.Node       // this instance of a cluster; nil for a single instance
	Workers     Workers             // nil for a single instance
	Door        *auth.Authenticator // nil without access rules
}

// Counts has the counters and the states of the bridge.
type Counts interface {
	Totals() gateway.Totals
	Status() []gateway.Status
	// ReadyWith reports whether the bridge is ready with servers in these states.
	ReadyWith([]gateway.Status) bool
	// OnStdio reports whether the connections to a server are child processes.
	OnStdio(server string) bool
	// Refused returns the number of refused connections of clients.
	Refused() uint64
	// LogLost returns the number of lost lines of the access log.
	LogLost() uint64
}

// Certificate is the certificate of the bridge.
type Certificate interface {
	// Good returns the end of the certificate in use, and whether its files were good when they were last read.
	Good() (until time.Time, good bool)
}

// Workers has the state of the cluster's workers.
type Workers interface {
	Status() placement.WorkerStatus
}

// AddBridge adds the metrics that are read from the bridge.
func (m *Metrics) AddBridge(b Bridge) {
	m.registry.MustRegister(newGauges(b))
	if b.Workers != nil {
		m.registry.MustRegister(newWorkers(b.Workers))
	}
	if b.Door != nil {
		m.registry.MustRegister(identity{b.Door})
	}
}

// AddConfig adds the metrics of reloading the configuration.
func (m *Metrics) AddConfig(counts func() reload.Counts) {
	total := func(outcome string, of func(reload.Counts) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "mcp_bridge_config_reloads_total", Help: "How often the configuration was reloaded, by outcome.",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		}, func() float64 { return float64(of(counts())) })
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcp_bridge_config_last_reload_successful", Help: "Whether the last reload of the configuration succeeded.",
		}, func() float64 { return truth(counts().Good) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcp_bridge_config_last_reload_success_timestamp_seconds", Help: "When the current configuration was read.",
		}, func() float64 { return float64(counts().At.UnixMilli()) / 1000 }),
		total("ok", func(c reload.Counts) uint64 { return c.Succeeded }), total("fault", func(c reload.Counts) uint64 { return c.Faulty }),
	)
}

// gauges collects the metrics that are read from the bridge.
type gauges struct {
	b        Bridge
	whole    []wholeGauge
	each     []eachGauge
	children *prometheus.Desc
	sessions *prometheus.Desc
	refused  *prometheus.Desc
	cached   *prometheus.Desc
	breaker  *prometheus.Desc
	instance *prometheus.Desc // nil for a single instance
}

// wholeGauge is a metric of the bridge as a whole.
type wholeGauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*overview) float64
}

// overview is the state of the bridge as a whole.
type overview struct {
	gateway.Totals
	ready bool
}

// eachGauge is a metric of each server.
type eachGauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*gateway.Status) float64
}

var _ prometheus.Collector = (*gauges)(nil)

func newGauges(b Bridge) *gauges {
	g := &gauges{b: b}
	g.breaker = prometheus.NewDesc("mcp_bridge_circuit_breaker_state", "1 for the current state of the circuit breaker of a server: closed, open (calls are refused) or half-open (the server is probed).", []string{"server", "state"}, nil)
	g.cached = prometheus.NewDesc("mcp_bridge_cache_requests_total", "Requests for lists, by result: answered from the cache (hit), by the server (miss), with the answer to another request (joined), or with an old list because the server is not available (stale).", []string{"server", "result"}, nil)
	g.refused = prometheus.NewDesc("mcp_bridge_refused_total", "Requests that a limit of the server refused, by limit. Without a server: a limit of one caller, one address or the whole bridge.", []string{"server", "limit"}, nil)
	g.sessions = prometheus.NewDesc("mcp_bridge_sessions", "Sessions. Without a server: those of all servers as one.", []string{"server"}, nil)
	g.children = prometheus.NewDesc("mcp_bridge_children", "Child processes of a server on stdio that run or are starting.", []string{"server"}, nil)
	whole := func(name, help string, kind prometheus.ValueType, value func(*overview) float64) {
		g.whole = append(g.whole, wholeGauge{prometheus.NewDesc("mcp_bridge_"+name, help, nil, nil), kind, value})
	}
	each := func(name, help string, kind prometheus.ValueType, value func(*gateway.Status) float64) {
		g.each = append(g.each, eachGauge{prometheus.NewDesc("mcp_bridge_"+name, help, []string{"server"}, nil), kind, value})
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	whole("ready", "Whether /readyz answers 200.", gauge, func(o *overview) float64 { return truth(o.ready) })
	whole("requests_in_flight", "Requests of clients in flight, without subscriptions.", gauge, func(o *overview) float64 { return float64(o.Calls) })
	whole("stateless_requests_in_flight", "Requests in flight of clients without sessions.", gauge, func(o *overview) float64 { return float64(o.Stateless) })
	whole("subscriptions", "Subscriptions of clients without sessions.", gauge, func(o *overview) float64 { return float64(o.Subscriptions) })
	whole("in_flight_bytes", "Size of the messages of clients in flight.", gauge, func(o *overview) float64 { return float64(o.Bytes) })
	whole("in_flight_limit_bytes", "The limit of in_flight_bytes.", gauge, func(o *overview) float64 { return float64(o.MaxBytes) })
	whole("notifications_dropped_total", "Notifications that were dropped because too many waited for their client or server.", counter, func(o *overview) float64 { return float64(o.Dropped) })
	each("server_up", "Whether the server works, or has not been tried.", gauge, func(st *gateway.Status) float64 { return truth(st.State != gateway.Failing) })
	each("calls_in_flight", "Requests of the server in flight, with subscriptions.", gauge, func(st *gateway.Status) float64 { return float64(st.Calls) })
	each("circuit_breaker_opened_total", "How often the circuit breaker of the server opened.", counter, func(st *gateway.Status) float64 { return float64(st.Trips) })
	each("cache_entries", "Answers of the server in the cache.", gauge, func(st *gateway.Status) float64 { return float64(st.Cache.Entries) })
	each("cache_bytes", "Size of the cache of the server.", gauge, func(st *gateway.Status) float64 { return float64(st.Cache.Bytes) })
	each("cache_stale", "Whether the cache serves old lists, because the server is not available.", gauge, func(st *gateway.Status) float64 { return truth(st.Cache.Stale) })
	each("queue_length", "Calls that wait because of the limit of calls in flight (limits: calls).", gauge, func(st *gateway.Status) float64 { return float64(st.Queued) })
	each("parked_calls", "Calls that wait for clients without sessions to come back with answers.", gauge, func(st *gateway.Status) float64 { return float64(st.Parked) })
	each("connections", "Connections that are open or opening.", gauge, func(st *gateway.Status) float64 { return float64(st.Lanes) })
	each("connections_opened_total", "Connections that were opened.", counter, func(st *gateway.Status) float64 { return float64(st.Opened) })
	each("connections_lost_total", "Connections that ended by themselves.", counter, func(st *gateway.Status) float64 { return float64(st.Losses) })
	each("restarts_total", "Attempts to reopen a connection that was lost, or that could not be opened.", counter, func(st *gateway.Status) float64 { return float64(st.Restarts) })
	each("server_failures_total", "How often a connection could not be opened, or the server was unreachable.", counter, func(st *gateway.Status) float64 { return float64(st.Failures) })
	whole("access_log_lines_lost_total", "Lines of the access log that could not be written.", counter, func(*overview) float64 { return float64(b.Counts.LogLost()) })
	if b.Certificate != nil {
		whole("tls_certificate_expiry_timestamp_seconds", "When the certificate in use ends.", gauge, func(*overview) float64 {
			until, _ := b.Certificate.Good()
			return float64(until.Unix())
		})
		whole("tls_certificate_last_reload_successful", "Whether the files of the certificate were good when they were last read.", gauge, func(*overview) float64 {
			_, good := b.Certificate.Good()
			return truth(good)
		})
	}
	if b.Cluster != nil {
		c := b.Cluster.Counts()
		g.instance = prometheus.NewDesc("mcp_bridge_cluster_state", "1 for the current state of this instance: sure, frozen (no instance reaches the store) or isolated (this one does not).", []string{"state"}, nil)
		whole("cluster_members", "Live instances, as this one sees them.", gauge, func(*overview) float64 { return float64(len(b.Cluster.Members())) })
		whole("cluster_members_unreached", "Live instances that this one could not reach the last time.", gauge, func(*overview) float64 { return float64(b.Cluster.UnreachedCount()) })
		whole("cluster_store_seconds", "How long the store took for the last heartbeat that it answered.", gauge, func(*overview) float64 { return b.Cluster.BeatTook().Seconds() })
		whole("cluster_requests_forwarded_total", "Requests that were forwarded to the instance of their session.", counter, func(*overview) float64 { return float64(c.Forwarded.Load()) })
		whole("cluster_requests_refused_total", "Requests that were refused because the instance of their session is unreachable.", counter, func(*overview) float64 { return float64(c.Refused.Load()) })
		whole("cluster_sessions_taken_over_total", "Sessions that this instance took over from others.", counter, func(*overview) float64 { return float64(c.Taken.Load()) })
		whole("cluster_sessions_lost_total", "Sessions that others took over while this instance was unreachable.", counter, func(*overview) float64 { return float64(c.Lost.Load()) })
	}
	return g
}

// breakerStates are the states of a circuit breaker that is not off.
var breakerStates = []string{"closed", "open", "half-open"}

const breakerOff = "off"

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, w := range g.whole {
		to <- w.desc
	}
	for _, e := range g.each {
		to <- e.desc
	}
	to <- g.children
	to <- g.sessions
	to <- g.refused
	to <- g.cached
	to <- g.breaker
	if g.instance != nil {
		to <- g.instance
	}
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	totals, servers := g.b.Counts.Totals(), g.b.Counts.Status()
	all := overview{totals, g.b.Counts.ReadyWith(servers)}
	for _, w := range g.whole {
		to <- prometheus.MustNewConstMetric(w.desc, w.kind, w.value(&all))
	}
	to <- prometheus.MustNewConstMetric(g.sessions, prometheus.GaugeValue, float64(totals.Aggregate), "")
	to <- prometheus.MustNewConstMetric(g.refused, prometheus.CounterValue, float64(g.b.Counts.Refused()), "", "connections")
	if g.instance != nil {
		now := g.b.Cluster.State()
		for _, state := range []cluster.State{cluster.Sure, cluster.Frozen, cluster.Isolated} {
			to <- prometheus.MustNewConstMetric(g.instance, prometheus.GaugeValue, truth(now == state), string(state))
		}
	}
	for limit, n := range totals.Refused {
		to <- prometheus.MustNewConstMetric(g.refused, prometheus.CounterValue, float64(n), "", limit)
	}
	for _, st := range servers {
		to <- prometheus.MustNewConstMetric(g.sessions, prometheus.GaugeValue, float64(st.Sessions), st.Name)
		for _, e := range g.each {
			to <- prometheus.MustNewConstMetric(e.desc, e.kind, e.value(&st), st.Name)
		}
		if st.Breaker != breakerOff {
			for _, state := range breakerStates {
				to <- prometheus.MustNewConstMetric(g.breaker, prometheus.GaugeValue, truth(st.Breaker == state), st.Name, state)
			}
		}
		for _, c := range []struct {
			result string
			n      uint64
		}{{"hit", st.Cache.Hits}, {"miss", st.Cache.Misses}, {"joined", st.Cache.Joined}, {"stale", st.Cache.Served}} {
			to <- prometheus.MustNewConstMetric(g.cached, prometheus.CounterValue, float64(c.n), st.Name, c.result)
		}
		for limit, n := range st.Refused {
			to <- prometheus.MustNewConstMetric(g.refused, prometheus.CounterValue, float64(n), st.Name, limit)
		}
		if g.b.Counts.OnStdio(st.Name) {
			to <- prometheus.MustNewConstMetric(g.children, prometheus.GaugeValue, float64(st.Lanes), st.Name)
		}
	}
}
