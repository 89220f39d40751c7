package jsonrpc

import (
	"strconv"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Error codes of JSON-RPC 2.0 and of MCP.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeNoResource answers a request about a resource that there is not, in
	// sessions (A14).
	CodeNoResource = -32002
	// CodeHeaderMismatch answers a request whose headers do not say what its body
	// does (2026-07-28, transports).
	CodeHeaderMismatch = -32020
	// CodeMissingCapability answers a request that cannot be done for a client
	// with so few capabilities; data has requiredCapabilities (2026-07-28).
	CodeMissingCapability = -32021
	// CodeUnsupportedVersion answers a request of a revision that is not
	// served; data has supported and requested (2026-07-28, versioning).
	CodeUnsupportedVersion = -32022
)

// NewError makes an error answer. data is raw JSON or nil.
func NewError(id []byte, code int, message string, data []byte) *Message {
	e := append([]byte(`{"code":`), strconv.Itoa(code)...)
	e = rawjson.AppendString(append(e, `,"message":`...), message)
	if data != nil {
		e = append(append(e, `,"data":`...), data...)
	}
	return &Message{ID: id, Error: append(e, '}')}
}

// InvalidParams makes the answer to a request whose params are wrong. It has no id
// yet.
func InvalidParams(message string) *Message { return NewError(nil, CodeInvalidParams, message, nil) }

// NewResult makes an answer. result is raw JSON on one line.
func NewResult(id, result []byte) *Message { return &Message{ID: id, Result: result} }

// NewNotification makes a notification. params is a raw JSON object on one
// line, or nil.
func NewNotification(method string, params []byte) *Message {
	return &Message{Method: method, Params: params}
}

// NewCancelled makes the notification that takes a request back. requestID is
// raw JSON.
func NewCancelled(requestID []byte, reason string) *Message {
	p := append([]byte(`{"requestId":`), requestID...)
	if reason != "" {
		p = rawjson.AppendString(append(p, `,"reason":`...), reason)
	}
	return &Message{Method: "notifications/cancelled", Params: append(p, '}')}
}

// method returns the method as a string. Those of the protocol cost no memory.
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
