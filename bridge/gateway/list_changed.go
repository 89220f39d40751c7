package gateway

import (
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// listChanged are the notifications that tell a client that a list is to be
// fetched again, by the capability that announces them, and the member by which
// a subscription asks for them (2026-07-28).
var listChanged = []struct{ capability, method, member string }{
	{"tools", "notifications/tools/list_changed", "toolsListChanged"},
	{"prompts", "notifications/prompts/list_changed", "promptsListChanged"},
	{"resources", "notifications/resources/list_changed", "resourcesListChanged"},
}

// changesOf returns the list_changed notifications that s has announced.
func changesOf(s *bridge.Greeting) []*jsonrpc.Message {
	var all []*jsonrpc.Message
	for _, c := range listChanged {
		if gjson.GetBytes(s.Capabilities, c.capability+".listChanged").Bool() {
			all = append(all, jsonrpc.NewNotification(c.method, nil))
		}
	}
	return all
}
