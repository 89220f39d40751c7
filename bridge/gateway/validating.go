package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
	"github.com/mcp-bridge/bridge/bridge/validate"
)

// validating is an Upstream that checks the arguments of tool calls against the
// input schema that was last listed for the tool. A call whose arguments are
// wrong is answered with a result that says so, which models read, and does not
// reach the server. What is right goes on as it is.
type validating struct {
	bridge.Upstream
	r      *route
	modern bool // the server is of the stateless era, also when it has not been asked yet
}

// validating returns up with its calls checked, if the server's are.
func (r *route) validating(up bridge.Upstream, modern bool) bridge.Upstream {
	if r.checks == nil {
		return up
	}
	return &validating{up, r, modern}
}

// Call makes a call, unless it is one of a tool with wrong arguments.
func (u *validating) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case list.Tools.Method():
		a, err := u.Upstream.Call(ctx, r)
		if err == nil && a.Error == nil {
			c := u.r.catalog(r.From.Principal)
			c.studied.At(a, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.schemas.study(a.Result)
			})
		}
		return a, err
	case "tools/call":
		if no := u.refusal(ctx, r); no != nil {
			return no, nil
		}
	}
	return u.Upstream.Call(ctx, r)
}

// checks is what a server's calls are checked with.
type checks struct {
	cache *validate.Cache

	mu     sync.Mutex // guards warned
	warned map[string]bool
}

// maxChecked is how many schemas of a server are kept compiled.
const maxChecked = 256

func newChecks() *checks {
	return &checks{cache: validate.NewCache(maxChecked), warned: map[string]bool{}}
}

// refusal returns the answer to a call of a tool whose arguments are wrong, or
// nil. What is not known of a tool, or cannot be used, is no reason to refuse a
// call. Nor is a schema that has changed in the meantime: before a call is
// refused, the tools are listed again.
func (u *validating) refusal(ctx context.Context, r *bridge.Request) *jsonrpc.Message {
	args, ok := arguments(r.Params)
	if r.Doubtful() || !ok {
		return jsonrpc.InvalidParams("params must not have name or arguments twice, or a member that differs from them in case only")
	}
	c, name := u.r.catalog(r.From.Principal), r.Name()
	schema, edition, known := c.schema(name)
	if !known {
		u.relist(ctx, r, c, edition, time.Time{})
		schema, _, _ = c.schema(name)
	}
	faults := u.r.verify(name, schema, args)
	if known && faults != nil {
		u.relist(ctx, r, c, edition, time.Now().Add(-relistEvery))
		schema, _, _ = c.schema(name)
		faults = u.r.verify(name, schema, args)
	}
	switch {
	case faults == nil:
		return nil
	case !r.From.Modern() && gjson.GetBytes(r.Params, "task").Exists(): // the client waits for a task, not a result
		return jsonrpc.InvalidParams(faults.Error())
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":`+rawjson.Quote(faults.Error())+`}],"isError":true}`))
}

// verify returns what is wrong with arguments; nil if it is nothing, or nothing
// can be said.
func (r *route) verify(tool string, schema, args []byte) validate.Faults {
	if schema == nil {
		return nil
	}
	err := r.checks.cache.Verify(schema, args)
	if faults, ok := errors.AsType[validate.Faults](err); ok {
		return faults.Of(tool)
	}
	if err != nil && r.checks.first(tool) {
		r.log.Warn("the arguments of a tool are not checked", "tool", tool, "err", err)
	}
	return nil
}

// first reports whether a tool has not been warned of yet.
func (c *checks) first(tool string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warned[tool] || len(c.warned) >= maxCatalog {
		return false
	}
	c.warned[tool] = true
	return true
}

// arguments returns those of a call, raw; nil when there are none. It reports
// false when it cannot be told which ones the server would take.
func arguments(params []byte) (args []byte, ok bool) {
	found := 0
	gjson.ParseBytes(params).ForEach(func(name, value gjson.Result) bool {
		switch {
		case name.Str == "arguments" && value.Type == gjson.Null:
			found++ // some clients write it for none
		case name.Str == "arguments":
			found++
			args = []byte(value.Raw)
		case strings.EqualFold(name.Str, "arguments"):
			found = 2
		}
		return found < 2
	})
	return args, found < 2
}

// schemas are the input schemas of tools, by the server's names of them. One is
// nil when the server has the tool without it, or does not list the tool.
type schemas struct {
	of     map[string][]byte
	bytes  int
	filled int // counts how often there was no more room
}

// maxSchemas bounds the schemas that are kept of one catalogue, in bytes.
const maxSchemas = 16 << 20

// study notes the schemas of a page of tools. It reports whether there was room
// for them.
func (s *schemas) study(page []byte) bool {
	before := s.filled
	list.Tools.Each(page, func(item []byte, key string) {
		var schema []byte
		if in := gjson.GetBytes(item, "inputSchema"); in.Exists() {
			schema = []byte(in.Raw)
		}
		s.note(key, schema)
	})
	return s.filled == before
}

// note notes the schema of a tool.
func (s *schemas) note(tool string, schema []byte) {
	s.bytes += len(schema) - len(s.of[tool])
	if s.of == nil || len(s.of) >= maxCatalog || s.bytes > maxSchemas {
		s.of, s.bytes = map[string][]byte{}, len(schema) // it is filled again when it is needed
		s.filled++
	}
	s.of[tool] = schema
}

// schema returns the schema of a tool, the number of the list that has said so,
// and whether anything is known.
func (c *catalog) schema(tool string) (schema []byte, edition int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, known = c.schemas.of[tool]
	return schema, c.edition, known
}

// relistEvery is how often wrong arguments are a reason to ask the server anew
// what its tools want.
const relistEvery = time.Second

// relist lists the tools for a call, unless that has happened since edition. What
// is kept of a list will do if it is not older than since.
func (u *validating) relist(ctx context.Context, r *bridge.Request, c *catalog, edition int, since time.Time) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return
	}
	if _, now, _ := c.schema(r.Name()); now != edition {
		return
	}
	short, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	found, whole := u.list(short, r, since)
	if ctx.Err() != nil {
		return // it was given up: whoever waits tries it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edition++
	if !whole {
		return
	}
	if _, listed := found.of[r.Name()]; !listed {
		found.note(r.Name(), nil) // the server may have it all the same
	}
	c.schemas = found
	c.studied.Forget()
}

// list lists the tools on behalf of a call. It reports whether it got to the
// end of the list.
func (u *validating) list(ctx context.Context, r *bridge.Request, since time.Time) (found schemas, whole bool) {
	modern := u.modern || u.Upstream.Server().Modern()
	params := []byte("{}")
	var at mark
	for {
		m := jsonrpc.NewRequest(list.Tools.Method(), params)
		if modern {
			m = r.From.Request(list.Tools.Method(), params)
		}
		a, err := u.Upstream.Call(ctx, &bridge.Request{Message: m, From: r.From, Header: r.Header, NotBefore: since})
		if err != nil || a.Error != nil {
			a.Release()
			return found, false
		}
		found.study(a.Result)
		next, more := more(a.Result)
		a.Release()
		if !more || !at.follow(next) {
			return found, true
		}
		params = []byte(`{"cursor":` + rawjson.Quote(next) + `}`)
	}
}
