package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/config"
)

// memoryTicks is the number of ticks between two measurements of the memory of child processes: each reads all of /proc.
const memoryTicks = 3

// timeline holds the last minutes of the bridge for the console. One goroutine fills it while the bridge serves.
type timeline struct {
	history *metrics.History
	marks   *admin.Marks
	clients *admin.Clients
	counts  atomic.Bool // clients counts calls: the bridge serves, and may have operators

	ticks     int
	processes bool // some server had child processes at the last tick

	once sync.Once
	wg   sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc
}

func newTimeline(m *metrics.Metrics) *timeline {
	t := &timeline{
		history: m.NewHistory(),
		marks:   admin.NewMarks(),
		clients: admin.NewClients(time.Now()),
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// follow fills the timeline from now on, until close.
func (s *server) follow() {
	t := s.timeline
	t.once.Do(func() {
		t.counts.Store(s.hasOperators())
		t.wg.Go(func() {
			tick := time.NewTicker(metrics.Step)
			defer tick.Stop()
			for {
				select {
				case <-t.ctx.Done():
					return
				case now := <-tick.C:
					s.tick(now)
				}
			}
		})
	})
}

func (t *timeline) close() {
	t.once.Do(func() {}) // nothing begins after this
	t.stop()
	t.wg.Wait()
}

// tick reads the state of the bridge.
func (s *server) tick(now time.Time) {
	t := s.timeline
	var used health.Used
	if t.ticks%memoryTicks == 0 && t.processes {
		used = health.Usage()
	}
	t.ticks++
	t.processes = false
	t.history.Tick(now, func(server string) metrics.Load {
		one, ok := s.g.Sample(server)
		if !ok {
			return metrics.Load{}
		}
		t.marks.Look(now, server, one)
		l := metrics.Load{InFlight: one.Calls, Memory: -1}
		switch own := one.Open.Processes(); {
		case !own:
			l.Memory = 0
		case used != nil:
			l.Memory = one.Open.Use(used).RSS
			fallthrough
		default:
			t.processes = true
		}
		return l
	})
	var since time.Time
	var by string
	if d := s.drained.Load(); d != nil {
		since, by = d.Since, d.By
	}
	t.marks.LookAtBridge(now, since, by, s.reloader, func(server string) bool { return s.table.Load().backends[server] != nil })
	t.clients.Tick(now)
	t.counts.Store(s.hasOperators()) // a reload may have added or removed operators
}

// hasOperators reports whether the configuration lets anybody use the API of operators.
func (s *server) hasOperators() bool {
	c := s.Config()
	return admin.HasConsole(c) || len(c.Admin)+len(c.Viewers) > 0 || !s.access.Keyed() && config.Loopback(c.OperatorsListen())
}

// seriesAnswer is the answer of GET series.
type seriesAnswer struct {
	metrics.Span
	Total   *totalSeries      `json:"total,omitempty"`
	Servers []metrics.Columns `json:"servers"`
	Marks   []admin.Mark      `json:"marks"`
}

// totalSeries are the series of all servers together, or of one server.
type totalSeries struct {
	metrics.Columns
	Limits *seriesLimits `json:"limits,omitempty"`
}

// seriesLimits are the limits of calls in flight.
type seriesLimits struct {
	Calls        int `json:"calls"`
	Queue        int `json:"queue,omitempty"`
	PerPrincipal int `json:"per_principal,omitempty"`
}

// serverSeries is the answer of GET series for one server.
type serverSeries struct {
	metrics.Span
	totalSeries
	Marks []admin.Mark `json:"marks"`
}

// showSeries returns the last minutes of all servers, or of one server.
func (s *server) showSeries(c *admin.Call) (any, error) {
	var from time.Time
	if text := c.Query.Get("from"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, &admin.Refusal{
				Status:  http.StatusBadRequest,
				Code:    "query",
				Message: "from must be a time in Unix milliseconds",
			}
		}
		from = time.UnixMilli(ms)
	}
	oldest := from
	if first := time.Now().Add(-metrics.Points * metrics.Step); first.After(from) {
		oldest = first
	}
	sees, t := s.view(&c.Caller), s.timeline
	name := c.Query.Get("server")
	if name == "" {
		var s seriesAnswer
		var total metrics.Columns
		s.Span, total, s.Servers = t.history.Series(from, sees.Of, sees.All)
		s.Total, s.Marks = &totalSeries{Columns: total}, t.marks.Since(oldest, sees.Of, sees.All)
		if sees.All {
			s.Total.Limits = &seriesLimits{Calls: gateway.MaxInFlight}
		}
		return admin.Compact{Answer: s}, nil
	}
	if err := s.visible(c, name); err != nil {
		return nil, err
	}
	var a serverSeries
	a.Span, a.Columns = t.history.SeriesOf(name, from)
	a.Marks = t.marks.Since(oldest, func(server string) bool { return server == name }, false)
	servers := s.Config().Servers
	if i := slices.IndexFunc(servers, func(one config.Server) bool { return one.Name == name }); i >= 0 {
		of := servers[i].Limits.Complete()
		a.Limits = &seriesLimits{of.Calls, of.Queue, of.PerPrincipal}
	}
	return admin.Compact{Answer: a}, nil
}

// visible returns an error unless there is a server of that name that the caller may see.
func (s *server) visible(c *admin.Call, server string) error {
	if s.table.Load().backends[server] == nil || !s.view(&c.Caller).Of(server) {
		return admin.NotFound("server of that name")
	}
	return nil
}

// defaultMinutes is the time that GET tools covers, unless the caller names another time.
const defaultMinutes = 5

// toolsAnswer is the answer of GET tools.
type toolsAnswer struct {
	Minutes int               `json:"minutes"`
	Tools   []metrics.ToolUse `json:"tools"`
}

// showTools returns the tools that were called in the last minutes.
func (s *server) showTools(c *admin.Call) (any, error) {
	minutes, err := c.Number("minutes", defaultMinutes, metrics.Minutes)
	if err != nil {
		return nil, err
	}
	name := c.Query.Get("server")
	if name != "" {
		if err := s.visible(c, name); err != nil {
			return nil, err
		}
	}
	return toolsAnswer{minutes, s.timeline.history.Tools(minutes, func(server string) bool { return name == "" || server == name })}, nil
}

// toolListAnswer is the answer of GET servers/{name}/tools.
type toolListAnswer struct {
	Total int            `json:"total,omitempty"`
	Tools []metrics.Tool `json:"tools"` // null if no client got a list
}

// showToolList returns the tools of a server as a client last got them. showToolList asks no server.
func (s *server) showToolList(c *admin.Call) (any, error) {
	name := c.Var("name")
	if err := s.visible(c, name); err != nil {
		return nil, err
	}
	t, ok := s.metrics.ToolList(name)
	if ok && t.First == nil {
		t.First = []metrics.Tool{}
	}
	return toolListAnswer{t.Tools, t.First}, nil
}

// topology is the answer of GET topology.
type topology struct {
	Clients   []admin.ClientUse `json:"clients"`
	Addresses []addressUse      `json:"addresses"`
	Edges     []edge            `json:"edges"`
	Servers   []serverUse       `json:"servers"`
}

type addressUse struct {
	Path string  `json:"path"` // below the base path
	Rate float64 `json:"rate"`
}

// edge is the use of a server at an address.
type edge struct {
	Address string  `json:"address"`
	Server  string  `json:"server"`
	Rate    float64 `json:"rate"`
}

type serverUse struct {
	Server string  `json:"server"`
	Rate   float64 `json:"rate"`
	Errors float64 `json:"error_rate"`
	// Clients counts the clients that called the server in the last 15 minutes: see admin.Clients.
	Clients int `json:"clients"`
}

// showTopology returns who uses which servers at which addresses.
func (s *server) showTopology(c *admin.Call) (any, error) {
	t, sees := s.timeline, s.view(&c.Caller)
	servers := slices.DeleteFunc(s.g.Servers(), func(name string) bool { return !sees.Of(name) })
	shows := map[string]bool{}
	for _, name := range servers {
		shows[name] = true
	}
	out := topology{
		Addresses: []addressUse{},
		Edges:     []edge{},
		Servers:   []serverUse{},
	}
	var clients map[string]int
	out.Clients, clients = t.clients.Groups(time.Now(), c.Sees, func(server string) bool { return shows[server] }, s.g.Sessions(c.Sees))
	at := map[string]int{} // index in Addresses
	address := func(path string, rate float64) {
		i, ok := at[path]
		if !ok {
			i = len(out.Addresses)
			at[path] = i
			out.Addresses = append(out.Addresses, addressUse{Path: path})
		}
		out.Addresses[i].Rate += rate
	}
	for i := range out.Clients {
		address(out.Clients[i].Address, 0)
	}
	rates, recent := t.history.Rates(), t.history.Recent()
	for _, name := range servers {
		r := rates[name]
		use := serverUse{
			Server:  name,
			Rate:    r.Calls,
			Clients: clients[name],
		}
		if of := recent[name]; of != nil {
			use.Errors = of.Errors
		}
		out.Servers = append(out.Servers, use)
		for _, one := range []edge{{admin.Address(""), name, r.Together}, {admin.Address(name), name, r.Calls - r.Together}} {
			if one.Rate > 0 {
				out.Edges = append(out.Edges, one)
				address(one.Address, one.Rate)
			}
		}
	}
	return admin.Compact{Answer: out}, nil
}
