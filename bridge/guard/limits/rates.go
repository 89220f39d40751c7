package limits

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/glob"
)

// Rates bounds how often each principal calls a server: by one rate for all calls, and by rates for tools, by patterns
// of their names.
type Rates struct {
	server  string
	rules   atomic.Pointer[rules]
	refused atomic.Uint64
}

// rules are rates, and the calls counted since they were set.
type rules struct {
	*limiter
	o        Options
	all      []limit // the rate for all calls, if there is one
	patterns []string
	tools    []limit // by the same index as patterns

	knownMu sync.Mutex // guards known
	known   map[string][]limit
}

// maxKnownTools and maxKnownName bound the cache of tool names, since clients may send any name.
const (
	maxKnownTools = 1024
	maxKnownName  = 128 // bytes
)

// NewRates returns the rates of the server of that name, or nil if there are none.
func NewRates(server string, o Options) *Rates {
	if !o.HasRate() {
		return nil
	}
	r := &Rates{server: server}
	r.rules.Store(newRules(o))
	return r
}

// Set replaces the rates. If they change, counts start at 0. A nil Rates stays without rates.
func (r *Rates) Set(o Options) {
	if r == nil {
		return
	}
	if was := r.rules.Load().o; was.Rate != o.Rate || !maps.Equal(was.Tools, o.Tools) {
		r.rules.Store(newRules(o))
	}
}

func newRules(o Options) *rules {
	t := &rules{
		limiter: newLimiter(),
		o:       o,
		known:   map[string][]limit{},
	}
	if o.Rate.PerSecond > 0 {
		t.all = []limit{{o.Rate, 0}}
	}
	for pattern, r := range o.Tools {
		if r.PerSecond > 0 {
			t.patterns = append(t.patterns, pattern)
		}
	}
	slices.Sort(t.patterns)
	for i, pattern := range t.patterns {
		t.tools = append(t.tools, limit{o.Tools[pattern], 1 + i})
	}
	return t
}

// matching returns the rates for a call of the tool. The caller must not change them.
func (r *rules) matching(tool string) []limit {
	if len(r.tools) == 0 {
		return r.all
	}
	r.knownMu.Lock()
	all, ok := r.known[tool]
	r.knownMu.Unlock()
	if ok {
		return all
	}
	all = slices.Clone(r.all)
	for i, pattern := range r.patterns { // without the lock, since matching a long name takes long
		if glob.Match(pattern, tool) {
			all = append(all, r.tools[i])
		}
	}
	if len(tool) > maxKnownName {
		return all
	}
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	if len(r.known) >= maxKnownTools {
		clear(r.known)
	}
	r.known[strings.Clone(tool)] = all
	return all
}

// of returns the rates for a request. Handshakes, lists, subscriptions and tasks have no rate. A client sends many of
// them when it starts, and the bridge answers most of them itself.
func (r *rules) of(request *bridge.Request) []limit {
	switch request.Method {
	case "tools/call":
		return r.matching(request.Name())
	case "initialize", "ping", "server/discover", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", era.Listen:
		return nil
	}
	if era.IsList(request.Method) || era.IsTask(request.Method) {
		return nil
	}
	return r.all
}

// refuse returns the error if a rate forbids the request now, or nil.
func (r *Rates) refuse(request *bridge.Request) error {
	rules := r.rules.Load()
	of := rules.of(request)
	if len(of) == 0 {
		return nil
	}
	wait, by := rules.take(request.From.Principal, of, func() bool { return isNextRound(request.From, request.Message) })
	if wait == 0 {
		return nil
	}
	r.refused.Add(1)
	what, key := "it may be called ", "rate"
	if by.index > 0 {
		pattern := rules.patterns[by.index-1]
		what, key = "tools "+pattern+" may be called ", "tools: "+pattern
		if pattern == request.Name() {
			what = "tool " + pattern + " may be called "
		}
	}
	return &bridge.Error{
		Server: r.server,
		Kind:   bridge.ErrLimited,
		After:  wait,
		Public: what + tooOften(request.From.Principal, by.Rate, "limits: "+key, wait),
	}
}

// tooOften returns the end of the error text for a caller that calls too often.
func tooOften(principal string, r Rate, key string, wait time.Duration) string {
	who := ""
	if principal != "" {
		who = " by one caller"
	}
	return r.String() + who + " (" + key + "); try again in " + inWords(wait)
}

// inWords returns a duration for an error text, rounded up to 1 s, or to 1 ms if it is shorter than 2 s.
func inWords(d time.Duration) string {
	unit := time.Second
	if d < 2*time.Second {
		unit = time.Millisecond
	}
	n := (d + unit - 1) / unit
	switch {
	case unit == time.Millisecond:
		return strconv.FormatInt(int64(n), 10) + " ms"
	case n < 120:
		return strconv.FormatInt(int64(n), 10) + " s"
	}
	return (n * unit).String()
}

// isNextRound reports whether a request continues a call that the server answered with questions (2026-07-28, multi
// round-trip requests).
func isNextRound(from *bridge.Caller, m *jsonrpc.Message) bool {
	return from.Modern() && era.MayAsk(m.Method) && gjson.GetBytes(m.Params, "requestState").Exists()
}

// Sweep removes the buckets that are full. A nil Rates has none.
func (r *Rates) Sweep(now time.Time) {
	if r != nil {
		r.rules.Load().sweep(now)
	}
}

// Refused returns how many calls the rates refused. It returns 0 for a nil Rates.
func (r *Rates) Refused() uint64 {
	if r == nil {
		return 0
	}
	return r.refused.Load()
}

// Wrap returns up with the rates. Its calls name tools by the server's own names. A nil Rates returns up.
func (r *Rates) Wrap(up bridge.Upstream) bridge.Upstream {
	if r == nil {
		return up
	}
	return &paced{up, r}
}

// paced is an Upstream with rates.
type paced struct {
	bridge.Upstream
	rates *Rates
}

// Call makes a call, unless a rate forbids it. It rejects a tool name that parsers read differently, since such a name
// could evade a rate.
func (p *paced) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/call" && r.Doubtful() {
		return jsonrpc.InvalidParams(bridge.NameDoubtful), nil
	}
	if err := p.rates.refuse(r); err != nil {
		return nil, err
	}
	return p.Upstream.Call(ctx, r)
}
