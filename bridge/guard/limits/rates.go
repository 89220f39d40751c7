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

// Rates bound how often each caller calls a server: one for all calls, and others for tools
// by patterns of their names.
type Rates struct {
	server  string
	rules   atomic.Pointer[rules]
	refused atomic.Uint64
}

// rules are the rates of a moment, and how often calls have come since it.
type rules struct {
	*limiter
	o        Options
	all      []limit // one, or none
	patterns []string
	tools    []limit // by pattern

	knowing sync.Mutex // guards known
	known   map[string][]limit
}

// What of the names that clients call tools by is kept: they say what they
// like.
const (
	maxKnownTools = 1024
	maxKnownName  = 128 // bytes
)

// NewRates returns nil when there are no limits.
func NewRates(server string, o Options) *Rates {
	if !o.Paced() {
		return nil
	}
	t := &Rates{server: server}
	t.rules.Store(newRules(o))
	return t
}

// Set has other rates count from now on: none, if o has none. What has come before does not
// count, unless they are the same. It does nothing for nil.
func (t *Rates) Set(o Options) {
	if t == nil {
		return
	}
	if was := t.rules.Load().o; was.Rate != o.Rate || !maps.Equal(was.Tools, o.Tools) {
		t.rules.Store(newRules(o))
	}
}

func newRules(o Options) *rules {
	t := &rules{limiter: newLimiter(), o: o, known: map[string][]limit{}}
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

// matching returns the rates that count for a call of a tool. It is not to be
// changed.
func (t *rules) matching(tool string) []limit {
	if len(t.tools) == 0 {
		return t.all
	}
	t.knowing.Lock()
	all, ok := t.known[tool]
	t.knowing.Unlock()
	if ok {
		return all
	}
	all = slices.Clone(t.all)
	for i, pattern := range t.patterns { // which takes long for a long name: it is nobody else's time
		if glob.Match(pattern, tool) {
			all = append(all, t.tools[i])
		}
	}
	if len(tool) > maxKnownName {
		return all
	}
	t.knowing.Lock()
	defer t.knowing.Unlock()
	if len(t.known) >= maxKnownTools {
		clear(t.known)
	}
	t.known[strings.Clone(tool)] = all
	return all
}

// of returns the rates that count for a request. What prepares calls, lists,
// listens and ends things does not count: a client does all of that when it
// begins, and it is either kept here or asked for once.
func (t *rules) of(r *bridge.Request) []limit {
	switch r.Method {
	case "tools/call":
		return t.matching(r.Name())
	case "initialize", "ping", "server/discover", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", era.Listen:
		return nil
	}
	if era.IsList(r.Method) || era.IsTask(r.Method) {
		return nil
	}
	return t.all
}

// refuse returns why a request may not be made now, or nil.
func (t *Rates) refuse(r *bridge.Request) error {
	rules := t.rules.Load()
	of := rules.of(r)
	if len(of) == 0 {
		return nil
	}
	wait, by := rules.take(r.From.Principal, of, func() bool { return goesOn(r.From, r.Message) })
	if wait == 0 {
		return nil
	}
	t.refused.Add(1)
	what, key := "it may be called ", "rate"
	if by.place > 0 {
		pattern := rules.patterns[by.place-1]
		what, key = "tools "+pattern+" may be called ", "tools: "+pattern
		if pattern == r.Name() {
			what = "tool " + pattern + " may be called "
		}
	}
	return &bridge.Error{Server: t.server, Kind: bridge.ErrLimited, After: wait, Public: what + tooOften(r.From.Principal, by.Rate, "limits: "+key, wait)}
}

// tooOften is the rest of what a client is told that calls too often.
func tooOften(principal string, r Rate, key string, wait time.Duration) string {
	who := ""
	if principal != "" {
		who = " by one caller"
	}
	return r.String() + who + " (" + key + "); try again in " + inWords(wait)
}

// inWords rounds a time up to what is worth saying.
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

// goesOn reports whether a request says that it is the next round of one that was
// answered with questions (2026-07-28, multi round-trip requests).
func goesOn(from *bridge.Caller, m *jsonrpc.Message) bool {
	return from.Modern() && era.MayAsk(m.Method) && gjson.GetBytes(m.Params, "requestState").Exists()
}

// Sweep forgets what is as good as forgotten. It does nothing for nil.
func (t *Rates) Sweep(now time.Time) {
	if t != nil {
		t.rules.Load().sweep(now)
	}
}

// Refused returns how many calls came too often. It is 0 for nil.
func (t *Rates) Refused() uint64 {
	if t == nil {
		return 0
	}
	return t.refused.Load()
}

// Wrap returns up, which the calls of clients go to under the server's own names,
// with the rates; nil has none.
func (t *Rates) Wrap(up bridge.Upstream) bridge.Upstream {
	if t == nil {
		return up
	}
	return &paced{up, t}
}

// paced is an Upstream whose calls are refused when they come too often.
type paced struct {
	bridge.Upstream
	rates *Rates
}

// Call makes a call, unless it comes too early.
func (p *paced) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "tools/call" && r.Doubtful() {
		return jsonrpc.InvalidParams(bridge.NameDoubtful), nil
	}
	if err := p.rates.refuse(r); err != nil {
		return nil, err
	}
	return p.Upstream.Call(ctx, r)
}
