package list

import (
	"maps"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// TaskTools is which tools of a server are called as tasks only, as some clients
// have seen in its lists.
type TaskTools struct {
	noted Memo // of lists, for required

	mu       sync.Mutex // guards the rest
	required map[string]bool
	whole    bool      // required says it of every tool
	asked    time.Time // when a list was asked for that says so
}

// SurveyEvery is how often the tools are listed to know which are tasks.
const SurveyEvery = time.Second

const maxTools = 20_000 // of which it is remembered

// Requires reports whether a tool can be called as a task only, and whether that
// is known.
func (c *TaskTools) Requires(tool string) (required, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	required, known = c.required[tool]
	return required, known || c.whole
}

// MayAsk reports whether a list of the tools may be asked for before a call: what
// does not come is not asked for with each.
func (c *TaskTools) MayAsk() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.asked) >= SurveyEvery
}

// Asks notes that a list was asked for.
func (c *TaskTools) Asks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Now()
}

// Outdated notes that the list of tools has changed. It may be asked for at once.
func (c *TaskTools) Outdated() {
	c.Forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Time{}
}

// Forget notes that the server may be another one.
func (c *TaskTools) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.required, c.whole = nil, false
	c.noted.Forget()
}

// Survey reads the list to its end: ask asks for the page of these params. An error
// says why the list was cut off.
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

// Look takes a page of the list, the answer to r, unless it is the one that was
// looked at last.
func (c *TaskTools) Look(r, a *jsonrpc.Message) {
	c.noted.At(a, func() bool {
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
