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

// Tasks stores who owns the tasks that clients created at a legacy server (2025-11-25, tasks). For such a server all
// principals may be one client, so the server cannot keep their tasks apart (protocol.md D0, R-180). A nil Tasks stores
// nothing.
type Tasks struct {
	server string
	shared bridge.Owners // store that all instances share; nil with one instance
	log    *slog.Logger

	mu  sync.Mutex                                      // guards the rest
	all map[string]simplelru.LRUCache[string, struct{}] // ids of tasks, by principal
	n   int                                             // number of ids of all principals
}

// maxTasks bounds the ids that are stored for a server. No principal can use a task without a stored owner.
const maxTasks = 10_000

// NewTasks returns the store for the tasks of one server. shared is the store that all instances share, or nil with one
// instance.
func NewTasks(server string, shared bridge.Owners, log *slog.Logger) *Tasks {
	return &Tasks{
		server: server,
		shared: shared,
		log:    log,
		all:    map[string]simplelru.LRUCache[string, struct{}]{},
	}
}

// store stores the owner of a task here, and for all instances (S-042).
func (t *Tasks) store(ctx context.Context, principal, id string) {
	t.remember(principal, id)
	if t.shared == nil {
		return
	}
	if err := t.shared.Note(context.WithoutCancel(ctx), t.server, id, principal); err != nil {
		t.log.Warn("the owner of a task could not be stored: other instances do not know it", "err", err)
	}
}

// owned returns which of the tasks ids belong to the principal. For an id that is not stored here under the principal,
// owned asks the store that all instances share.
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

// remember stores the owner of a task here. If there are too many, the principal with the most tasks loses the one that
// it used longest ago. So a principal cannot evict the tasks of a principal that has fewer.
func (t *Tasks) remember(principal, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.all[principal]
	if mine == nil {
		var err error
		if mine, err = simplelru.NewLRU[string, struct{}](maxTasks+1, nil); err != nil {
			panic(err) // the size is positive
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

// Wrap returns up with only the caller's own tasks. If t is nil, Wrap returns up.
func (t *Tasks) Wrap(up bridge.Upstream) bridge.Upstream {
	if t == nil {
		return up
	}
	return &owned{up, t}
}

// owned is an Upstream that hides the tasks of other principals.
type owned struct {
	bridge.Upstream
	tasks *Tasks
}

// Call makes a call, unless it is about a task of another principal.
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
		whole, err := json.Marshal(params) // a second taskId must not reach the server
		if err != nil {
			panic(err) // decoded raw members always encode
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

// own removes the tasks of other principals from the answer to tasks/list.
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
