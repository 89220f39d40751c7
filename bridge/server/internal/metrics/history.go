package metrics

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mcp-bridge/bridge/bridge"
)

// Step is the length of a bucket of a History, and Points the number of its buckets.
const (
	Step   = 5 * time.Second
	Points = 180
)

// Rates are computed from the last rateBuckets, and percentiles and shares of errors from the last recentBuckets.
const (
	rateBuckets   = 6  // 30 s
	recentBuckets = 60 // 5 minutes
)

// timedMethods are the methods whose durations make percentiles. The bridge answers lists itself, and initialize may
// start a program.
var timedMethods = [...]string{"tools/call", "prompts/get", "resources/read"}

// times has the number of calls in each of durationBuckets, and last the number of longer calls.
type times [16]uint64

// History holds the last 15 minutes of each server. Calls cost next to nothing: Tick reads the counters of the metrics.
// Its methods may be called concurrently.
type History struct {
	m *Metrics

	mu   sync.Mutex // guards the rest
	end  time.Time  // of the newest bucket
	n    int        // buckets so far
	of   map[string]*past
	seen dto.Metric // for reading a counter
	// lately is the result of Recent until the next tick; nil until the next call of Recent. The map is replaced,
	// never changed.
	lately map[string]*Recent
}

// NewHistory returns the empty history of m.
func (m *Metrics) NewHistory() *History { return &History{m: m, of: map[string]*past{}} }

// past is the history of one server. The name "" is for requests that no server got.
type past struct {
	read    *serverMetrics
	was     totals          // the counters when they were last read
	began   int             // number of its first bucket
	busy    int             // number of its last bucket that is not zero
	memory  uint32          // KiB, at the last measurement
	calls   uint64          // in all buckets
	buckets *[Points]bucket // bucket n is at n%Points; nil while all are zero
	tools   pastTools
}

// bucket holds what was counted within one Step. A bucket must be small: there are Points of them for each busy
// server.
type bucket struct {
	calls, errors, toolErrors uint32
	together                  uint32 // calls at the address of all servers
	inFlight                  uint32 // at the end of the bucket
	memory                    uint32 // KiB, at the end of the bucket
	times                     [len(times{})]uint16
	shift                     uint8 // times are divided by 1<<shift
}

// totals are the counters of a server.
type totals struct {
	outcomes
	taken, together uint64
	times           times
}

// outcomes counts calls, and those of them that failed.
type outcomes struct {
	calls, errors, toolErrors uint64
}

// add counts n calls with an outcome.
func (o *outcomes) add(of bridge.Outcome, n uint64) {
	o.calls += n
	switch {
	case of == bridge.ToolFailed:
		o.toolErrors += n
	case failed(of):
		o.errors += n
	}
}

// Load is the part of a server's state that is not a counter.
type Load struct {
	InFlight int
	Memory   int64 // bytes of its child processes; negative if it was not measured
}

// Tick adds a bucket that ends now. load returns the load of a server.
func (h *History) Tick(now time.Time, load func(server string) Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	steps := 1
	if gap := now.Sub(h.end); h.n > 0 && gap > 0 { // a gap below zero: the clock was set back
		if steps = int(min((gap+Step/2)/Step, Points)); steps == 0 {
			return // the last tick was late: the next tick counts what came since
		}
	}
	h.end, h.lately = now, nil
	h.n += steps
	servers := *h.m.servers.Load()
	for name := range h.of {
		if servers[name] == nil {
			delete(h.of, name)
		}
	}
	for name, counts := range servers {
		p := h.of[name]
		if p == nil || p.read != counts {
			p = &past{read: counts, began: h.n - 1}
			h.of[name] = p
		}
		one := Load{}
		if name != "" {
			one = load(name)
		}
		if one.Memory >= 0 {
			p.memory = uint32(min(one.Memory>>10, math.MaxUint32))
		}
		b := bucket{inFlight: uint32(one.InFlight), memory: p.memory}
		h.advance(p, &b)
		p.put(h.n, steps, &b)
		p.tools.tick(h, p.read, b.calls > 0)
	}
}

// advance puts what was counted since the last bucket into b.
func (h *History) advance(p *past, b *bucket) {
	taken := p.read.taken.Load()
	if taken == p.was.taken {
		return
	}
	now := h.read(p.read)
	now.taken = taken
	b.calls, b.errors, b.toolErrors = uint32(now.calls-p.was.calls), uint32(now.errors-p.was.errors), uint32(now.toolErrors-p.was.toolErrors)
	b.together = uint32(now.together - p.was.together)
	most := uint64(0)
	for i := range now.times {
		most = max(most, now.times[i]-p.was.times[i])
	}
	for most>>b.shift > math.MaxUint16 {
		b.shift++
	}
	for i := range now.times {
		b.times[i] = uint16((now.times[i] - p.was.times[i]) >> b.shift)
	}
	p.was = now
}

// put stores b as the newest of n buckets, after steps-1 empty buckets.
func (p *past) put(n, steps int, b *bucket) {
	if *b != (bucket{}) {
		if p.busy = n - 1; p.buckets == nil {
			p.buckets = new([Points]bucket)
		}
	}
	switch {
	case p.buckets == nil:
		return
	case n-1-p.busy >= Points:
		p.buckets, p.calls = nil, 0
		return
	}
	for i := n - steps; i < n; i++ {
		at := &p.buckets[i%Points]
		p.calls -= uint64(at.calls)
		*at = bucket{memory: b.memory}
	}
	p.buckets[(n-1)%Points] = *b
	p.calls += uint64(b.calls)
}

// value reads a counter.
func (h *History) value(c prometheus.Metric) float64 {
	h.seen.Reset()
	_ = c.Write(&h.seen) // a counter has no error
	return h.seen.GetCounter().GetValue()
}

// read reads the counters of a server.
func (h *History) read(s *serverMetrics) (t totals) {
	t.together = s.together.Load()
	for method := range s.calls {
		if methodNames[method] == listen {
			continue
		}
		for of := range s.calls[method] {
			for outcome := range s.calls[method][of] {
				c := s.calls[method][of][outcome].Load()
				if c == nil {
					continue
				}
				t.add(bridge.Outcome(outcome), uint64(h.value(*c)))
			}
		}
	}
	for _, name := range timedMethods {
		o := s.durations[methodIndex[name]].Load()
		if o == nil {
			continue
		}
		h.seen.Reset()
		_ = (*o).(prometheus.Metric).Write(&h.seen) // a histogram has no error
		of := h.seen.GetHistogram()
		before := uint64(0)
		for i, b := range of.GetBucket() {
			t.times[i] += b.GetCumulativeCount() - before
			before = b.GetCumulativeCount()
		}
		t.times[len(t.times)-1] += of.GetSampleCount() - before
	}
	return t
}

// failed reports whether an outcome is an error. An error that a tool itself returns is not counted, and neither is a
// call that its client cancelled.
func failed(o bridge.Outcome) bool {
	return o != bridge.Answered && o != bridge.ToolFailed && o != bridge.Cancelled
}

// addTo adds the durations of the bucket to t.
func (b *bucket) addTo(t *times) {
	if b.calls == 0 {
		return
	}
	for i, n := range b.times {
		t[i] += uint64(n) << b.shift
	}
}

// last returns up to count of the newest buckets of a server, the newest first.
func (p *past) last(n, count int) func(yield func(i int, b *bucket) bool) {
	return func(yield func(int, *bucket) bool) {
		for i := range min(count, n-p.began, Points) {
			if p.buckets == nil || !yield(i, &p.buckets[(n-1-i)%Points]) {
				return
			}
		}
	}
}

// sum adds up the newest count buckets. n is the number of buckets so far.
func (p *past) sum(n, count int) (calls, together uint64) {
	for _, b := range p.last(n, count) {
		calls, together = calls+uint64(b.calls), together+uint64(b.together)
	}
	return calls, together
}

// Columns are values for each bucket, the newest last. They are shorter than Span.Points if the server has fewer
// buckets.
type Columns struct {
	Server     string     `json:"server,omitempty"`
	Calls      []uint64   `json:"calls,omitzero"`
	Errors     []uint64   `json:"errors,omitzero"`
	ToolErrors []uint64   `json:"tool_errors,omitzero"`
	P50        []*float64 `json:"p50,omitzero"` // milliseconds; nil without a call
	P95        []*float64 `json:"p95,omitzero"`
	P99        []*float64 `json:"p99,omitzero"`
	InFlight   []uint64   `json:"in_flight,omitzero"`
	Memory     []uint64   `json:"memory,omitzero"` // bytes
	// Recent describes the last 5 minutes, whatever time the series covers; nil without calls.
	Recent *Recent `json:"recent,omitempty"`
}

// Span is the time that the buckets of a series cover.
type Span struct {
	Step   int64 `json:"step"`   // milliseconds
	To     int64 `json:"to"`     // the end of the newest bucket; 0 before the first
	Points int   `json:"points"` // the number of buckets
}

// span returns the buckets that end after from. The caller holds h.mu.
func (h *History) span(from time.Time) Span {
	s := Span{Step: Step.Milliseconds(), Points: min(h.n, Points)}
	if h.n > 0 {
		s.To = h.end.UnixMilli()
	}
	if since := h.end.Sub(from); since < Points*Step {
		s.Points = min(s.Points, max(0, int((since+Step/2)/Step))) // ticks are not exact
	}
	return s
}

// Series returns the buckets that end after from: the sum of the servers that of selects, and each of them, the busiest
// first. The columns of a server with zeros only are nil. whole adds the requests that no server got to the sum.
func (h *History) Series(from time.Time, of func(server string) bool, whole bool) (s Span, total Columns, servers []Columns) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = h.span(from)
	var all []*past
	servers = []Columns{}
	for name, p := range h.of {
		if name == "" {
			if whole {
				all = append(all, p)
			}
			continue
		}
		if !of(name) {
			continue
		}
		all = append(all, p)
		one := Columns{Server: name}
		if calls, _ := p.sum(h.n, s.Points); calls > 0 {
			n := min(s.Points, h.n-p.began)
			one.Calls, one.Errors, one.ToolErrors = make([]uint64, n), make([]uint64, n), make([]uint64, n)
			for i, b := range p.last(h.n, n) {
				at := n - 1 - i
				one.Calls[at], one.Errors[at], one.ToolErrors[at] = uint64(b.calls), uint64(b.errors), uint64(b.toolErrors)
			}
		}
		servers = append(servers, one)
	}
	slices.SortFunc(servers, func(c, b Columns) int {
		return cmp.Or(cmp.Compare(h.of[b.Server].calls, h.of[c.Server].calls), cmp.Compare(c.Server, b.Server))
	})
	return s, h.columns(s.Points, all), servers
}

// SeriesOf returns the buckets of one server that end after from.
func (h *History) SeriesOf(server string, from time.Time) (s Span, c Columns) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*past
	if s = h.span(from); h.of[server] == nil {
		s.Points = 0
	} else {
		all = append(all, h.of[server])
		s.Points = min(s.Points, h.n-all[0].began)
	}
	c = h.columns(s.Points, all)
	c.Server = server
	return s, c
}

// columns adds up the newest buckets of several servers. The caller holds h.mu.
func (h *History) columns(points int, all []*past) Columns {
	c := Columns{
		P50:    []*float64{},
		P95:    []*float64{},
		P99:    []*float64{},
		Recent: h.recent(all...),
	}
	for _, column := range []*[]uint64{&c.Calls, &c.Errors, &c.ToolErrors, &c.InFlight, &c.Memory} {
		*column = make([]uint64, points)
	}
	took := make([]times, points)
	for _, p := range all {
		for i, b := range p.last(h.n, points) {
			at := points - 1 - i
			c.Calls[at] += uint64(b.calls)
			c.Errors[at] += uint64(b.errors)
			c.ToolErrors[at] += uint64(b.toolErrors)
			c.InFlight[at] += uint64(b.inFlight)
			c.Memory[at] += uint64(b.memory) << 10
			b.addTo(&took[at])
		}
	}
	for i := range took {
		c.P50, c.P95, c.P99 = append(c.P50, took[i].quantile(.5)), append(c.P95, took[i].quantile(.95)), append(c.P99, took[i].quantile(.99))
	}
	return c
}

// quantile estimates the time that this part of the calls did not exceed, in milliseconds, as Prometheus does; nil
// without a call.
func (t *times) quantile(part float64) *float64 {
	all := uint64(0)
	for _, n := range t {
		all += n
	}
	if all == 0 {
		return nil
	}
	rank, low, high := part*float64(all), 0.0, 0.0
	for i, n := range t {
		low, high = high, durationBuckets[min(i, len(durationBuckets)-1)]
		if rank <= float64(n) {
			high = low + (high-low)*rank/float64(n)
			break
		}
		rank -= float64(n)
	}
	ms := round(1000 * high)
	return &ms
}

// round rounds milliseconds to microseconds.
func round(ms float64) float64 { return math.Round(1000*ms) / 1000 }

// Rates are the calls of a server in the last 30 s.
type Rates struct {
	Calls    float64 // a second
	Together float64 // of these, at the address of all servers
}

// Rates returns the rates of each server.
func (h *History) Rates() map[string]Rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]Rates, len(h.of))
	seconds := float64(max(1, min(h.n, rateBuckets))) * Step.Seconds()
	for name, p := range h.of {
		calls, together := p.sum(h.n, rateBuckets)
		all[name] = Rates{float64(calls) / seconds, float64(together) / seconds}
	}
	return all
}

// Recent describes the calls of the last 5 minutes.
type Recent struct {
	Errors, ToolErrors float64 `json:"-"` // shares of the calls
	// P50, P95 and P99 are milliseconds, as those of Columns.
	P50 *float64 `json:"p50,omitempty"`
	P95 *float64 `json:"p95,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
}

// recent describes the calls of servers together in the last 5 minutes; nil without calls. The caller holds h.mu.
func (h *History) recent(servers ...*past) *Recent {
	var calls, errors, toolErrors uint64
	var took times
	for _, p := range servers {
		for _, b := range p.last(h.n, recentBuckets) {
			calls, errors, toolErrors = calls+uint64(b.calls), errors+uint64(b.errors), toolErrors+uint64(b.toolErrors)
			b.addTo(&took)
		}
	}
	if calls == 0 {
		return nil
	}
	return &Recent{float64(errors) / float64(calls), float64(toolErrors) / float64(calls), took.quantile(.5), took.quantile(.95), took.quantile(.99)}
}

// Recent describes the calls of each server that had some. The result is read only.
func (h *History) Recent() map[string]*Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lately == nil {
		h.lately = map[string]*Recent{}
		for name, p := range h.of {
			if r := h.recent(p); r != nil {
				h.lately[name] = r
			}
		}
	}
	return h.lately
}

// ToolList returns the last list of tools that a client got from a server; ok is false without such a list.
func (m *Metrics) ToolList(server string) (t ToolList, ok bool) {
	s := (*m.servers.Load())[server]
	if s == nil {
		return ToolList{}, false
	}
	s.tools.mu.RLock()
	defer s.tools.mu.RUnlock()
	return s.tools.list, s.tools.list.Bytes > 0
}
