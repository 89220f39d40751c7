package aggregate

import (
	"bytes"
	"context"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// task passes on a call about a task. In the aggregate, a task's id starts with its server's name.
func (s *session) task(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, own := s.ofTask(gjson.GetBytes(r.Params, "taskId").String())
	if m == nil {
		return jsonrpc.InvalidParams("there is no such task"), nil
	}
	inner := *r
	inner.Message = jsonrpc.NewRequest(r.Method, rawjson.SetFirst(r.Whole(), "taskId", []byte(rawjson.Quote(own))))
	a, err := m.call(ctx, &inner)
	if err == nil {
		a = m.claim(a)
	}
	return a, err
}

// ofTask returns the server that a task's id names, and the server's own id. The server is nil if the id names none.
func (s *session) ofTask(id string) (*member, string) {
	name, own, ok := strings.Cut(id, ":")
	if !ok {
		return nil, ""
	}
	return s.byName(name), own
}

// claim puts the server's name before the task id of an answer. claim reads the whole result, because a filter may
// have changed the id.
func (m *member) claim(a *jsonrpc.Message) *jsonrpc.Message {
	whole := a.Whole()
	id := gjson.GetBytes(whole, "taskId")
	if id.Type != gjson.String || id.Index == 0 {
		return a
	}
	return a.Replaced(rawjson.SetFirst(whole, "taskId", []byte(rawjson.Quote(m.taskID(id.Str)))))
}

func (m *member) taskID(own string) string { return m.s.Name + ":" + own }

// created puts the server's name before the id of the task that a call created, if the answer is a task.
func (m *member) created(a *jsonrpc.Message) *jsonrpc.Message {
	if a.Error == nil && bytes.Equal(a.Found().Type.Of(a.Result), []byte(`"task"`)) {
		return m.claim(a)
	}
	return a
}
