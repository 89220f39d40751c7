package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// kind is one of the four things that servers list.
type kind int

const (
	tools kind = iota
	prompts
	resources
	templates
	kinds // how many there are
)

// lists describes the kinds: the method that lists them, the member of its
// result, the capability that announces them, the notification that says that
// the list has changed, and the member by which an item is known.
var lists = [kinds]struct{ method, member, capability, changed, key string }{
	tools:     {"tools/list", "tools", "tools", "notifications/tools/list_changed", "name"},
	prompts:   {"prompts/list", "prompts", "prompts", "notifications/prompts/list_changed", "name"},
	resources: {"resources/list", "resources", "resources", "notifications/resources/list_changed", "uri"},
	templates: {"resources/templates/list", "resourceTemplates", "resources", "notifications/resources/list_changed", "uriTemplate"},
}

// listed returns the kind that a method lists.
func listed(method string) (kind, bool) {
	for k := range kinds {
		if lists[k].method == method {
			return k, true
		}
	}
	return 0, false
}

// items calls f for each item in a result that lists things of that kind: with
// its text, and the decoded name or URI that it is known by. It reports whether
// there is a list.
func (k kind) items(result []byte, f func(item []byte, key string)) bool {
	list := gjson.GetBytes(result, lists[k].member)
	if !list.IsArray() {
		return false
	}
	list.ForEach(func(_, item gjson.Result) bool {
		if key := item.Get(lists[k].key); item.IsObject() && key.Type == gjson.String {
			f([]byte(item.Raw), key.Str)
		}
		return true
	})
	return true
}

// edit returns the answer with each item of its list as f returns it; an item
// of which nothing is left is dropped. Everything else of the result stays. The
// answer given is released if another one is returned.
func (k kind) edit(a *jsonrpc.Message, f func(item []byte, key string) []byte) *jsonrpc.Message {
	whole := a.Whole()
	list := gjson.GetBytes(whole, lists[k].member)
	if !list.IsArray() || list.Index == 0 {
		return a
	}
	out := append(make([]byte, 0, len(whole)), whole[:list.Index]...)
	out = append(out, '[')
	empty := len(out)
	k.items(whole, func(item []byte, key string) {
		if item = f(item, key); item == nil {
			return
		}
		if len(out) > empty {
			out = append(out, ',')
		}
		out = append(out, item...)
	})
	out = append(append(out, ']'), whole[list.Index+len(list.Raw):]...)
	return replaced(a, out)
}
