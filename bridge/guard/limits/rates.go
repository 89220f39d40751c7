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

// Rates bounds how often each caller calls a server: one rate for all calls, and others for tools by
// patterns of their names.
type Rates struct {
	server  string
	rules   atomic.Pointer[rules]
	refused atomic.Uint64
}

// rules are the rates in force, and the calls since they were set.
type rules struct {
	*limiter
	o        Options
	all      []limit // one, or none
	patterns []string
	tools    []limit // by pattern

	knownMu sync.Mutex // guards known
	known   map[string][]limit
}

// Bounds of the cache of tool names: clients may send any name.
const (
	maxKnownTools = 1024
	maxKnownName  = 128 // bytes
)

// NewRates returns nil if there are no rates.
func NewRates(server string, o Options) *Rates {
	if !o.HasRate() {
		return nil
	}
	r := &Rates{server: server}
	r.rules.Store(newRules(o))
	return r
}

// Set replaces the rates. If they differ, counts begin anew. A nil Rates stays without any.
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

// matching returns the rates for a call of a tool. The caller must not change them.
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
	for i, pattern := range r.patterns { // outside of the lock: a long name takes long
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

// of returns the rates for a request. Handshakes, lists, subscriptions and the like do not count: a
// client sends all of them when it begins. The bridge answers them itself, or the server gets them
// once.
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

// refuse returns why a request must not be made now, or nil.
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

// tooOften returns the end of the message for a client that calls too often.
func tooOften(principal string, r Rate, key string, wait time.Duration) string {
	who := ""
	if principal != "" {
		who = " by one caller"
	}
	return r.String() + who + " (" + key + "); try again in " + inWords(wait)
}

// inWords rounds a duration up for a message.
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

// isNextRound reports whether a request is the next round of a call whose answer was questions
// (2026-07-28, multi round-trip requests).
func isNextRound(from *bridge.Caller, m *jsonrpc.Message) bool {
	return from.Modern() && era.MayAsk(m.Method) && gjson.GetBytes(m.Params, "requestState").Exists()
}

// Sweep removes the buckets that are full again. It does nothing for nil.
func (r *Rates) Sweep(now time.Time) {
	if r != nil {
		r.rules.Load().sweep(now)
	}
}

// Refused returns how many calls came too often. It returns 0 for nil.
func (r *Rates) Refused() uint64 {
	if r == nil {
		return 0
	}
	return r.refused.Load()
}

// Wrap returns up with the rates. Calls to it name tools by the server's own names. A nil Rates
// returns up.
func (r *Rates) Wrap(up bridge.Upstream) bridge.Upstream {
	if r == nil {
		return up
	}
	return &paced{up, r}
}

// paced is an Upstream that refuses calls that come too often.
type paced struct {
	bridge.Upstream
	rates *Rates
}

// Call makes a call, or refuses one that comes too often. It rejects a doubtful name of a tool,
// which could evade the tool's limit.
func (p *paced) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/call" && r.Doubtful() {
		return jsonrpc.InvalidParams(bridge.NameDoubtful), nil
	}
	if err := p.rates.refuse(r); err != nil {
		return nil, err
	}
	return p.Upstream.Call(ctx, r)
}
