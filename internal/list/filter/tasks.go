package filter

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/era"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// Tasks remember whose the tasks are that a legacy server was given by sessions
// (2025-11-25, tasks). All principals reach it as one, so that it cannot tell
// (protocol.md D0, R-180). nil remembers nothing.
type Tasks struct {
	mu  sync.Mutex                                  // guards the rest
	all map[string]*simplelru.LRU[string, struct{}] // ids of tasks, by principal
	n   int                                         // of all principals
}

// maxTasks bounds the tasks of a server of which it is known whose they are. One
// that was forgotten is nobody's.
const maxTasks = 10_000

// NewTasks makes the memory of one server's tasks.
func NewTasks() *Tasks { return &Tasks{all: map[string]*simplelru.LRU[string, struct{}]{}} }

// note notes that a task is the principal's. When there are too many tasks, the
// principal that has the most loses the one that it has not asked about for
// longest: nobody can push out the tasks of somebody who has fewer.
func (t *Tasks) note(principal, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.all[principal]
	if mine == nil {
		var err error
		if mine, err = simplelru.NewLRU[string, struct{}](maxTasks+1, nil); err != nil {
			panic(err) // only a size below 1 is refused
		}
		t.all[principal] = mine
	}
	if !mine.Contains(id) {
		t.n++
	}
	mine.Add(id, struct{}{})
	if t.n <= maxTasks {
		return
	}
	name, most := principal, mine
	for other, tasks := range t.all {
		if tasks.Len() > most.Len() {
			name, most = other, tasks
		}
	}
	most.RemoveOldest()
	t.n--
	if most.Len() == 0 {
		delete(t.all, name)
	}
}

func (t *Tasks) has(principal, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.all[principal]
	if mine == nil {
		return false
	}
	_, ok := mine.Get(id)
	return ok
}

// Wrap returns up with the tasks of other principals than the caller out of reach.
func (t *Tasks) Wrap(up bridge.Upstream) bridge.Upstream {
	if t == nil {
		return up
	}
	return &owned{up, t}
}

// owned is an Upstream of which each principal's sessions have the tasks that the
// principal has made.
type owned struct {
	bridge.Upstream
	tasks *Tasks
}

// Call makes a call, unless it is about a task of somebody else's.
func (o *owned) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "tasks/list":
		a, err := o.Upstream.Call(ctx, r)
		if err != nil || a.Error != nil {
			return a, err
		}
		return o.own(r.From.Principal, a), nil
	case era.IsTask(r.Method):
		params := rawjson.Members(r.Whole(), "taskId")
		id := gjson.ParseBytes(params["taskId"])
		if id.Type != gjson.String || !o.tasks.has(r.From.Principal, id.Str) {
			return jsonrpc.InvalidParams("there is no such task"), nil
		}
		whole, err := json.Marshal(params) // a member that stood twice must not get by
		if err != nil {
			panic(err) // raw members that were just decoded always encode
		}
		inner := *r
		inner.Message = jsonrpc.NewRequest(r.Method, whole)
		return o.Upstream.Call(ctx, &inner)
	}
	a, err := o.Upstream.Call(ctx, r)
	if err == nil && a.Error == nil && rawjson.Mentions(r.Params, `"task"`) {
		if id := gjson.GetBytes(a.Result, "task.taskId").Str; id != "" {
			o.tasks.note(r.From.Principal, id)
		}
	}
	return a, err
}

// own leaves of a list of tasks those of the principal.
func (o *owned) own(principal string, a *jsonrpc.Message) *jsonrpc.Message {
	whole := a.Whole()
	list := gjson.GetBytes(whole, "tasks")
	var mine []string
	list.ForEach(func(_, task gjson.Result) bool {
		if o.tasks.has(principal, task.Get("taskId").Str) {
			mine = append(mine, task.Raw)
		}
		return true
	})
	return a.Replaced(rawjson.SetFirst(whole, "tasks", []byte("["+strings.Join(mine, ",")+"]")))
}
