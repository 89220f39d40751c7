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

// Tasks remember whose the tasks are that a legacy server was given by sessions
// (2025-11-25, tasks). All principals reach it as one, so that it cannot tell
// (protocol.md D0, R-180). nil remembers nothing.
type Tasks struct {
	server string
	shared bridge.Owners // of all instances; nil where there is one
	log    *slog.Logger

	mu  sync.Mutex                                  // guards the rest
	all map[string]*simplelru.LRU[string, struct{}] // ids of tasks, by principal
	n   int                                         // of all principals
}

// maxTasks bounds the tasks of a server of which it is known whose they are. One
// that was forgotten is nobody's.
const maxTasks = 10_000

// NewTasks makes the memory of one server's tasks. shared is what all instances know; nil
// where there is one.
func NewTasks(server string, shared bridge.Owners, log *slog.Logger) *Tasks {
	return &Tasks{server: server, shared: shared, log: log, all: map[string]*simplelru.LRU[string, struct{}]{}}
}

// made notes that a task is the principal's, for all instances (S-042).
func (t *Tasks) made(ctx context.Context, principal, id string) {
	t.note(principal, id)
	if t.shared == nil {
		return
	}
	if err := t.shared.Note(context.WithoutCancel(ctx), t.server, id, principal); err != nil {
		t.log.Warn("the owner of a task could not be stored: other instances do not know it", "err", err)
	}
}

// mine says which of some tasks are the principal's. What is not known here, another
// instance may have noted.
func (t *Tasks) mine(ctx context.Context, principal string, ids ...string) (map[string]bool, error) {
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
		return nil, &bridge.Error{Server: t.server, Kind: bridge.ErrUnavailable, Err: errors.Join(bridge.ErrOverloaded, err), After: 2 * time.Second, Public: "whose tasks these are is out of reach for now; try again later"}
	}
	for i, id := range ask {
		if noted[i] {
			own[id] = true
			t.note(principal, id)
		}
	}
	return own, nil
}

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
		return o.own(ctx, r.From.Principal, a)
	case era.IsTask(r.Method):
		params := rawjson.Members(r.Whole(), "taskId")
		id := gjson.ParseBytes(params["taskId"])
		if id.Type != gjson.String {
			return jsonrpc.InvalidParams("there is no such task"), nil
		}
		own, err := o.tasks.mine(ctx, r.From.Principal, id.Str)
		if err != nil {
			return nil, err
		}
		if !own[id.Str] {
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
			o.tasks.made(ctx, r.From.Principal, id)
		}
	}
	return a, err
}

// own leaves of a list of tasks those of the principal.
func (o *owned) own(ctx context.Context, principal string, a *jsonrpc.Message) (*jsonrpc.Message, error) {
	whole := a.Whole()
	list := gjson.GetBytes(whole, "tasks")
	var ids, mine []string
	list.ForEach(func(_, task gjson.Result) bool {
		ids = append(ids, task.Get("taskId").Str)
		return true
	})
	own, err := o.tasks.mine(ctx, principal, ids...)
	if err != nil {
		a.Release()
		return nil, err
	}
	list.ForEach(func(_, task gjson.Result) bool {
		if own[task.Get("taskId").Str] {
			mine = append(mine, task.Raw)
		}
		return true
	})
	return a.Replaced(rawjson.SetFirst(whole, "tasks", []byte("["+strings.Join(mine, ",")+"]"))), nil
}
