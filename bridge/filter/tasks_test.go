package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// However many tasks one principal makes, those of others stay theirs; what is
// forgotten is its own, the oldest first.
func TestTasksFlood(t *testing.T) {
	o := NewTasks("s", nil, nil)
	for i := range 3 {
		o.store(t.Context(), "quiet", fmt.Sprint(i))
	}
	for i := range 2 * maxTasks {
		o.remember("loud", fmt.Sprint(i))
		o.remember("loud", fmt.Sprint(i)) // which is no other task
	}
	for i := range 3 {
		if !o.has("quiet", fmt.Sprint(i)) {
			t.Errorf("the task %d of another principal is forgotten", i)
		}
	}
	if o.has("quiet", "5") || o.has("nobody", "0") {
		t.Error("a task is everybody's")
	}
	last := 2*maxTasks - 1
	if oldest := last - (maxTasks - 3) + 1; !o.has("loud", fmt.Sprint(last)) || !o.has("loud", fmt.Sprint(oldest)) || o.has("loud", fmt.Sprint(oldest-1)) {
		t.Error("other tasks are kept than the latest")
	}
	if o.n != maxTasks {
		t.Errorf("%d tasks are kept, want %d", o.n, maxTasks)
	}
	// Where many have some each, nobody is left with nothing.
	for i := range 2 * maxTasks {
		o.remember(fmt.Sprint("p", i%100), fmt.Sprint(i))
	}
	for i := range 100 {
		if p := fmt.Sprint("p", i); o.all[p].Len() < maxTasks/102 {
			t.Errorf("%s has %d tasks", p, o.all[p].Len())
		}
	}
	if o.n != maxTasks || !o.has("quiet", "0") {
		t.Errorf("%d tasks are kept", o.n)
	}
}

// owners is what all instances know.
type owners struct {
	all   map[string]bool
	asked int
	err   error
}

func (o *owners) Note(_ context.Context, server, task, principal string) error {
	if o.err == nil {
		o.all[server+" "+task+" "+principal] = true
	}
	return o.err
}

func (o *owners) Noted(_ context.Context, server, principal string, tasks []string) ([]bool, error) {
	o.asked++
	noted := make([]bool, len(tasks))
	for i, task := range tasks {
		noted[i] = o.all[server+" "+task+" "+principal]
	}
	return noted, o.err
}

// tasked is a server with tasks.
type tasked struct{ bridge.Upstream }

func (tasked) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch r.Method {
	case "tools/call":
		return jsonrpc.NewResult(nil, []byte(`{"task":{"taskId":"`+gjson.GetBytes(r.Params, "arguments.id").Str+`"}}`)), nil
	case "tasks/list":
		return jsonrpc.NewResult(nil, []byte(`{"tasks":[{"taskId":"1"},{"taskId":"2"},{"taskId":"3"}]}`)), nil
	}
	return jsonrpc.NewResult(nil, []byte(`{"status":"working","got":`+string(r.Whole())+`}`)), nil
}

// A task is its principal's at each instance, and nobody else's at any (S-042).
func TestTasksShared(t *testing.T) {
	all := &owners{all: map[string]bool{}}
	u, b := NewTasks("s", all, slog.New(slog.DiscardHandler)).Wrap(tasked{}), NewTasks("s", all, slog.New(slog.DiscardHandler)).Wrap(tasked{})
	ask := func(up bridge.Upstream, principal, method, params string) (string, error) {
		t.Helper()
		m, err := up.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)), From: &bridge.Caller{Principal: principal}})
		return bridgetest.Text(m), err
	}
	for i, principal := range []string{"alice", "alice", "bob"} {
		if got, err := ask(u, principal, "tools/call", fmt.Sprintf(`{"name":"x","arguments":{"id":"%d"},"task":{}}`, i+1)); err != nil {
			t.Fatal(got, err)
		}
	}
	for _, test := range []struct {
		principal, method, params, want string
	}{
		{"alice", "tasks/get", `{"taskId":"1"}`, "working"},
		{"alice", "tasks/cancel", `{"taskId":"2"}`, "working"},
		{"alice", "tasks/get", `{"taskId":"3"}`, "there is no such task"},
		{"bob", "tasks/get", `{"taskId":"3"}`, "working"},
		{"bob", "tasks/result", `{"taskId":"1"}`, "there is no such task"},
		{"bob", "tasks/get", `{"taskId":1}`, "there is no such task"},
		{"bob", "tasks/cancel", `{"taskId":"2"}`, "there is no such task"},
		{"alice", "tasks/get", `{}`, "-32602"},
		{"alice", "tasks/get", `{"taskId":"1","taskId":"3"}`, "-32602"},
		{"alice", "tasks/get", `{"TaskId":"3"}`, "-32602"},
		{"alice", "tasks/get", `{"TaskId":"3","taskId":"1"}`, `"got":{"taskId":"1"}`},
		{"alice", "tasks/list", `{}`, `"tasks":[{"taskId":"1"},{"taskId":"2"}]`},
		{"bob", "tasks/list", `{}`, `"tasks":[{"taskId":"3"}]`},
		{"carol", "tasks/list", `{}`, `"tasks":[]`},
	} {
		got, err := ask(b, test.principal, test.method, test.params)
		if err != nil {
			t.Errorf("%s of %s: %v", test.method, test.principal, err)
		}
		bridgetest.Contains(t, got, test.want)
	}
	asked := all.asked
	if got, err := ask(b, "alice", "tasks/get", `{"taskId":"1"}`); err != nil || all.asked != asked {
		t.Errorf("what is known is asked for again: %s, %v", got, err)
	}
	// While nobody can be asked, what is known is; nothing else is said not to be there.
	all.err = errors.New("away")
	if got, err := ask(b, "alice", "tasks/get", `{"taskId":"1"}`); err != nil {
		t.Errorf("what is known: %s, %v", got, err)
	}
	for _, method := range []string{"tasks/get", "tasks/list"} {
		if got, err := ask(b, "carol", method, `{"taskId":"1"}`); !errors.Is(err, bridge.ErrUnavailable) {
			t.Errorf("%s of what is not known: %s, %v", method, got, err)
		}
	}
	if got, err := ask(u, "carol", "tools/call", `{"name":"x","arguments":{"id":"4"},"task":{}}`); err != nil {
		t.Errorf("a new task: %s, %v", got, err)
	}
	if got, err := ask(u, "carol", "tasks/get", `{"taskId":"4"}`); err != nil {
		t.Errorf("of which this instance knows: %s, %v", got, err)
	}
}
