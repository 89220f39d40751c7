// Package metrics counts the requests of clients, and reports the state of servers, for Prometheus.
package metrics

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Metrics holds the metrics for Prometheus. The values of labels come only from the configuration and
// from the tables here: clients must not be able to add time series without end.
type Metrics struct {
	registry  *prometheus.Registry
	calls     *prometheus.CounterVec
	durations *prometheus.HistogramVec
	tools     *prometheus.CounterVec
	toolTimes *prometheus.CounterVec
	exported  *operations                               // nil without a meter provider
	sizes     [2]*prometheus.CounterVec                 // the bytes of requests, and of answers
	servers   atomic.Pointer[map[string]*serverMetrics] // by name; "" is for requests that no server got
}

// serverMetrics are the counters of one server. A counter is looked up once, and then stored here.
type serverMetrics struct {
	name              string
	calls             [methods][eras][bridge.Outcomes]atomic.Pointer[prometheus.Counter]
	durations         [methods]atomic.Pointer[prometheus.Observer]
	request, response prometheus.Counter
	taken             atomic.Uint64 // reports; counted after the other counters
	together          atomic.Uint64 // requests at the address of all servers
	tools             tools         // of its lists as clients see them
	own               tools         // of its lists as it sends them; empty without a meter provider
}

// tools holds the tools of a server, from the lists that its clients get. Calls of tools with other names are counted
// together: a client may invent a name.
type tools struct {
	seen  list.Memo
	other toolMetrics

	mu      sync.RWMutex // guards the rest
	known   map[string]*toolMetrics
	list    ToolList // the last list of which a client got all pages
	reading ToolList // the pages so far of the list that a client is getting
	next    string   // the cursor of the next page of reading; empty without one
}

// toolMetrics are the counters of one tool. A counter is looked up once, and then stored here.
type toolMetrics struct {
	name    string
	calls   [bridge.Outcomes]atomic.Pointer[prometheus.Counter]
	seconds atomic.Pointer[prometheus.Counter]
}

// ToolList describes a list of tools.
type ToolList struct {
	Tools, Bytes int
	First        []Tool // the first tools: up to maxTools, and up to maxKept bytes
	kept         int    // bytes of First
}

// Tool is a tool in a list. It has no other members of the list's entry, which may be large.
type Tool struct {
	Name        string      `json:"name"`
	Title       string      `json:"title,omitempty"`
	Annotations Annotations `json:"annotations,omitzero"`
}

// Annotations are the annotations of a tool that the protocol defines (2025-11-25, ToolAnnotations). A value of another
// type is left out.
type Annotations struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    *bool  `json:"readOnlyHint,omitempty"`
	Destructive *bool  `json:"destructiveHint,omitempty"`
	Idempotent  *bool  `json:"idempotentHint,omitempty"`
	OpenWorld   *bool  `json:"openWorldHint,omitempty"`
}

func annotationsOf(tool []byte) Annotations {
	of := gjson.GetBytes(tool, "annotations")
	hint := func(name string) *bool {
		v := of.Get(name)
		if !v.IsBool() {
			return nil
		}
		return new(v.Bool())
	}
	return Annotations{strings.Clone(of.Get("title").Str), hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint"), hint("openWorldHint")}
}

// maxKept bounds the bytes of ToolList.First.
const maxKept = 64 << 10

func (t *ToolList) add(item []byte, name string) {
	if whole := len(t.First) == t.Tools; whole && t.Tools < maxTools {
		one := Tool{name, strings.Clone(gjson.GetBytes(item, "title").Str), annotationsOf(item)}
		if size := t.kept + len(one.Name) + len(one.Title) + len(one.Annotations.Title); size <= maxKept {
			t.First, t.kept = append(t.First, one), size
		}
	}
	t.Tools++
}

// maxTools bounds the tools of one server with counters of their own.
const maxTools = 256

// otherTool is the name of all other tools in the metrics.
const otherTool = "other"

// learn takes the names, the size and the first tools of a list that a client gets.
func (t *tools) learn(request, answer *jsonrpc.Message) {
	t.seen.Once(answer, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		cursor := gjson.GetBytes(request.Params, "cursor")
		first := cursor.Type == gjson.Null // true also without a cursor
		goesOn := !first && t.next != "" && cursor.Str == t.next
		if first {
			t.reading = ToolList{}
		}
		list.Tools.Each(answer.Result, func(item []byte, name string) {
			name = strings.Clone(name) // otherwise name would keep the whole list in memory
			if t.known[name] == nil && len(t.known) < maxTools {
				t.known[name] = &toolMetrics{name: name}
			}
			if first || goesOn {
				t.reading.add(item, name)
			}
		})
		if !first && !goesOn { // the page belongs to a list of another client
			return true
		}
		t.reading.Bytes += len(answer.Result)
		next := gjson.GetBytes(answer.Result, "nextCursor")
		if t.next = next.Str; next.Type == gjson.Null {
			t.list, t.reading = t.reading, ToolList{}
		}
		return true
	})
}

// of returns the tool that a call of that name counts for.
func (t *tools) of(name string) *toolMetrics {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if one := t.known[name]; one != nil {
		return one
	}
	return &t.other
}

func (t *tools) all() []*toolMetrics {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.AppendSeq([]*toolMetrics{&t.other}, maps.Values(t.known))
}

// methodNames are the values of the label method. The last one stands for all other methods.
var methodNames = [...]string{
	"initialize", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/templates/list",
	"resources/read", "resources/subscribe", "resources/unsubscribe", listen, "completion/complete", "logging/setLevel",
	"tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "tasks/result", "other",
}

const (
	methods = len(methodNames)
	listen  = "subscriptions/listen" // lasts as long as the client listens
)

// methodIndex has the index of each method in methodNames.
var methodIndex = func() map[string]int {
	places := map[string]int{}
	for i, name := range methodNames[:methods-1] {
		places[name] = i
	}
	return places
}()

// eras is the number of eras of clients: legacy and modern.
const eras = 2

// eraOf returns the index of a revision's era.
func eraOf(revision string) int {
	if era.IsModern(revision) {
		return 1
	}
	return 0
}

// durationBuckets are in seconds. The first are for the time within the bridge, the last for long calls.
var durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// New returns the metrics of a bridge of that version, without servers: see Set.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcp_bridge_calls_total",
			Help: "Requests of clients by outcome and era of the client. Without a server: those that no server got.",
		}, []string{"server", "method", "outcome", "era"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mcp_bridge_call_duration_seconds", Buckets: durationBuckets,
			Help: "How long requests took, with any outcome. Subscriptions are not counted.",
		}, []string{"server", "method"}),
	}
	request := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcp_bridge_request_bytes_total", Help: "Size of requests.",
	}, []string{"server"})
	response := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcp_bridge_response_bytes_total", Help: "Size of the answers of servers.",
	}, []string{"server"})
	m.tools = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcp_bridge_tool_calls_total",
		Help: "Calls of tools by outcome. The name is that in the server's list, or other for a tool that no list had, and beyond 256 tools of a server.",
	}, []string{"server", "tool", "outcome"})
	m.toolTimes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mcp_bridge_tool_call_seconds_total", Help: "How long the calls of tools took together.",
	}, []string{"server", "tool"})
	m.sizes = [2]*prometheus.CounterVec{request, response}
	m.Set(nil)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mcp_bridge_build_info", Help: "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(m.calls, m.durations, m.tools, m.toolTimes, request, response, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Set sets the servers that are counted from now on. Set drops the counters of other servers. Calls of Set must not
// overlap.
func (m *Metrics) Set(servers []string) {
	was := m.servers.Load()
	now := map[string]*serverMetrics{}
	for _, name := range append([]string{""}, servers...) { // "" is for requests that no server got
		if was != nil && (*was)[name] != nil {
			now[name] = (*was)[name]
			continue
		}
		now[name] = &serverMetrics{
			name:     name,
			request:  m.sizes[0].WithLabelValues(name),
			response: m.sizes[1].WithLabelValues(name),
			tools:    tools{other: toolMetrics{name: otherTool}, known: map[string]*toolMetrics{}},
			own:      tools{other: toolMetrics{name: otherTool}, known: map[string]*toolMetrics{}},
		}
	}
	m.servers.Store(&now)
	if was == nil {
		return
	}
	for name := range *was {
		if now[name] == nil {
			of := prometheus.Labels{"server": name}
			m.calls.DeletePartialMatch(of)
			m.durations.DeletePartialMatch(of)
			m.tools.DeletePartialMatch(of)
			m.toolTimes.DeletePartialMatch(of)
			m.sizes[0].Delete(of)
			m.sizes[1].Delete(of)
		}
	}
}

// Take counts a report.
func (m *Metrics) Take(r *report.Report) {
	servers := *m.servers.Load()
	s := servers[r.Server]
	if s == nil {
		s = servers[""]
	}
	method, known := methodIndex[r.Request.Method]
	if !known {
		method = methods - 1
	}
	m.counter(s, method, r.Revision, r.Outcome).Inc()
	if r.Request.Method != listen {
		if r.Outcome != bridge.CircuitOpen { // with refused calls, a failing server would look fast
			m.observer(s, method).Observe(r.Took.Seconds())
		}
		if a, ok := r.Call.(*report.Arrival); ok && a != nil && a.Address() == "" {
			s.together.Add(1)
		}
	}
	tool := ""
	switch {
	case s.name == "":
	case r.Request.Method == list.Tools.Method() && r.Answer != nil:
		s.tools.learn(r.Request, r.Answer)
	case r.Request.Method == "tools/call":
		of := s.tools.of(r.Request.Name())
		tool = of.name
		m.countTool(s, of, r)
	}
	if m.exported != nil && r.Request.Method != listen {
		m.exported.received(r, s.name, methodNames[method], tool)
	}
	s.request.Add(float64(r.Request.Len()))
	if r.Answer != nil {
		s.response.Add(float64(r.Answer.Len()))
	}
	s.taken.Add(1)
}

// Listed takes the report of a list of tools that the bridge itself requested. Only such lists have the names of tools
// that clients find by search.
func (m *Metrics) Listed(r *report.Report) {
	if s := (*m.servers.Load())[r.Server]; s != nil {
		s.tools.learn(r.Request, r.Answer)
	}
}

func (m *Metrics) counter(s *serverMetrics, method int, revision string, o bridge.Outcome) prometheus.Counter {
	at := &s.calls[method][eraOf(revision)][o]
	if c := at.Load(); c != nil {
		return *c
	}
	c := m.calls.WithLabelValues(s.name, methodNames[method], o.String(), era.Name(revision))
	at.Store(&c)
	return c
}

func (m *Metrics) countTool(s *serverMetrics, tool *toolMetrics, r *report.Report) {
	calls := tool.calls[r.Outcome].Load()
	if calls == nil {
		c := m.tools.WithLabelValues(s.name, tool.name, r.Outcome.String())
		calls = &c
		tool.calls[r.Outcome].Store(calls)
	}
	seconds := tool.seconds.Load()
	if seconds == nil {
		c := m.toolTimes.WithLabelValues(s.name, tool.name)
		seconds = &c
		tool.seconds.Store(seconds)
	}
	(*calls).Inc()
	(*seconds).Add(r.Took.Seconds())
}

func (m *Metrics) observer(s *serverMetrics, method int) prometheus.Observer {
	at := &s.durations[method]
	if o := at.Load(); o != nil {
		return *o
	}
	o := m.durations.WithLabelValues(s.name, methodNames[method])
	at.Store(&o)
	return o
}

var _ prometheus.Gatherer = (*Metrics)(nil)

func (m *Metrics) Gather() ([]*dto.MetricFamily, error) { return m.registry.Gather() }

// Serve answers a request for the metrics of the servers that of allows; nil allows all metrics.
func (m *Metrics) Serve(w http.ResponseWriter, r *http.Request, of func(server string) bool) {
	from := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := m.Gather()
		if of != nil {
			all = allowed(all, of, false)
		}
		return all, err
	})
	promhttp.HandlerFor(from, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: m.registry}).ServeHTTP(w, r)
}

// allowed returns the metrics of the servers that of accepts, and with tools also those of their tools: a caller that
// may use a server need not be allowed to see all of its tools.
func allowed(all []*dto.MetricFamily, of func(server string) bool, tools bool) []*dto.MetricFamily {
	var some []*dto.MetricFamily
	for _, family := range all {
		family.Metric = slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool {
			has := func(label string, value func(string) bool) bool {
				return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == label && value(l.GetValue()) })
			}
			return !has("server", of) || !tools && has("tool", func(string) bool { return true })
		})
		if len(family.Metric) > 0 {
			some = append(some, family)
		}
	}
	return some
}
