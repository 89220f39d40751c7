package bridge

import (
	"context"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// initialize answers with what is known of the servers. Those of which nothing
// is known yet are asked; a child that was seen before is not started because a
// client has come.
func (g *merge) initialize(ctx context.Context) (*jsonrpc.Message, error) {
	var unknown []*member
	for _, m := range g.members {
		switch {
		case m.r.said() != nil:
		case m.r.failing() != nil:
			m.leaveOut(m.r.failing())
		default:
			unknown = append(unknown, m)
		}
	}
	known := len(g.members) - len(unknown)
	late, err := g.gather(ctx, unknown, greetPatience, gathering{
		do: func(ctx context.Context, m *member) error {
			a, err := m.call(ctx, &Request{Message: request("initialize", g.caller.Params), From: g.caller})
			a.Release()
			return err
		},
		overdue: func(m *member) { m.skip() },
		after: func(m *member, err error) {
			if err != nil {
				m.leaveOut(err)
				return
			}
			m.back()
		},
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && known == 0 {
		return nil, err // no server can be had: that is no success
	}
	for m := range late {
		m.r.log.Warn("not ready yet: it joins when it is")
	}
	return jsonrpc.NewResult(nil, g.greeting()), nil
}

// skip leaves the server out until back is called.
func (m *member) skip() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absent = true
}

// greeting is the result of initialize: all that the servers can do together.
// While nothing is known of one, it may do anything.
func (g *merge) greeting() []byte {
	caps := []byte("{}")
	var instructions []string
	for _, m := range g.members {
		s := m.r.said()
		if s == nil {
			caps = union(caps, []byte(`{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}}`))
			continue
		}
		caps = union(caps, s.Capabilities)
		if text := gjson.GetBytes(s.Result, "instructions").String(); text != "" {
			instructions = append(instructions, m.r.o.Name+":\n"+text)
		}
	}
	caps = with(caps, "tasks", nil) // a task's id does not say whose it is
	for _, c := range listChanged {
		if has := gjson.GetBytes(caps, c.capability); has.Exists() { // a server that comes or goes changes the list
			caps = with(caps, c.capability, with([]byte(has.Raw), "listChanged", []byte("true")))
		}
	}
	result := `{"protocolVersion":` + quote(g.caller.Revision) + `,"capabilities":` + string(caps) +
		`,"serverInfo":{"name":"mcp-bridge","version":` + quote(g.b.version) + `}`
	if len(instructions) > 0 {
		result += `,"instructions":` + quote(strings.Join(instructions, "\n\n"))
	}
	return []byte(result + "}")
}

// union returns a capability object with all that either has. Of what both
// have, and is no object, true counts, and else the first.
func union(a, b []byte) []byte {
	gjson.ParseBytes(b).ForEach(func(name, theirs gjson.Result) bool {
		ours := gjson.GetBytes(a, gjson.Escape(name.Str))
		switch {
		case !ours.Exists() || ours.Type == gjson.False && theirs.Type == gjson.True:
			a = with(a, name.Str, []byte(theirs.Raw))
		case ours.IsObject() && theirs.IsObject():
			a = with(a, name.Str, union([]byte(ours.Raw), []byte(theirs.Raw)))
		}
		return true
	})
	return a
}
