package filter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Tasks stores the owners of the tasks that sessions created at a legacy server (2025-11-25, tasks).
// All principals reach that server as one client, so it cannot separate them (protocol.md D0,
// nil stores nothing.
type Tasks struct {
	server string
	shared bridge.Owners // the store of all instances; nil with one instance
	log    *slog.Logger

	mu  sync.Mutex                                      // guards the rest
	all map[string]simplelru.LRUCache[string, struct{}] // ids of tasks, by principal
	n   int                                             // of all principals
}

// maxTasks bounds the stored tasks of a server. A task that is not stored belongs to no principal.
const maxTasks = 10_000

// NewTasks returns the store for one server's tasks. shared is the store of all instances, or nil
// with one instance.
func NewTasks(server string, shared bridge.Owners, log *slog.Logger) *Tasks {
	return &Tasks{
		server: server,
		shared: shared,
		log:    log,
		all:    map[string]simplelru.LRUCache[string, struct{}]{},
	}
}

// store stores the owner of a task, for all instances (S-042).
func (t *Tasks) store(ctx context.Context, principal, id string) {
	t.remember(principal, id)
	if t.shared == nil {
		return
	}
	if err := t.shared.Note(context.WithoutCancel(ctx), t.server, id, principal); err != nil {
		t.log.Warn("the owner of a task could not be stored: other instances do not know it", "err", err)
	}
}

// owned returns which of some tasks belong to the principal. If a task is not stored here as the
// principal's, owned asks the store of all instances.
func (t *Tasks) owned(ctx context.Context, principal string, ids ...string) (map[string]bool, error) {
	own := map[string]bool{}
	var ask []string
	for _, id := range ids {
		if own[id] = t.has(principal, id); !own[id] {
			ask = append(ask, id)
		}
	}
	if t.shared == nil || len(ask) == 0 {
		return own, nil
	}
	noted, err := t.shared.Noted(ctx, t.server, principal, ask)
	if err != nil {
		return nil, &bridge.Error{
			Server: t.server,
			Kind:   bridge.ErrUnavailable,
			Err:    errors.Join(bridge.ErrOverloaded, err),
			After:  2 * time.Second,
			Public: "the store of task owners is unreachable; try again later",
		}
	}
	for i, id := range ask {
		if noted[i] {
			own[id] = true
			t.remember(principal, id)
		}
	}
	return own, nil
}

// remember stores the owner of a task here. If there are too many tasks, the principal with the most loses its least
// recently used one. So no principal can evict the tasks of one that has fewer.
func (t *Tasks) remember(principal, id string) {
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

// Wrap returns up without access to the tasks of other principals.
func (t *Tasks) Wrap(up bridge.Upstream) bridge.Upstream {
	if t == nil {
		return up
	}
	return &owned{up, t}
}

// owned is an Upstream at which each principal has its own tasks only.
type owned struct {
	bridge.Upstream
	tasks *Tasks
}

// Call makes a call, unless it is about another principal's task.
func (o *owned) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "tasks/list":
		m, err := o.Upstream.Call(ctx, r)
		if err != nil || m.Error != nil {
			return m, err
		}
		return o.own(ctx, r.From.Principal, m)
	case era.IsTask(r.Method):
		params := rawjson.Members(r.Whole(), "taskId")
		id := gjson.ParseBytes(params["taskId"])
		if id.Type != gjson.String {
			return jsonrpc.InvalidParams("there is no such task"), nil
		}
		own, err := o.tasks.owned(ctx, r.From.Principal, id.Str)
		if err != nil {
			return nil, err
		}
		if !own[id.Str] {
			return jsonrpc.InvalidParams("there is no such task"), nil
		}
		whole, err := json.Marshal(params) // a member that stood twice must not pass
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
			o.tasks.store(ctx, r.From.Principal, id)
		}
	}
	return a, err
}

// own removes the tasks of other principals from a list.
func (o *owned) own(ctx context.Context, principal string, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	whole := m.Whole()
	list := gjson.GetBytes(whole, "tasks")
	var ids, mine []string
	list.ForEach(func(_, task gjson.Result) bool {
		ids = append(ids, task.Get("taskId").Str)
		return true
	})
	own, err := o.tasks.owned(ctx, principal, ids...)
	if err != nil {
		m.Release()
		return nil, err
	}
	list.ForEach(func(_, task gjson.Result) bool {
		if own[task.Get("taskId").Str] {
			mine = append(mine, task.Raw)
		}
		return true
	})
	return m.Replaced(rawjson.SetFirst(whole, "tasks", []byte("["+strings.Join(mine, ",")+"]"))), nil
}
