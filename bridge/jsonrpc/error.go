package jsonrpc

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// The error codes of JSON-RPC 2.0 and MCP.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeNoResource answers a request for an unknown resource, in legacy revisions (A14).
	CodeNoResource = -32002
	// CodeHeaderMismatch answers a request whose headers contradict its body (2026-07-28, transports).
	CodeHeaderMismatch = -32020
	// CodeMissingCapability answers a request that needs capabilities which its client does not have. data has
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

// maxWords bounds the message that replaces a missing one, in bytes.
const maxWords = 300

// wellFormed returns the error of an answer in the form of JSON-RPC 2.0, section 5.1: an object with an integer code
// and a string as its message. Some clients drop other errors, so that their callers wait forever. An error in that
// form stays unchanged. Otherwise the code is the peer's, if it can be read, and the message has the peer's words.
func wellFormed(raw []byte) []byte {
	code, message := gjson.GetBytes(raw, "code"), gjson.GetBytes(raw, "message")
	object := raw[0] == '{'
	n, ok := whole(code.String())
	ok = ok && object && (code.Type == gjson.Number || code.Type == gjson.String)
	named := object && message.Type == gjson.String
	if ok && named && code.Type == gjson.Number && !strings.ContainsAny(code.Raw, ".eE") {
		return raw
	}
	if !ok {
		n = CodeInternal
	}
	words := message.Str
	switch {
	case named && code.Type == gjson.String && !ok && code.Str != "":
		words = code.Str + ": " + words
	case named:
	case raw[0] == '"':
		words = text(raw)
	default:
		if words = string(rawjson.Compact(raw)); len(words) > maxWords {
			words = strings.ToValidUTF8(words[:maxWords], "") + "…"
		}
	}
	if !object {
		return NewError(nil, int(n), words, nil).Error
	}
	return rawjson.Set(rawjson.Set(raw, "code", strconv.AppendInt(nil, n, 10)), "message", rawjson.AppendString(nil, words))
}

// InvalidParams returns the error response for invalid params, without an id.
func InvalidParams(message string) *Message { return NewError(nil, CodeInvalidParams, message, nil) }

// NewResult returns a response with a result, which is raw JSON on one line.
func NewResult(id, result []byte) *Message { return &Message{ID: id, Result: result} }

// NewToolResult is NewResult for a call of a tool. isError says whether the result has isError: true, so that IsError
// need not search a large result.
func NewToolResult(id, result []byte, isError bool) *Message {
	return &Message{
		ID:      id,
		Result:  result,
		isError: isError,
		judged:  true,
	}
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

// method returns the method as a string. The frequent methods need no allocation.
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
