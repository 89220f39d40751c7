package list

import (
	"maps"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// TaskTools records which tools of a server need a task, as seen in lists that clients requested.
type TaskTools struct {
	lastList Memo // the last list in required

	mu        sync.Mutex // guards the fields below
	required  map[string]bool
	whole     bool      // required covers all tools
	requested time.Time // when the list was last requested
}

// SurveyEvery is the least time between two requests for the list of tools.
const SurveyEvery = time.Second

const maxTools = 20_000 // tools in TaskTools.required

// Requires reports whether a tool can be called only as a task, and whether that is known.
func (t *TaskTools) Requires(tool string) (required, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	required, known = t.required[tool]
	return required, known || t.whole
}

// MayAsk reports whether the list may be requested before a call. A list that fails is not requested with
// each call.
func (t *TaskTools) MayAsk() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.requested) >= SurveyEvery
}

// Requested records a request for the list.
func (t *TaskTools) Requested() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = time.Now()
}

// Outdated records that the list has changed. It may be requested at once.
func (t *TaskTools) Outdated() {
	t.Forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = time.Time{}
}

// Forget records that the server may be another one.
func (t *TaskTools) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.required, t.whole = nil, false
	t.lastList.Forget()
}

// Survey reads the whole list; ask requests the page with these params. An error is the reason that the
// list was cut off.
func (t *TaskTools) Survey(ask func(params []byte) (*jsonrpc.Message, error)) error {
	_, cut := Tools.Pages(ask, func(page []byte, first, _ bool) {
		t.note(page, first)
		if _, more := Next(page); !more {
			t.mu.Lock()
			t.whole = t.required != nil
			t.mu.Unlock()
		}
	})
	return cut
}

// Look reads a page of the list, the answer to m, unless it was the last one.
func (t *TaskTools) Look(m, a *jsonrpc.Message) {
	t.lastList.Once(a, func() bool {
		t.note(a.Result, !gjson.GetBytes(m.Params, "cursor").Exists())
		return true
	})
}

func (t *TaskTools) note(page []byte, first bool) {
	_, next := Next(page)
	found := map[string]bool{}
	if rawjson.Mentions(page, "taskSupport") {
		Tools.Each(page, func(item []byte, key string) {
			found[key] = gjson.GetBytes(item, "execution.taskSupport").Str == "required"
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first || t.required == nil || len(t.required)+len(found) > maxTools {
		t.required, t.whole = found, first && !next
		return
	}
	maps.Copy(t.required, found)
}
