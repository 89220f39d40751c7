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
func (c *TaskTools) Requires(tool string) (required, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	required, known = c.required[tool]
	return required, known || c.whole
}

// MayAsk reports whether the list may be requested before a call. A list that fails is not requested with
// each call.
func (c *TaskTools) MayAsk() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.requested) >= SurveyEvery
}

// Requested records a request for the list.
func (c *TaskTools) Requested() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested = time.Now()
}

// Outdated records that the list has changed. It may be requested at once.
func (c *TaskTools) Outdated() {
	c.Forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested = time.Time{}
}

// Forget records that the server may be another one.
func (c *TaskTools) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.required, c.whole = nil, false
	c.lastList.Forget()
}

// Survey reads the whole list; ask requests the page with these params. An error says why the list was cut
// off.
func (c *TaskTools) Survey(ask func(params []byte) (*jsonrpc.Message, error)) error {
	_, cut := Tools.Pages(ask, func(page []byte, first, _ bool) {
		c.note(page, first)
		if _, more := Next(page); !more {
			c.mu.Lock()
			c.whole = c.required != nil
			c.mu.Unlock()
		}
	})
	return cut
}

// Look reads a page of the list, the answer to r, unless it was the last one.
func (c *TaskTools) Look(r, a *jsonrpc.Message) {
	c.lastList.Once(a, func() bool {
		c.note(a.Result, !gjson.GetBytes(r.Params, "cursor").Exists())
		return true
	})
}

func (c *TaskTools) note(page []byte, first bool) {
	_, next := Next(page)
	found := map[string]bool{}
	if rawjson.Mentions(page, "taskSupport") {
		Tools.Each(page, func(item []byte, key string) {
			found[key] = gjson.GetBytes(item, "execution.taskSupport").Str == "required"
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first || c.required == nil || len(c.required)+len(found) > maxTools {
		c.required, c.whole = found, first && !next
		return
	}
	maps.Copy(c.required, found)
}
