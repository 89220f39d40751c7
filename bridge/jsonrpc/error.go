package jsonrpc

import (
	"strconv"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// These are the error codes of JSON-RPC 2.0 and MCP.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeNoResource answers a request for an unknown resource, in sessions (A14).
	CodeNoResource = -32002
	// CodeHeaderMismatch answers a request whose headers contradict its body (2026-07-28, transports).
	CodeHeaderMismatch = -32020
	// CodeMissingCapability answers a request that needs more capabilities of its client; data has
	// requiredCapabilities (2026-07-28).
	CodeMissingCapability = -32021
	// CodeUnsupportedVersion answers a request of an unsupported revision; data has supported and requested
	// (2026-07-28, versioning).
	CodeUnsupportedVersion = -32022
)

// NewError returns an error response. data is raw JSON or nil.
func NewError(id []byte, code int, message string, data []byte) *Message {
	e := append([]byte(`{"code":`), strconv.Itoa(code)...)
	e = rawjson.AppendString(append(e, `,"message":`...), message)
	if data != nil {
		e = append(append(e, `,"data":`...), data...)
	}
	return &Message{ID: id, Error: append(e, '}')}
}

// InvalidParams returns the error response for invalid params, without an id.
func InvalidParams(message string) *Message { return NewError(nil, CodeInvalidParams, message, nil) }

// NewResult returns a response. result is raw JSON on one line.
func NewResult(id, result []byte) *Message { return &Message{ID: id, Result: result} }

// NewToolResult is NewResult for a call of a tool. isError reports whether the result has isError: true, so that IsError
// does not search a large one.
func NewToolResult(id, result []byte, isError bool) *Message {
	return &Message{ID: id, Result: result, isError: isError, judged: true}
}

// NewNotification returns a notification. params is a raw JSON object on one line, or nil.
func NewNotification(method string, params []byte) *Message {
	return &Message{Method: method, Params: params}
}

// NewCancelled returns the notification that cancels a request. requestID is raw JSON.
func NewCancelled(requestID []byte, reason string) *Message {
	p := append([]byte(`{"requestId":`), requestID...)
	if reason != "" {
		p = rawjson.AppendString(append(p, `,"reason":`...), reason)
	}
	return &Message{Method: "notifications/cancelled", Params: append(p, '}')}
}

// method returns the method as a string. Frequent ones need no allocation.
func method(b []byte) string {
	switch string(b) {
	case "tools/call":
		return "tools/call"
	case "notifications/progress":
		return "notifications/progress"
	case "notifications/message":
		return "notifications/message"
	case "tools/list":
		return "tools/list"
	case "resources/read":
		return "resources/read"
	case "ping":
		return "ping"
	}
	return unquote(b)
}
