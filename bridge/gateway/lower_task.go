package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
	"github.com/mcp-bridge/bridge/bridge/pause"
)

// perform makes a call. A tool that the server makes available as a task only is
// called as one, and the task driven to its end (protocol.md D6). c is the call
// that can be parked, or nil.
func (l *lower) perform(ctx context.Context, r *bridge.Request, s *legacy, c *parked) (*jsonrpc.Message, error) {
	once := func() (*jsonrpc.Message, error) {
		inner := *r // the lane changes it
		return l.checked.Call(ctx, &inner)
	}
	if !s.tasks || r.Method != "tools/call" {
		return once()
	}
	name := r.Name()
	required, known := l.circle.requires(name)
	if !known && l.circle.mayAsk() {
		// Some servers refuse a call that is not made as a task with a result that
		// a client takes for the tool's own.
		l.survey(ctx, r.From)
		l.circle.asks()
		required, known = l.circle.requires(name)
	}
	if !required {
		a, err := once()
		if known || err != nil || gjson.GetBytes(a.Error, "code").Int() != jsonrpc.CodeMethodNotFound {
			return a, err
		}
		// So a server refuses a call that is not made as a task: it was not
		// executed. Its list of tools says whether that is why.
		if l.survey(ctx, r.From); ctx.Err() == nil {
			required, _ = l.circle.requires(name)
		}
		if !required {
			return a, nil
		}
		a.Release()
	}
	return l.drive(ctx, r, c)
}

// requires reports whether a tool can be called as a task only, and whether that
// is known.
func (c *circle) requires(tool string) (required, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	required, known = c.required[tool]
	return required, known || c.whole
}

// mayAsk reports whether a list of the tools may be asked for before a call: what
// does not come is not asked for with each.
func (c *circle) mayAsk() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) >= surveyEvery
}

// asks notes that a list was asked for.
func (c *circle) asks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
}

// seen notes that all pages were taken.
func (c *circle) seen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = c.required != nil
}

// outdated notes that the list of tools has changed.
func (c *circle) outdated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.required, c.whole, c.asked = nil, false, time.Time{}
	c.noted.Forget()
}

// note takes a page of a list of tools.
func (c *circle) note(r *bridge.Request, page []byte) {
	first := !gjson.GetBytes(r.Params, "cursor").Exists()
	_, next := list.Next(page)
	found := map[string]bool{}
	if rawjson.Mentions(page, "taskSupport") {
		list.Tools.Each(page, func(item []byte, key string) {
			found[key] = gjson.GetBytes(item, "execution.taskSupport").Str == "required"
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first || c.required == nil || len(c.required)+len(found) > maxCatalog {
		c.required, c.whole = found, first && !next
		return
	}
	for name, required := range found {
		c.required[name] = required
	}
}

// surveyEvery is how often the tools are listed to know which are tasks.
const surveyEvery = time.Second

// survey lists the tools.
func (l *lower) survey(ctx context.Context, from *bridge.Caller) {
	since := time.Now().Add(-surveyEvery)
	var r *bridge.Request
	list.Pages(func(params []byte) (*jsonrpc.Message, error) {
		r = &bridge.Request{Message: jsonrpc.NewRequest(list.Tools.Method(), params), From: from, NotBefore: since}
		return l.checked.Call(ctx, r)
	}, func(page []byte, _, _ bool) {
		l.circle.note(r, page)
		if _, more := list.Next(page); !more {
			l.circle.seen()
		}
	})
}

// The bounds of the interval at which a server wants to be asked for a task.
const (
	minPoll     = 500 * time.Millisecond
	usualPoll   = time.Second
	maxPoll     = 30 * time.Second
	taskGoodbye = 5 * time.Second // for tasks/cancel
)

// drive makes a call as a task, and returns what the call would have returned.
func (l *lower) drive(ctx context.Context, r *bridge.Request, c *parked) (*jsonrpc.Message, error) {
	inner := *r
	whole := r.Clone() // what was removed from the params may stand where this goes
	inner.Message = whole.Edited(first(whole.Params, `"task":{}`))
	a, err := l.checked.Call(ctx, &inner)
	if err != nil || a.Error != nil {
		return a, err
	}
	task := gjson.GetBytes(a.Result, "task")
	id := task.Get("taskId").Str
	if id == "" { // it has made the call at once
		return a, nil
	}
	t := &driven{l: l, id: id, from: r.From, back: r.Back}
	status, poll := t.read(task)
	a.Release()
	if c != nil {
		l.mu.Lock()
		if l.tasks == nil {
			l.tasks = map[string]*parked{}
		}
		l.tasks[id] = c
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			delete(l.tasks, id)
			l.mu.Unlock()
		}()
	}
	a, err = t.finish(ctx, status, poll)
	if err != nil && (ctx.Err() != nil || errors.Is(err, bridge.ErrTimeout)) { // nobody waits for it any more
		l.lane.spawn(t.cancel)
	}
	return a, err
}

// driven is a task of a server that a client knows nothing of.
type driven struct {
	l    *lower
	id   string
	from *bridge.Caller
	back bridge.Client
}

// read returns the status of the task, and when to ask again.
func (t *driven) read(task gjson.Result) (status string, poll time.Duration) {
	poll = usualPoll
	if ms := task.Get("pollInterval"); ms.Type == gjson.Number {
		poll = time.Duration(min(max(ms.Num, 0), 1e6)) * time.Millisecond
	}
	return task.Get("status").Str, min(max(poll, minPoll), maxPoll)
}

// finish asks for the task until it has ended or needs something of the client,
// and returns its result: asking for that lets the server put its questions.
func (t *driven) finish(ctx context.Context, status string, poll time.Duration) (*jsonrpc.Message, error) {
	began, most := time.Now(), t.l.p.r.o.MaxTask
	for {
		switch status {
		case "completed", "failed", "input_required":
			return t.call(ctx, "tasks/result")
		case "cancelled":
			return jsonrpc.NewError([]byte("0"), jsonrpc.CodeInternal, "the server has cancelled the task", nil), nil
		}
		if most > 0 && time.Since(began) >= most {
			return nil, &bridge.Error{Server: t.l.p.r.o.Name, Kind: bridge.ErrTimeout,
				Public: fmt.Sprintf("tools/call had no answer within %v; whether the server acted on it is unknown", most)}
		}
		if err := pause.For(ctx, poll); err != nil {
			return nil, err
		}
		a, err := t.call(ctx, "tasks/get")
		if err != nil || a.Error != nil {
			return a, err
		}
		status, poll = t.read(gjson.ParseBytes(a.Result))
		a.Release()
	}
}

// call makes a call about the task. A connection that was opened in the meantime
// is as good.
func (t *driven) call(ctx context.Context, method string) (*jsonrpc.Message, error) {
	m := jsonrpc.NewRequest(method, []byte(`{"taskId":`+rawjson.Quote(t.id)+`}`))
	return t.l.up.Call(ctx, &bridge.Request{Message: m, From: t.from, Back: t.back})
}

var errTask = errors.New("the task was not cancelled in time")

// cancel tells the server that nobody wants the task any more.
func (t *driven) cancel() {
	ctx, stop := context.WithTimeoutCause(t.l.lane.ctx, taskGoodbye, errTask)
	defer stop()
	a, err := t.call(ctx, "tasks/cancel")
	if err == nil {
		a.Release()
	}
}
