package lower

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// perform makes a call. If a tool must be a task, perform calls the tool as a task and waits for the task's end
// (protocol.md D6). p is the call that can be parked, or nil.
func (t *Translator) perform(ctx context.Context, r *bridge.Request, l *legacy, p *parked) (*jsonrpc.Message, error) {
	once := func() (*jsonrpc.Message, error) {
		inner := *r // the lane changes the request
		return t.line.Checked().Call(ctx, &inner)
	}
	if !l.tasks || r.Method != "tools/call" {
		return once()
	}
	name := r.Name()
	required, known := t.of.Tools.Requires(name)
	if !known && t.of.Tools.MayAsk() {
		// The list says whether the tool requires a task. Some servers answer a call that lacks the task with a
		// result that clients take for the tool's result.
		t.listTools(ctx, r.From)
		t.of.Tools.Requested()
		required, known = t.of.Tools.Requires(name)
	}
	if !required {
		m, err := once()
		if known || err != nil || gjson.GetBytes(m.Error, "code").Int() != jsonrpc.CodeMethodNotFound {
			return m, err
		}
		// Servers give this answer if a call must be a task; then they have not executed the call. The list of tools
		// shows whether that is the reason.
		if t.listTools(ctx, r.From); ctx.Err() == nil {
			required, _ = t.of.Tools.Requires(name)
		}
		if !required {
			return m, nil
		}
		m.Release()
	}
	return t.runTask(ctx, r, p)
}

// listTools reads the list of tools for its entries about tasks.
func (t *Translator) listTools(ctx context.Context, from *bridge.Caller) {
	since := time.Now().Add(-list.SurveyEvery)
	cut := t.of.Tools.Survey(func(params []byte) (*jsonrpc.Message, error) {
		return t.line.Checked().Call(ctx, &bridge.Request{
			Message:   jsonrpc.NewRequest(list.Tools.Method(), params),
			From:      from,
			NotBefore: since,
		})
	})
	if cut != nil {
		t.s.o.Log.Debug("list cut off", "method", list.Tools.Method(), "err", cut)
	}
}

// These constants bound the interval between two polls of a task.
const (
	minPoll       = 500 * time.Millisecond
	usualPoll     = time.Second
	maxPoll       = 30 * time.Second
	cancelTimeout = 5 * time.Second // for tasks/cancel
)

// runTask makes a call as a task, and returns the result of the call.
func (t *Translator) runTask(ctx context.Context, r *bridge.Request, p *parked) (*jsonrpc.Message, error) {
	inner := *r
	whole := r.Clone() // Params may still have members that a wrapper removed
	inner.Message = whole.Edited(jsonrpc.First(whole.Params, `"task":{}`))
	m, err := t.line.Checked().Call(ctx, &inner)
	if err != nil || m.Error != nil {
		return m, err
	}
	made := gjson.GetBytes(m.Result, "task")
	id := made.Get("taskId").Str
	if id == "" { // the server executed the call at once
		return m, nil
	}
	one := &task{
		l:    t,
		id:   id,
		from: r.From,
		back: r.Back,
	}
	status, poll := one.read(made)
	m.Release()
	if p != nil {
		t.mu.Lock()
		p.task = id
		t.mu.Unlock()
	}
	m, err = one.finish(ctx, status, poll)
	if err != nil && (ctx.Err() != nil || errors.Is(err, bridge.ErrTimeout)) { // no client waits for the task any more
		t.line.Go(one.cancel)
	}
	return m, err
}

// task is a task of the server that is hidden from the client.
type task struct {
	l    *Translator
	id   string
	from *bridge.Caller
	back bridge.Client
}

// read returns the task's status and the time until the next poll.
func (t *task) read(now gjson.Result) (status string, poll time.Duration) {
	poll = usualPoll
	if ms := now.Get("pollInterval"); ms.Type == gjson.Number {
		poll = time.Duration(min(max(ms.Num, 0), 1e6)) * time.Millisecond
	}
	return now.Get("status").Str, min(max(poll, minPoll), maxPoll)
}

// finish polls the task until it ends or needs input, and returns its result. The request for the result lets
// the server ask its questions.
func (t *task) finish(ctx context.Context, status string, poll time.Duration) (*jsonrpc.Message, error) {
	began, most := time.Now(), time.Duration(t.l.s.o.MaxTask.Load())
	for {
		switch status {
		case "completed", "failed", "input_required":
			return t.call(ctx, "tasks/result")
		case "cancelled":
			return jsonrpc.NewError([]byte("0"), jsonrpc.CodeInternal, "the server has cancelled the task", nil), nil
		}
		if most > 0 && time.Since(began) >= most {
			return nil, &bridge.Error{Server: t.l.s.o.Name, Kind: bridge.ErrTimeout,
				Public: fmt.Sprintf("tools/call had no answer within %v; whether the server acted on it is unknown", most)}
		}
		if err := backoff.For(ctx, poll); err != nil {
			return nil, err
		}
		m, err := t.call(ctx, "tasks/get")
		if err != nil || m.Error != nil {
			return m, err
		}
		status, poll = t.read(gjson.ParseBytes(m.Result))
		m.Release()
	}
}

// call makes a call about the task, over the current connection.
func (t *task) call(ctx context.Context, method string) (*jsonrpc.Message, error) {
	m := jsonrpc.NewRequest(method, []byte(`{"taskId":`+rawjson.Quote(t.id)+`}`))
	return t.l.line.Call(ctx, &bridge.Request{
		Message: m,
		From:    t.from,
		Back:    t.back,
	})
}

var errTask = errors.New("the task was not cancelled in time")

// cancel cancels the task at the server.
func (t *task) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeoutCause(ctx, cancelTimeout, errTask)
	defer stop()
	m, _ := t.call(ctx, "tasks/cancel")
	m.Release()
}
