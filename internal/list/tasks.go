package list

import (
	"maps"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// TaskTools knows which tools of a server need a task, from the lists that clients requested.
type TaskTools struct {
	lastList Memo // last list that was added to required

	mu        sync.Mutex // guards the rest
	required  map[string]bool
	whole     bool      // required has all tools that need a task
	requested time.Time // when the bridge last requested the list
}

// SurveyEvery is the minimum time between two requests of the bridge for the list of tools.
const SurveyEvery = time.Second

const maxTools = 20_000 // bound of TaskTools.required

// Requires reports whether a tool can only be called as a task, and whether that is known.
func (t *TaskTools) Requires(tool string) (required, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	required, known = t.required[tool]
	return required, known || t.whole
}

// MayAsk reports whether the bridge may request the list before a call. So if the request fails, it is not made again
// before each call.
func (t *TaskTools) MayAsk() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.requested) >= SurveyEvery
}

// Requested records that the bridge requests the list.
func (t *TaskTools) Requested() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = time.Now()
}

// Outdated records that the list has changed, so that the bridge may request it at once.
func (t *TaskTools) Outdated() {
	t.Forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requested = time.Time{}
}

// Forget records that another server may answer now.
func (t *TaskTools) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.required, t.whole = nil, false
	t.lastList.Forget()
}

// Survey reads the whole list. ask requests the page with these params. An error is why the list ended early.
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

// Look reads the page of the list in a, the answer to m, unless it was the last page that Look read.
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
