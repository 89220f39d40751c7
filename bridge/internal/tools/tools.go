// Package tools stores the rules of a server's tools for calls. The rules are the schema of the arguments, the
// headers that repeat arguments, and whether a call may be repeated. Tools reads the rules from the lists that
// servers send to clients, for each principal. It requests a list if a call needs one.
//
// Tools checks arguments and sets headers. It repeats a call only if the server rejected the headers, and so did not
// execute the call.
package tools

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/listing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options selects the rules that Tools stores. Headers are always stored.
type Options struct {
	Check      bool // check the arguments of calls
	Idempotent bool // find out which calls may be repeated
	// Overrides are the operator's changes to arguments; nil for none.
	Overrides arguments.Overrides
}

// Tools stores the known rules of one server's tools.
type Tools struct {
	server string
	log    *slog.Logger
	wanted atomic.Pointer[wanted]

	mu     sync.Mutex // guards the rest
	of     map[string]*memory
	warned map[string]bool // tools, and tools with arguments, that a warning was logged about: see first and edited
}

// wanted is the internal form of Options.
type wanted struct {
	checks     *validate.Cache // the compiled schemas; nil if arguments are not checked
	idempotent bool
	overrides  arguments.Overrides
}

// These constants bound the stored data (protocol.md F).
const (
	maxPrincipals = 256      // principals with stored tools
	maxTools      = 20_000   // tools of one principal
	maxSchemas    = 16 << 20 // bytes of the schemas of one principal's tools
	maxChecked    = 256      // compiled schemas of a server
)

// New returns the Tools of the server of that name. They know no tool yet.
func New(server string, o Options, log *slog.Logger) *Tools {
	t := &Tools{
		server: server,
		log:    log,
	}
	t.wanted.Store(&wanted{})
	t.Set(o)
	return t
}

// Set replaces the options. If they add a rule, Set forgets all tools, because that rule was not stored for them.
func (t *Tools) Set(o Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, now := t.wanted.Load(), &wanted{idempotent: o.Idempotent, overrides: o.Overrides}
	if o.Check {
		if now.checks = was.checks; now.checks == nil {
			now.checks = validate.NewCache(maxChecked)
		}
	}
	t.wanted.Store(now) // first: tools that are stored from now on have all rules
	if t.of == nil || now.checks != nil && was.checks == nil || now.idempotent && !was.idempotent || !reflect.DeepEqual(now.overrides, was.overrides) {
		t.of, t.warned = map[string]*memory{}, map[string]bool{}
	}
}

// Wrap returns an Upstream that checks the arguments of tool calls as clients see them, changes them as the operator
// wants, and sets their headers for a modern server. up includes the cache, because Tools sometimes needs a newer list
// than the cached one.
func (t *Tools) Wrap(up bridge.Upstream) bridge.Upstream { return &checked{&overridden{up, t}, t} }

// Idempotent reports whether the principal's list marks the tool as one that may be called twice.
func (t *Tools) Idempotent(principal, tool string) bool {
	e, _, _ := t.memory(principal).get(tool)
	return e.idempotent
}

// memory holds the tools that one principal sees. All sessions of the principal write to it, so it may hold tools
// that the server has removed.
type memory struct {
	seen list.Memo
	turn chan struct{} // a lock, held while the tools are listed for a call

	mu      sync.Mutex // guards the rest
	tools   table
	edition int              // counts the lists made for calls
	plans   map[string]*plan // of listed tools whose arguments the operator changes
}

// table holds tools by the server's names.
type table struct {
	of     map[string]entry
	bytes  int // of schemas
	filled int // counts how often the table was full and was cleared
}

type entry struct {
	listed     bool        // the server lists the tool; otherwise clients only called it
	schema     []byte      // of the arguments; nil if absent or not wanted
	mirror     *era.Mirror // the headers of its calls; nil for none
	idempotent bool        // the tool may be called twice
}

func (t *Tools) memory(principal string) *memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.of[principal]
	if m == nil {
		for other := range t.of {
			if len(t.of) < maxPrincipals {
				break
			}
			delete(t.of, other) // filled again on demand
		}
		m = &memory{turn: make(chan struct{}, 1)}
		t.of[principal] = m
	}
	return m
}

// get returns the entry of a tool, the edition of the memory, and whether the tool is known.
func (m *memory) get(tool string) (e entry, edition int, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known = m.tools.of[tool]
	return e, m.edition, known
}

// read stores the tools of a page. bad holds the faults of invalid header annotations by tool; nil if there
// are none. first marks the first page of a list: read then clears the idempotent marks of all stored tools, and the
// pages of the list set them again.
func (t *Tools) read(into *table, page []byte, first bool) (bad map[string]error) {
	mirrored, wanted := rawjson.Mentions(page, "x-mcp-header"), t.wanted.Load()
	hinted := wanted.idempotent && rawjson.Mentions(page, "Hint")
	if first && wanted.idempotent {
		for name, e := range into.of {
			e.idempotent = false
			into.of[name] = e
		}
	}
	list.Tools.Each(page, func(item []byte, name string) {
		e := entry{listed: true}
		var schema []byte
		if wanted.checks != nil || mirrored {
			if in := gjson.GetBytes(item, "inputSchema"); in.Exists() {
				schema = []byte(in.Raw)
			}
		}
		if wanted.checks != nil {
			e.schema = schema
		}
		if mirrored {
			var err error
			if e.mirror, err = era.NewMirror(schema); err != nil {
				if e.mirror = nil; bad == nil {
					bad = map[string]error{}
				}
				bad[name] = err
			}
		}
		e.idempotent = hinted && idempotent(gjson.GetBytes(item, "annotations"))
		into.note(name, e)
	})
	return bad
}

func (t *table) note(name string, e entry) {
	t.bytes += len(e.schema) - len(t.of[name].schema)
	if t.of == nil || len(t.of) >= maxTools || t.bytes > maxSchemas {
		t.of, t.bytes = map[string]entry{}, len(e.schema) // filled again on demand
		t.filled++
	}
	t.of[name] = e
}

// idempotent reports whether a tool with these annotations may be called twice. idempotentHint is enough.
// readOnlyHint is enough unless destructiveHint contradicts it.
func idempotent(annotations gjson.Result) bool {
	if annotations.Get("idempotentHint").Type == gjson.True {
		return true
	}
	return annotations.Get("readOnlyHint").Type == gjson.True && annotations.Get("destructiveHint").Type != gjson.True
}

// checked is an Upstream that checks the arguments of tool calls and sets their headers, by the stored rules.
type checked struct {
	bridge.Upstream
	t *Tools
}

// Call passes on a call, and stores the tools of a list that passes. If a tool call has invalid arguments, Call
// answers it.
func (c *checked) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case list.Tools.Method():
		m, err := c.Upstream.Call(ctx, r)
		if err == nil && m.Error == nil {
			m = c.learn(r, m)
		}
		return m, err
	case "tools/call":
		if no := c.refusal(ctx, r); no != nil {
			return no, nil
		}
		if g := c.Upstream.Server(); g.Modern() && g.Mirrors {
			return c.headed(ctx, r)
		}
	}
	return c.Upstream.Call(ctx, r)
}

// learn stores the tools of a page, and returns the page for the client. If a tool of a modern server on HTTP has an
// invalid header annotation, learn hides the tool. For other servers such an annotation has no effect, but a
// modern client on HTTP would drop the tool: learn removes the tool's header annotations (protocol.md D1.8, D4).
func (c *checked) learn(r *bridge.Request, a *jsonrpc.Message) *jsonrpc.Message {
	g, wanted := c.Upstream.Server(), c.t.wanted.Load()
	if wanted.checks == nil && !wanted.idempotent && !g.Modern() && !r.From.Modern() {
		return a
	}
	m := c.t.memory(r.From.Principal)
	var bad map[string]error
	m.seen.Once(a, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		before := m.tools.filled
		bad = c.t.read(&m.tools, a.Result, !gjson.GetBytes(r.Params, "cursor").Exists())
		return len(bad) == 0 && m.tools.filled == before
	})
	switch {
	case len(bad) == 0:
	case g.Modern() && g.Mirrors:
		for name, err := range bad {
			c.t.log.Warn("tool hidden: its annotation names an invalid header", "tool", name, "err", err)
		}
		return list.Tools.Edit(a, func(item []byte, name string) []byte {
			if bad[name] != nil {
				return nil
			}
			return item
		})
	case r.From.Modern():
		return list.Tools.Edit(a, func(item []byte, name string) []byte {
			if bad[name] != nil {
				return rawjson.SetFirst(item, "inputSchema", era.StripMirror([]byte(gjson.GetBytes(item, "inputSchema").Raw)))
			}
			return item
		})
	}
	return a
}

// listPatience is how long a call waits for the list of tools.
const listPatience = 10 * time.Second

// list requests the list of tools for a call, in the era of the call. Cached pages that are not older than since are
// good enough. whole reports whether list has read all pages.
func (c *checked) list(ctx context.Context, r *bridge.Request, since time.Time) (found table, whole bool) {
	modern := c.Upstream.Server().Modern() || gjson.GetBytes(r.Meta(), gjson.Escape(era.KeyVersion)).Exists()
	whole, cut := list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		own := listing.Request(r, params, modern)
		own.NotBefore = since
		return c.Upstream.Call(ctx, own)
	}, func(page []byte, _, _ bool) { c.t.read(&found, page, false) })
	if cut != nil {
		c.t.log.Debug("list cut off", "method", list.Tools.Method(), "err", cut)
	}
	return found, whole
}

// replace stores a whole list of tools. The tool called becomes known even if the list lacks it, because a server may
// have tools that it does not list.
func (m *memory) replace(found table, called string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.edition++
	if _, listed := found.of[called]; !listed {
		found.note(called, entry{})
	}
	m.tools = found
	m.seen.Forget()
}
