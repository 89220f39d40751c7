// Package list handles the four lists of servers: tools, prompts, resources and templates. It reads their pages, edits
// lists without decoding them, and reads requests about their items.
package list

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Kind is a kind of list, and of its items.
type Kind int

// The values of Kind.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
	Kinds // number of kinds
)

var kinds = [Kinds]struct{ method, member, capability, changed, key string }{
	Tools:     {"tools/list", "tools", "tools", "notifications/tools/list_changed", "name"},
	Prompts:   {"prompts/list", "prompts", "prompts", "notifications/prompts/list_changed", "name"},
	Resources: {"resources/list", "resources", "resources", "notifications/resources/list_changed", "uri"},
	Templates: {"resources/templates/list", "resourceTemplates", "resources", "notifications/resources/list_changed", "uriTemplate"},
}

// Method returns the method that lists the items, such as tools/list.
func (k Kind) Method() string { return kinds[k].method }

// Member returns the member of the result that holds the items, such as tools.
func (k Kind) Member() string { return kinds[k].member }

// Capability returns the server capability for the list.
func (k Kind) Capability() string { return kinds[k].capability }

// Changed returns the method of the notification about a changed list.
func (k Kind) Changed() string { return kinds[k].changed }

// Key returns the member that identifies an item: name, uri or uriTemplate.
func (k Kind) Key() string { return kinds[k].key }

// Of returns the kind of list that a method returns. It reports false for other methods.
func Of(method string) (Kind, bool) {
	for k := range Kinds {
		if kinds[k].method == method {
			return k, true
		}
	}
	return 0, false
}

// Each calls f for each item of a list, with the JSON text of the item and its decoded name or URI. It reports whether
// the result has a list.
func (k Kind) Each(result []byte, f func(item []byte, key string)) bool {
	list := gjson.GetBytes(result, kinds[k].member)
	if !list.IsArray() {
		return false
	}
	list.ForEach(func(_, item gjson.Result) bool {
		if key := item.Get(kinds[k].key); item.IsObject() && key.Type == gjson.String {
			f([]byte(item.Raw), key.Str)
		}
		return true
	})
	return true
}

// Edit returns the answer m with each item of its list replaced by the result of f. A nil result drops the item. The
// rest of the answer stays. If Edit returns another message, it releases m.
func (k Kind) Edit(m *jsonrpc.Message, f func(item []byte, key string) []byte) *jsonrpc.Message {
	whole := m.Whole()
	list := gjson.GetBytes(whole, kinds[k].member)
	if !list.IsArray() || list.Index == 0 {
		return m
	}
	out := append(make([]byte, 0, len(whole)), whole[:list.Index]...)
	out = append(out, '[')
	empty := len(out)
	k.Each(whole, func(item []byte, key string) {
		if item = f(item, key); item == nil {
			return
		}
		if len(out) > empty {
			out = append(out, ',')
		}
		out = append(out, item...)
	})
	out = append(append(out, ']'), whole[list.Index+len(list.Raw):]...)
	return m.Replaced(out)
}

// Announced are the kinds that have a list_changed notification. That of Resources is also about templates.
var Announced = [...]Kind{Tools, Prompts, Resources}

// Announces reports whether a server with these capabilities sends list_changed.
func (k Kind) Announces(capabilities []byte) bool {
	return gjson.GetBytes(capabilities, k.Capability()+".listChanged").Bool()
}

// Topic returns the member of a subscription's filter that asks for changes of the list (2026-07-28, subscriptions).
func (k Kind) Topic() string { return k.Capability() + "ListChanged" }
