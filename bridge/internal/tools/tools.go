// Package tools stores the rules of a server's tools for calls. These are the schema of arguments, headers that repeat
// arguments, and whether a call may be repeated. It takes the rules from the lists that pass, for each principal. It
// requests a list if a call needs one.
//
// It checks arguments and sets headers. It repeats only a call that the server did not execute because of wrong
// headers.
package tools

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options selects the rules of tools that are stored beside their headers.
type Options struct {
	Check      bool // check the arguments of calls
	Idempotent bool // find out which calls may be repeated
}

// Tools stores the known rules of one server's tools.
type Tools struct {
	server string
	log    *slog.Logger
	wanted atomic.Pointer[wanted]

	mu     sync.Mutex // guards the rest
	of     map[string]*memory
	warned map[string]bool // tools with a logged warning about an unusable schema
}

// wanted is the internal form of Options.
type wanted struct {
	checks     *validate.Cache // of compiled schemas; nil if arguments are not checked
	idempotent bool
}

// These constants bound the stored data (protocol.md F).
const (
	maxPrincipals = 256      // with stored tools
	maxTools      = 20_000   // of one principal
	maxSchemas    = 16 << 20 // bytes of their schemas
	maxChecked    = 256      // compiled schemas of a server
)

// New returns the Tools of the server of that name, without any tool.
func New(server string, o Options, log *slog.Logger) *Tools {
	t := &Tools{
		server: server,
		log:    log,
		warned: map[string]bool{},
	}
	t.wanted.Store(&wanted{})
	t.Set(o)
	return t
}

// Set replaces the options. If they demand more, all tools are forgotten.
func (t *Tools) Set(o Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, now := t.wanted.Load(), &wanted{idempotent: o.Idempotent}
	if o.Check {
		if now.checks = was.checks; now.checks == nil {
			now.checks = validate.NewCache(maxChecked)
		}
	}
	t.wanted.Store(now) // first, so that tools learned from now on meet it
	if t.of == nil || now.checks != nil && was.checks == nil || now.idempotent && !was.idempotent {
		t.of = map[string]*memory{}
	}
}

// Wrap returns an Upstream that checks the arguments of tool calls, and sets their headers for a modern server.
// It wraps the cache, because it sometimes needs fresh lists.
func (t *Tools) Wrap(up bridge.Upstream) bridge.Upstream { return &checked{up, t} }

// Idempotent reports whether the principal's list marks the tool as one that may be called twice.
func (t *Tools) Idempotent(principal, tool string) bool {
	e, _, _ := t.memory(principal).get(tool)
	return e.idempotent
}

// memory holds the tools that one principal sees. All its sessions write to it, so it may hold removed tools.
type memory struct {
	seen list.Memo
	turn chan struct{} // held while the tools are listed for a call

	mu      sync.Mutex // guards the rest
	tools   table
	edition int // counts the lists made for calls
}

// table holds tools by the server's names.
type table struct {
	of     map[string]entry
	bytes  int // of schemas
	filled int // counts how often it was full and cleared
}

type entry struct {
	listed     bool        // listed by the server; otherwise only called
	schema     []byte      // of the arguments; nil if absent or not wanted
	mirror     *era.Mirror // the headers of its calls; nil for none
	idempotent bool        // it may be called twice
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
			delete(t.of, other) // it is filled again on demand
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

// read stores the tools of a page, and returns those with invalid header annotations. first marks the
// first page of a list: tools that it lacks lose their idempotent mark.
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
		t.of, t.bytes = map[string]entry{}, len(e.schema) // it is filled again on demand
		t.filled++
	}
	t.of[name] = e
}

// idempotent reports whether a tool with these annotations may be called twice. Only explicit annotations count.
// If they contradict each other, the answer is no.
func idempotent(annotations gjson.Result) bool {
	if annotations.Get("idempotentHint").Type == gjson.True {
		return true
	}
	return annotations.Get("readOnlyHint").Type == gjson.True && annotations.Get("destructiveHint").Type != gjson.True
}

// checked is an Upstream that makes calls of tools match their entries.
type checked struct {
	bridge.Upstream
	t *Tools
}

// Call makes a call, unless it calls a tool with invalid arguments.
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

// learn stores the tools of a list, and returns the list for its client. It hides tools of a modern server on HTTP
// with invalid header annotations. In other servers such annotations have no effect, but a modern client
// on HTTP would drop the tool: so the invalid ones are removed from the tools (protocol.md D1.8, D4).
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

// list lists the tools for a call, in the era of the call. A cached list that is not older than since is good enough.
// list reports whether it read the whole list.
func (c *checked) list(ctx context.Context, r *bridge.Request, since time.Time) (found table, whole bool) {
	modern := c.Upstream.Server().Modern() || gjson.GetBytes(r.Meta(), gjson.Escape(era.KeyVersion)).Exists()
	whole, cut := list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		m := jsonrpc.NewRequest(list.Tools.Method(), params)
		if modern {
			m = r.From.Request(list.Tools.Method(), params)
		}
		return c.Upstream.Call(ctx, &bridge.Request{
			Message:   m,
			From:      r.From,
			Header:    r.Header,
			Identity:  r.Identity,
			NotBefore: since,
		})
	}, func(page []byte, _, _ bool) { c.t.read(&found, page, false) })
	if cut != nil {
		c.t.log.Debug("list cut off", "method", list.Tools.Method(), "err", cut)
	}
	return found, whole
}

// replace stores a whole list of tools. The tool called is known even if it is not listed, because the server
// may have it.
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
