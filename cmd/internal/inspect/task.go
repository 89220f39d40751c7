package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// taskGet, taskResult and taskCancel are the methods for a task (2025-11-25, Tasks), which the SDK does not support.
const taskGet, taskResult, taskCancel = "tasks/get", "tasks/result", "tasks/cancel"

// taskParams are the parameters of these methods.
type taskParams struct {
	mcp.ParamsBase
	ID string `json:"taskId"`
}

// taskAnswer is the type of their results for the SDK. The command reads the raw results.
type taskAnswer struct{ mcp.ResultBase }

// taskParamsOfCall are parameters of tools/call that request a task.
type taskParamsOfCall struct {
	*mcp.CallToolParams
	Task json.RawMessage `json:"task"`
}

// taskKey is the key for the parameter task in the context of a call.
type taskKey struct{}

// addTasks adds calls of tools as tasks to a client of the SDK.
func addTasks(own *mcp.Client) error {
	own.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			task, as := ctx.Value(taskKey{}).(json.RawMessage)
			params, ok := r.GetParams().(*mcp.CallToolParams)
			if session, client := r.GetSession().(*mcp.ClientSession); as && ok && client {
				r = &mcp.ClientRequest[*taskParamsOfCall]{Session: session, Params: &taskParamsOfCall{params, task}}
			}
			return next(ctx, method, r)
		}
	})
	var errs []error
	for _, method := range []string{taskGet, taskResult, taskCancel} {
		errs = append(errs, mcp.AddSendingCustomMethod[*taskParams, *taskAnswer](own, method))
	}
	return errors.Join(errs...)
}

// These constants bound the server's poll interval for a task. usualPoll is the default.
const (
	minPoll   = 100 * time.Millisecond
	usualPoll = time.Second
	maxPoll   = 30 * time.Second
)

// task is a call of a tool that runs as a task.
type task struct {
	c      *client
	id     string
	status string
	says   string // the task's statusMessage
	stamp  string // the task's lastUpdatedAt
	poll   time.Duration
}

// callAsTask calls a tool as a task and waits for its end. It returns the tool's result. failed means that the task
// failed, whatever the result says.
func (c *client) callAsTask(ctx context.Context, params *mcp.CallToolParams) (raw json.RawMessage, failed bool, err error) {
	about := json.RawMessage("{}")
	if c.longest > 0 { // afterwards, the server may forget the task
		about = fmt.Appendf(nil, `{"ttl":%d}`, c.longest.Milliseconds())
	}
	raw, err = c.request(context.WithValue(ctx, taskKey{}, about), func(ctx context.Context) error {
		_, err := c.CallTool(ctx, params)
		return err
	})
	created := gjson.GetBytes(raw, "task")
	t := &task{c: c, id: created.Get("taskId").String()}
	if err != nil || t.id == "" { // the server executed the call at once
		return raw, false, err
	}
	t.read(created)
	raw, err = t.end(ctx)
	if err != nil && (ctx.Err() != nil || timedOut(err)) {
		// Cancel the task after an error.
		stopping, stop := context.WithTimeout(context.WithoutCancel(ctx), takeBackLimit)
		defer stop()
		_, _ = t.call(stopping, taskCancel) // the time limit keeps the user from waiting
	}
	return raw, t.status == "failed", err
}

// timedOut reports whether err is a timeout of the command or the bridge.
func timedOut(err error) bool {
	if e, ok := errors.AsType[exit.Error](err); ok {
		return e.Code == exit.Timeout
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && faultOf(e) == "upstream_timeout"
}

// read updates the task from the server's answer, and reports whether anything changed.
func (t *task) read(a gjson.Result) (changed bool) {
	t.poll = usualPoll
	if ms := a.Get("pollInterval"); ms.Type == gjson.Number {
		t.poll = time.Duration(min(max(ms.Num, 0), 1e6)) * time.Millisecond
	}
	t.poll = min(max(t.poll, minPoll), maxPoll)
	status, says, stamp := a.Get("status").String(), a.Get("statusMessage").String(), a.Get("lastUpdatedAt").String()
	if says != "" && says != t.says {
		t.c.status.progress(sanitize.Text(terminal.OneLine(says)))
	}
	changed = status != t.status || says != t.says || stamp != t.stamp
	t.status, t.says, t.stamp = status, says, stamp
	return changed
}

// end waits until the task ends or needs input, and returns the task's result. The request for the result allows the
// server to ask its questions.
func (t *task) end(ctx context.Context) (json.RawMessage, error) {
	began := time.Now()
	changed := began
	for {
		switch t.status {
		case "completed", "input_required":
			return t.call(ctx, taskResult)
		case "failed":
			raw, err := t.call(ctx, taskResult)
			return raw, t.why(err)
		case "cancelled":
			err := errors.New("the server cancelled the task")
			if t.says != "" {
				err = fmt.Errorf("%w: %s", err, t.says)
			}
			return nil, exit.With(exit.Answer, err)
		}
		wait := t.poll
		if most := t.c.silence; most > 0 {
			left := most - time.Since(changed)
			if left <= 0 {
				return nil, exit.With(exit.Timeout, fmt.Errorf("the task of the tool did not change within %v (timeout)", most))
			}
			wait = min(wait, left)
		}
		if most := t.c.longest; most > 0 {
			left := most - time.Since(began)
			if left <= 0 {
				return nil, exit.With(exit.Timeout, fmt.Errorf("the task of the tool did not end within %v (max_timeout)", most))
			}
			wait = min(wait, left)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		raw, err := t.call(ctx, taskGet)
		if err != nil {
			return nil, err
		}
		if t.read(gjson.ParseBytes(raw)) || t.c.status.holds() { // a person may think without a time limit
			changed = time.Now()
		}
	}
}

// why adds the server's status message to the error of a failed task.
func (t *task) why(err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || faultOf(e) != "" || t.says == "" || strings.Contains(e.Message, t.says) {
		return err
	}
	return exit.With(exit.Answer, &causeError{e, "the task failed: " + t.says})
}

// call makes a request about the task.
func (t *task) call(ctx context.Context, method string) (json.RawMessage, error) {
	return t.c.request(ctx, func(ctx context.Context) error {
		_, err := mcp.CallCustomMethod[*taskParams, *taskAnswer](ctx, t.c.ClientSession, method, &taskParams{ID: t.id})
		return err
	})
}
