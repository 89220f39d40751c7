package wire

import (
	"bytes"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// errorEnd is the end of a CallToolResult with isError.
const errorEnd = `],"isError":true}`

// errorResult returns a CallToolResult with isError.
func errorResult(text []byte) []byte {
	return append(appendText([]byte(`{"content":[`), text), errorEnd...)
}

// IsError reports whether a result of Call has isError. It looks at the end only, since results may be large.
func IsError(result []byte) bool { return bytes.HasSuffix(result, []byte(errorEnd)) }

// appendText appends a text block.
func appendText(dst, text []byte) []byte {
	return append(rawjson.AppendText(append(dst, `{"type":"text","text":`...), text), '}')
}

// maxLine bounds the bytes of a header's value that a result shows.
const maxLine = 1000

// beginResult returns the beginning of a result, with room bytes reserved.
func beginResult(room int) []byte {
	return append(make([]byte, 0, room+resultRoom), `{"content":[`...)
}

// resultRoom is the space for the rest of a result without notes.
const resultRoom = 256

// quotedSize estimates the size of a text as a JSON string, in bytes.
func quotedSize(b []byte) int {
	n := len(b) + 2
	for _, c := range []byte("\"\\\n") {
		n += bytes.Count(b, []byte{c})
	}
	return n
}

// looksJSON reports whether a text begins as a JSON object or array does.
func looksJSON(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

// maxDepth bounds the depth of JSON. Deeper JSON is treated as text.
const maxDepth = 500

// usable reports whether a body is JSON, or the beginning of JSON. It must run before recursive
// readers such as gjson.
func usable(b []byte, a *answer) bool {
	if !a.more {
		return jsonrpc.Valid(b, maxDepth) && utf8.Valid(b)
	}
	return !rawjson.Deeper(b, maxDepth) && (looksJSON(b) || jsonrpc.Valid(b, maxDepth))
}
