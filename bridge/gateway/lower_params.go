package gateway

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
)

// lowered returns the request as a legacy server of that revision understands it:
// without what 2026-07-28 says with each request, and without what is the
// bridge's business (protocol.md D1.1). What stays is not copied. The message
// is valid for as long as m is.
func lowered(m *jsonrpc.Message, revision string) *jsonrpc.Message {
	var edits []jsonrpc.Edit
	meta, place := m.Meta(), 0
	emptied := false
	if gjson.ParseBytes(meta).IsObject() {
		place = cap(m.Params) - cap(meta)
		edits, emptied = jsonrpc.Omit(meta, place, bridged)
	}
	var drop func(name string) bool
	switch {
	case era.MayAsk(m.Method) && rawjson.Mentions(m.Params, "requestState", "inputResponses", `"task"`):
		drop = func(name string) bool {
			return name == "inputResponses" || name == "requestState" || name == "task" && m.Method == "tools/call"
		}
	case m.Method == era.Complete && revision < era.Rev20250618:
		drop = func(name string) bool { return name == "context" }
	case emptied:
		return m.Edited(around(m.Params, place, place+len(meta)))
	case len(edits) == 0:
		return m
	default:
		return m.Edited(edits...)
	}
	if emptied {
		edits = nil
	}
	more, _ := jsonrpc.Omit(m.Params, 0, func(name string) bool { return drop(name) || emptied && name == "_meta" })
	return m.Edited(append(edits, more...)...)
}

// bridged reports whether a member of _meta is for the bridge.
func bridged(name string) bool {
	switch name {
	case era.KeyVersion, era.KeyCapabilities, era.KeyClientInfo, era.KeyLogLevel, keyLane:
		return true
	}
	return false
}

// around is the edit that removes a member of an object whose value stands
// there, with its name and one comma.
func around(object []byte, value, end int) jsonrpc.Edit {
	name := bytes.LastIndexByte(object[:value], '"')
	name = bytes.LastIndexByte(object[:name], '"')
	if before := bytes.TrimRight(object[:name], " \t\r\n"); before[len(before)-1] == ',' {
		return jsonrpc.Edit{From: len(before) - 1, To: end}
	}
	if behind := end + rawjson.Space(object[end:], 0); object[behind] == ',' {
		return jsonrpc.Edit{From: name, To: behind + 1}
	}
	return jsonrpc.Edit{From: name, To: end}
}
