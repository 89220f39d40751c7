package inspect_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// tasking makes a server whose tool t has to be called as a task. It answers the
// nth tasks/get with the nth of those tasks, and later ones with the last, and
// tasks/result so.
func tasking(t *testing.T, result string, tasks ...string) *fake {
	const tools = `{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`
	f := &fake{t: t, answers: results(map[string]string{
		"initialize":   `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"fake","version":"1"}}`,
		"tools/list":   tools,
		"tasks/cancel": `{"taskId":"1","status":"cancelled"}`,
	})}
	f.answers["tools/call"] = func(_ *fake, params json.RawMessage) string {
		if !gjson.GetBytes(params, "task").IsObject() {
			return `"error":{"code":-32601,"message":"Tool t requires task augmentation"}`
		}
		return `"result":{"task":{"taskId":"1","status":"working","pollInterval":1}}`
	}
	asked := 0
	f.answers["tasks/get"] = func(*fake, json.RawMessage) string {
		asked++
		return `"result":{"taskId":"1","pollInterval":1,` + tasks[min(asked, len(tasks))-1] + `}`
	}
	f.answers["tasks/result"] = always(result)
	return f
}

// A tool that has to be called as a task is called as one, and its result is
// that of any call.
func TestCallAsTask(t *testing.T) {
	const result = `{"content":[{"type":"text","text":"done"}],"_meta":{"n":1.50}}`
	for _, test := range []struct {
		name           string
		answer         string // to tasks/result
		tasks          []string
		code           int
		stdout, stderr string
		json           string // on stdout, with --json-output
	}{
		{"completed", `"result":` + result, []string{`"status":"working","statusMessage":"on \u001b it"`, `"status":"working","statusMessage":"on \u001b it"`, `"status":"completed"`},
			0, "done\n", "on ␛ it\n", result},
		{"the tool has failed", `"result":{"content":[],"isError":true}`, []string{`"status":"failed"`},
			exit.Answer, "", "mcp-bridge: the tool \"t\" answered with an error\n", `{"content":[],"isError":true}`},
		{"the tool has failed and its result does not say so", `"result":` + result, []string{`"status":"failed"`},
			exit.Answer, "done\n", "mcp-bridge: the tool \"t\" answered with an error\n", result},
		{"the call has failed", `"error":{"code":-32000,"message":"no luck"}`, []string{`"status":"failed"`},
			exit.Answer, "", "mcp-bridge: the server answered with error -32000: no luck\n", `{"error":{"code":-32000,"message":"no luck"}}`},
		{"the task has failed without a result", `"error":{"code":-32602,"message":"no result"}`, []string{`"status":"failed","statusMessage":"out of luck"`},
			exit.Answer, "", "out of luck\nmcp-bridge: no result: the task failed: out of luck\n", `{"error":{"code":-32602,"message":"no result: the task failed: out of luck"}}`},
		{"the server has cancelled it", "", []string{`"status":"cancelled","statusMessage":"too much to do"`},
			exit.Answer, "", "too much to do\nmcp-bridge: the server cancelled the task: too much to do\n", `{"error":{"code":-32603,"message":"the server cancelled the task: too much to do"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := tasking(t, test.answer, test.tasks...)
			r := newRig(t, f.dial)
			r.want(test.code, test.stdout, test.stderr, "call", "t")
			if ttl := gjson.Get(f.await(`"tools/call"`), "params.task.ttl").Raw; ttl != "3600000" {
				t.Errorf("the task may be forgotten after %q ms, want an hour, which is the longest that a call may take", ttl)
			}
			if strings.Contains(f.all(), "tasks/cancel") {
				t.Error("a task that has ended was cancelled")
			}
			r = newRig(t, tasking(t, test.answer, test.tasks...).dial)
			r.want(test.code, test.json+"\n", "", "call", "t", "--json-output", "--quiet")
		})
	}
}

// A server that does not have tasks of calls must not be asked for one, whatever
// its tools say.
func TestCallWithoutTasks(t *testing.T) {
	f := tasking(t, "")
	delete(f.answers, "initialize")
	f.answers["tools/call"] = always(`"result":{"content":[{"type":"text","text":"done"}]}`)
	newRig(t, f.dial).want(0, "done\n", "", "call", "t")
	if call := f.await(`"tools/call"`); gjson.Get(call, "params.task").Exists() {
		t.Errorf("called as a task: %s", call)
	}
}

// An interrupt cancels the task, while it is waited for and while its result is.
func TestInterruptTask(t *testing.T) {
	for _, at := range []string{"tasks/get", "tasks/result"} {
		t.Run(at, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			f := tasking(t, "", `"status":"input_required"`)
			f.answers[at] = func(*fake, json.RawMessage) string {
				interrupt()
				return ""
			}
			r := newRig(t, f.dial)
			r.ctx = ctx
			r.want(exit.Interrupted, "", "mcp-bridge: interrupted\n", "call", "t")
			if id := gjson.Get(f.await(`"tasks/cancel"`), "params.taskId").String(); id != "1" {
				t.Errorf("the task %q was cancelled, want 1", id)
			}
		})
	}
}

// A task that does not change is given up after --timeout, and cancelled.
func TestTaskTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := tasking(t, "", `"status":"working"`)
		newRig(t, f.dial).want(exit.Timeout, "", "mcp-bridge: the task of the tool did not change within 300ms (timeout)\n", "call", "t", "--timeout", "300ms")
		if f.await(`"tasks/cancel"`) == "" {
			t.Error("the task was not cancelled")
		}
	})
}
