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
		edits, emptied = omit(meta, place, bridged)
	}
	var drop func(name string) bool
	switch {
	case era.MayAsk(m.Method) && rawjson.Mentions(m.Params, "requestState", "inputResponses", `"task"`):
		drop = func(name string) bool {
			return name == "inputResponses" || name == "requestState" || name == "task" && m.Method == "tools/call"
		}
	case m.Method == completion && revision < era.Rev20250618:
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
	more, _ := omit(m.Params, 0, func(name string) bool { return drop(name) || emptied && name == "_meta" })
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

// omit returns the edits that remove members of an object, which stands at
// place, and whether none is left of those that it had.
func omit(object []byte, place int, drop func(name string) bool) (edits []jsonrpc.Edit, emptied bool) {
	run := -1    // where the members that are removed together begin
	ended := -1  // where the member before ended
	had := false // a member stays
	gjson.ParseBytes(object).ForEach(func(name, value gjson.Result) bool {
		begin, end := place+name.Index, place+value.Index+len(value.Raw)
		out := drop(name.Str)
		switch {
		case out && run < 0 && had:
			run = ended // the comma before it goes too
		case out:
			if run < 0 {
				run = begin
			}
		case run >= 0 && had:
			edits = append(edits, jsonrpc.Edit{From: run, To: ended})
			run = -1
		default:
			if run >= 0 { // the comma behind them goes too
				edits = append(edits, jsonrpc.Edit{From: run, To: begin})
			}
			run, had = -1, true
		}
		ended = end
		return true
	})
	if run >= 0 {
		edits = append(edits, jsonrpc.Edit{From: run, To: ended})
	}
	return edits, run >= 0 && !had
}

// around is the edit that removes a member of an object whose value stands
// there, with its name and one comma.
func around(object []byte, value, end int) jsonrpc.Edit {
	name := bytes.LastIndexByte(object[:value], '"')
	name = bytes.LastIndexByte(object[:name], '"')
	if before := bytes.TrimRight(object[:name], " \t\r\n"); before[len(before)-1] == ',' {
		return jsonrpc.Edit{From: len(before) - 1, To: end}
	}
	if behind := end + firstByte(object[end:]); object[behind] == ',' {
		return jsonrpc.Edit{From: name, To: behind + 1}
	}
	return jsonrpc.Edit{From: name, To: end}
}
