package aggregate

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// initialize answers initialize and server/discover from the servers' greetings. initialize asks only servers without
// a stored greeting, so that a new client starts no child whose greeting is stored. initialize also tries servers
// that failed recently, but waits only retryPatience for them.
func (s *session) initialize(ctx context.Context) (*jsonrpc.Message, error) {
	var fresh, failing []*member
	known := 0
	for _, m := range s.members() {
		switch {
		case m.s.Failing() != nil:
			failing = append(failing, m)
		case m.greeting() == nil:
			fresh = append(fresh, m)
		}
		if m.greeting() != nil {
			known++
		}
	}
	var again error // from the servers that failed recently
	var wg sync.WaitGroup
	wg.Go(func() { _, again = s.gather(ctx, failing, greetCall{s, retryPatience}, 0) })
	late, err := s.gather(ctx, fresh, greetCall{s, greetPatience}, 0)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// If no server can be used, the client gets an error, not an empty greeting.
	switch {
	case known > 0 || len(late) > 0 || err == nil && len(fresh) > 0:
	case err != nil && (again != nil || len(failing) == 0):
		return nil, err
	case again != nil && len(fresh) == 0:
		return nil, again
	}
	if s.caller.Modern() {
		return jsonrpc.NewResult(nil, s.discovered()), nil
	}
	return jsonrpc.NewResult(nil, s.greeting()), nil
}

// greetCall is the question for the greetings of servers.
type greetCall struct {
	s     *session
	waits time.Duration
}

func (g greetCall) ask(ctx context.Context, m *member) error {
	a, err := m.call(ctx, g.s.greet())
	a.Release()
	return err
}

func (greetCall) overdue(m *member) { m.setAbsent(m.s.Failing()) }

func (greetCall) after(m *member, err error) {
	if err != nil {
		m.leaveOut(err)
		return
	}
	m.s.Log.Debug("joined the aggregate")
	m.back()
}

func (g greetCall) patience(*member) time.Duration { return g.waits }
func (greetCall) moved() <-chan struct{}           { return nil }
func (greetCall) needsOne() bool                   { return false }

// discovered returns the result of server/discover. The result offers tasks if a modern server offers them.
func (s *session) discovered() []byte {
	result := era.DiscoverResult(s.greeting(), era.Supported(), true)
	for _, m := range s.members() {
		if one := m.greeting(); one.Modern() && gjson.GetBytes(one.Capabilities, "extensions."+gjson.Escape(era.TasksExtension)).Exists() {
			caps := []byte(gjson.GetBytes(result, "capabilities").Raw)
			caps = union(caps, []byte(`{"extensions":{"`+era.TasksExtension+`":{}}}`))
			return rawjson.SetFirst(result, "capabilities", caps)
		}
	}
	return result
}

// greet returns the request that makes a server send its greeting.
func (s *session) greet() *bridge.Request {
	if s.caller.Modern() {
		return s.request("server/discover", nil)
	}
	return s.request("initialize", s.caller.Params)
}

// setAbsent records why lists leave the server out. If fails is nil, lists include the server, and wait for it while
// it starts.
func (m *member) setAbsent(fails error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absent = fails
}

// greeting returns the result of initialize, with the union of all capabilities. A server without a greeting counts
// as a server with all capabilities.
func (s *session) greeting() []byte {
	caps := []byte("{}")
	var instructions, lacking []string
	for _, m := range s.members() {
		one := m.greeting()
		if why := cmp.Or(m.leftOut(), m.s.Failing()); why != nil {
			lacking = append(lacking, m.s.Name+" ("+m.lacking(why).Why+")")
		} else if one == nil {
			lacking = append(lacking, m.s.Name+" ("+errStarting.Error()+")")
		}
		if one == nil {
			caps = union(caps, []byte(`{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}}`))
			continue
		}
		caps = union(caps, one.Capabilities)
		if text := gjson.GetBytes(one.Result, "instructions").String(); text != "" {
			instructions = append(instructions, m.s.Name+":\n"+text)
		}
	}
	if len(lacking) > 0 {
		instructions = append(instructions, "Lists may lack these servers at first: "+strings.Join(lacking, ", ")+".")
	}
	caps = era.WithoutTasks(caps) // the id of a legacy task does not name its server
	for _, k := range list.Announced {
		if has := gjson.GetBytes(caps, k.Capability()); has.Exists() { // each server that comes or goes changes the list
			caps = rawjson.Set(caps, k.Capability(), rawjson.Set([]byte(has.Raw), "listChanged", []byte("true")))
		}
	}
	result := `{"protocolVersion":` + rawjson.Quote(s.caller.Revision) + `,"capabilities":` + string(caps) +
		`,"serverInfo":` + string(s.a.o.Info)
	if len(instructions) > 0 {
		result += `,"instructions":` + rawjson.Quote(strings.Join(instructions, "\n\n"))
	}
	return []byte(result + "}")
}

// union returns the capabilities that a or b has. union merges objects. Where other values differ, union takes true,
// or else the value of a.
func union(a, b []byte) []byte {
	gjson.ParseBytes(b).ForEach(func(name, theirs gjson.Result) bool {
		ours := gjson.GetBytes(a, gjson.Escape(name.Str))
		switch {
		case !ours.Exists() || ours.Type == gjson.False && theirs.Type == gjson.True:
			a = rawjson.Set(a, name.Str, []byte(theirs.Raw))
		case ours.IsObject() && theirs.IsObject():
			a = rawjson.Set(a, name.Str, union([]byte(ours.Raw), []byte(theirs.Raw)))
		}
		return true
	})
	return a
}
