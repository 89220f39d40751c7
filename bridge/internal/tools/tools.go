// Package tools knows what the entries of a server's list of tools ask of calls:
// the schema of their arguments, the headers that repeat some of them, and whether a
// call may be made twice. It learns that from the lists that pass, for each principal,
// and asks for a list itself when a call needs one.
//
// It checks arguments and sets headers; it does not make calls twice, except one that
// the server has not executed since its headers were wrong.
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

// Options say what is to be known of the tools beyond their headers.
type Options struct {
	Check      bool // the arguments of calls are checked
	Idempotent bool // somebody asks which calls may be made twice
}

// Tools is what is known of the tools of one server.
type Tools struct {
	server string
	log    *slog.Logger
	wanted atomic.Pointer[wanted]

	mu     sync.Mutex // guards the rest
	of     map[string]*memory
	warned map[string]bool // tools whose schema cannot be used
}

// wanted is what Options ask for.
type wanted struct {
	checks     *validate.Cache // of compiled schemas; nil when arguments are not checked
	idempotent bool
}

// Limits of what is known (protocol.md F).
const (
	maxPrincipals = 256      // whose tools are known
	maxTools      = 20_000   // of one principal
	maxSchemas    = 16 << 20 // bytes of their schemas
	maxChecked    = 256      // schemas of a server that are kept compiled
)

// New knows nothing yet of the tools of the server of that name.
func New(server string, o Options, log *slog.Logger) *Tools {
	t := &Tools{server: server, log: log, warned: map[string]bool{}}
	t.wanted.Store(&wanted{})
	t.Set(o)
	return t
}

// Set has other options count from now on. What is known is forgotten if they ask for more.
func (t *Tools) Set(o Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, now := t.wanted.Load(), &wanted{idempotent: o.Idempotent}
	if o.Check {
		if now.checks = was.checks; now.checks == nil {
			now.checks = validate.NewCache(maxChecked)
		}
	}
	t.wanted.Store(now) // first: what is learned from now on is learned for it
	if t.of == nil || now.checks != nil && was.checks == nil || now.idempotent && !was.idempotent {
		t.of = map[string]*memory{}
	}
}

// Wrap returns up with the arguments of tools checked, and with the headers that
// repeat some of them for a modern server. It stands above what is kept, since it
// asks for lists as they are now.
func (t *Tools) Wrap(up bridge.Upstream) bridge.Upstream { return &checked{up, t} }

// Idempotent reports whether the server has listed a tool to the principal as one
// that may be called twice.
func (t *Tools) Idempotent(principal, tool string) bool {
	e, _, _ := t.memory(principal).get(tool)
	return e.idempotent
}

// memory is what is known of the tools that one principal sees. All of its sessions
// write to it, so it may know tools that are gone.
type memory struct {
	seen list.Memo
	turn chan struct{} // takes one: held while the tools are listed to know them

	mu      sync.Mutex // guards the rest
	tools   table
	edition int // counts how often they were listed to know them
}

// table has tools by the server's names of them.
type table struct {
	of     map[string]entry
	bytes  int // of schemas
	filled int // counts how often there was no more room
}

type entry struct {
	listed     bool        // otherwise it was only called
	schema     []byte      // of its arguments; nil when it has none, or none is wanted
	mirror     *era.Mirror // the headers of its calls; nil for none
	idempotent bool        // it may be called twice
}

// memory returns what is known of the tools that the principal sees.
func (t *Tools) memory(principal string) *memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.of[principal]
	if m == nil {
		for other := range t.of {
			if len(t.of) < maxPrincipals {
				break
			}
			delete(t.of, other) // it is filled again when it is needed
		}
		m = &memory{turn: make(chan struct{}, 1)}
		t.of[principal] = m
	}
	return m
}

// get returns what is known of a tool, the number of the list that has said so, and
// whether anything is known.
func (m *memory) get(tool string) (e entry, edition int, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known = m.tools.of[tool]
	return e, m.edition, known
}

// read notes the tools of a page, and returns those whose annotations ask for headers
// that cannot be. first says that the list begins anew: of a tool that it
// does not have any more it is not known whether it may be called twice.
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
		t.of, t.bytes = map[string]entry{}, len(e.schema) // it is filled again when it is needed
		t.filled++
	}
	t.of[name] = e
}

// idempotent reports whether a tool of these annotations may be called twice. Only
// what is said counts, and of what contradicts itself the worse.
func idempotent(annotations gjson.Result) bool {
	if annotations.Get("idempotentHint").Type == gjson.True {
		return true
	}
	return annotations.Get("readOnlyHint").Type == gjson.True && annotations.Get("destructiveHint").Type != gjson.True
}

// checked is an Upstream whose calls of tools are such as their entries ask for.
type checked struct {
	bridge.Upstream
	t *Tools
}

// Call makes a call, unless it is one of a tool with wrong arguments.
func (u *checked) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case list.Tools.Method():
		a, err := u.Upstream.Call(ctx, r)
		if err == nil && a.Error == nil {
			a = u.learn(r, a)
		}
		return a, err
	case "tools/call":
		if no := u.refusal(ctx, r); no != nil {
			return no, nil
		}
		if s := u.Upstream.Server(); s.Modern() && s.Mirrors {
			return u.headed(ctx, r)
		}
	}
	return u.Upstream.Call(ctx, r)
}

// learn notes what a list says of tools, and returns it as its client may have it.
// A modern server that has annotations means them: a tool that asks for headers that
// cannot be is left out. A legacy one has never meant them, so for a client to
// which they mean something they are removed, and not the tool (protocol.md D1.8).
func (u *checked) learn(r *bridge.Request, a *jsonrpc.Message) *jsonrpc.Message {
	s, wanted := u.Upstream.Server(), u.t.wanted.Load()
	if wanted.checks == nil && !wanted.idempotent && !s.Modern() && !r.From.Modern() {
		return a
	}
	m := u.t.memory(r.From.Principal)
	var bad map[string]error
	m.seen.At(a, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		before := m.tools.filled
		bad = u.t.read(&m.tools, a.Result, !gjson.GetBytes(r.Params, "cursor").Exists())
		return len(bad) == 0 && m.tools.filled == before
	})
	switch {
	case len(bad) == 0:
	case s.Modern() && s.Mirrors:
		for name, err := range bad {
			u.t.log.Warn("tool left out: its annotation asks for a header that cannot be", "tool", name, "err", err)
		}
		return list.Tools.Edit(a, func(item []byte, name string) []byte {
			if bad[name] != nil {
				return nil
			}
			return item
		})
	case !s.Modern() && r.From.Modern():
		return list.Tools.Edit(a, func(item []byte, name string) []byte {
			if bad[name] != nil {
				return rawjson.SetFirst(item, "inputSchema", era.StripMirror([]byte(gjson.GetBytes(item, "inputSchema").Raw)))
			}
			return item
		})
	}
	return a
}

// listPatience is how long a call waits for the tools to be listed for it.
const listPatience = 10 * time.Second

// list lists the tools on behalf of a call, in the form of its era. What is kept of a
// list will do if it is not older than since. It reports whether it got to the end of
// the list.
func (u *checked) list(ctx context.Context, r *bridge.Request, since time.Time) (found table, whole bool) {
	modern := u.Upstream.Server().Modern() || gjson.GetBytes(r.Meta(), gjson.Escape(era.KeyVersion)).Exists()
	whole, cut := list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		m := jsonrpc.NewRequest(list.Tools.Method(), params)
		if modern {
			m = r.From.Request(list.Tools.Method(), params)
		}
		return u.Upstream.Call(ctx, &bridge.Request{Message: m, From: r.From, Header: r.Header, Identity: r.Identity, NotBefore: since})
	}, func(page []byte, _, _ bool) { u.t.read(&found, page, false) })
	if cut != nil {
		u.t.log.Debug("list cut off", "method", list.Tools.Method(), "err", cut)
	}
	return found, whole
}

// replace notes that the tools are these, and that one was called, which the server
// may have all the same.
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
