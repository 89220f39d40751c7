package lower

import (
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// legacy is a legacy server, with its description for clients of 2026-07-28.
type legacy struct {
	*bridge.Greeting
	info     []byte // its serverInfo, raw; nil for none
	discover []byte // the result of server/discover
	logging  bool
	rewrites *list.Rewrites
	tasks    bool // its tools can be called as tasks
}

// maxServerInfo bounds the serverInfo in each result, in bytes.
const maxServerInfo = 1 << 10

// newLegacy reads a legacy greeting. If lasting is false, the description announces no changes.
func newLegacy(g *bridge.Greeting, lasting bool) *legacy {
	l := &legacy{Greeting: g, rewrites: &list.Rewrites{}}
	l.discover = era.DiscoverResult(g.Result, era.Supported(), lasting)
	if info := gjson.GetBytes(g.Result, "serverInfo"); info.IsObject() {
		raw := info.Raw
		if len(raw) > maxServerInfo {
			raw = `{"name":` + rawjson.Quote(info.Get("name").String()) + `,"version":` + rawjson.Quote(info.Get("version").String()) + `}`
		}
		l.info = []byte(raw)
	}
	caps := gjson.ParseBytes(g.Capabilities)
	l.logging = caps.Get("logging").Exists()
	l.tasks = g.Revision == era.Rev20251125 && caps.Get("tasks.requests.tools.call").Exists()
	return l
}

// legacy returns the description of the server of greeting s, and stores it until the greeting changes.
func (t *Translator) legacy(s *bridge.Greeting) *legacy {
	if l := t.about.Load(); l != nil && l.Greeting == s {
		return l
	}
	g := newLegacy(s, t.s.o.Lasting)
	g.rewrites = t.s.o.Rewrites
	t.about.Store(g)
	return g
}

// cached holds the methods whose results carry a lifetime.
var cached = map[string]bool{
	"tools/list":               true,
	"prompts/list":             true,
	"resources/list":           true,
	"resources/templates/list": true,
	"resources/read":           true,
}

const (
	complete = `"resultType":"complete"`
	uncached = `"ttlMs":0,"cacheScope":"private"` // valid for any result (protocol.md D1.3)
)

// upgrade turns a legacy answer into an answer of 2026-07-28 (protocol.md D5), without a copy of the payload.
func (l *legacy) upgrade(r *bridge.Request, m *jsonrpc.Message) *jsonrpc.Message {
	if m.Error != nil {
		if e := era.Error(r.Method, r.URI(), m.Error, l.Revision, era.LatestModern); !rawjson.Same(e, m.Error) {
			m.Error = slices.Clone(e)
		}
		return m
	}
	if m.Result[rawjson.Space(m.Result, 0)] != '{' {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the server's result is not an object", []byte(`{"bridge":"upstream_invalid"}`))
	}
	if changed := l.rewrites.Result(m, r.Method, l.Revision, era.LatestModern); !rawjson.Same(changed, m.Result) {
		m = m.Replaced(changed)
	}
	m = m.Once()
	f := m.Found()
	members := ""
	add := func(member string) {
		if members != "" {
			members += ","
		}
		members += member
	}
	var edits []jsonrpc.Edit
	set := func(span jsonrpc.Span, name, value string) {
		if span.End > 0 {
			edits = append(edits, jsonrpc.Edit{
				From: span.Value,
				To:   span.End,
				Text: []byte(value),
			})
			return
		}
		add(`"` + name + `":` + value)
	}
	if f.Type.End == 0 && f.TTL.End+f.Scope.End == 0 && cached[r.Method] {
		members = complete + "," + uncached
	} else {
		set(f.Type, "resultType", `"complete"`)
		if cached[r.Method] {
			set(f.TTL, "ttlMs", "0")
			set(f.Scope, "cacheScope", `"private"`)
		}
	}
	if meta := f.Meta.Of(m.Result); l.info != nil {
		if meta == nil {
			add(l.meta())
		} else if meta[0] != '{' {
			meta = []byte("{}")
		}
		if meta != nil {
			edits = append(edits, jsonrpc.Edit{
				From: f.Meta.Value,
				To:   f.Meta.End,
				Text: rawjson.SetFirst(meta, era.KeyServerInfo, l.info),
			})
		}
	}
	if members != "" {
		edits = append(edits, jsonrpc.First(m.Result, members))
	}
	m.Edit(edits...)
	return m
}

// meta returns the member _meta for a result that has none.
func (l *legacy) meta() string { return `"_meta":{"` + era.KeyServerInfo + `":` + string(l.info) + `}` }

// enveloped returns a result of the bridge itself.
func (l *legacy) enveloped(members string) *jsonrpc.Message {
	result := `{` + members
	if l.info != nil {
		result += "," + l.meta()
	}
	return jsonrpc.NewResult(nil, rawjson.OneLine([]byte(result+`}`)))
}
