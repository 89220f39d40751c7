package era

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// The headers that repeat parts of a modern request's body (2026-07-28, Streamable HTTP), in Go's canonical form.
// HeaderParam precedes the name that the tool's schema gives.
const (
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderParam   = "Mcp-Param-"
)

// sentinelHead and sentinelTail enclose base64 in the value of a header. They are case-sensitive.
const (
	sentinelHead = "=?base64?"
	sentinelTail = "?="
)

// EncodeHeader returns the text as a header value. Printable ASCII that HTTP preserves stays unchanged, and other text
// becomes base64. So a header never gets a line break or a NUL.
func EncodeHeader(v string) string {
	if isPlain(v) {
		return v
	}
	return sentinelHead + base64.StdEncoding.EncodeToString([]byte(v)) + sentinelTail
}

func isPlain(v string) bool {
	if v == "" {
		return true
	}
	for i := range len(v) {
		if v[i] < ' ' || v[i] > '~' {
			return false
		}
	}
	return v[0] != ' ' && v[len(v)-1] != ' ' && !(strings.HasPrefix(v, sentinelHead) && strings.HasSuffix(v, sentinelTail))
}

// DecodeHeader returns the text of a header value, without the white space around it. It reports false
// for invalid base64 and for text that is not UTF-8.
func DecodeHeader(v string) (string, bool) {
	v = strings.Trim(v, " \t")
	if inside, ok := strings.CutPrefix(v, sentinelHead); ok {
		if inside, ok = strings.CutSuffix(inside, sentinelTail); ok {
			if strings.ContainsAny(inside, "\r\n") { // the decoder ignores line breaks
				return "", false
			}
			b, err := base64.StdEncoding.DecodeString(inside)
			if err != nil {
				return "", false
			}
			v = string(b)
		}
	}
	return v, utf8.ValidString(v)
}

// EqualHeader reports whether the header value means want. It also accepts text that should have been base64,
// because its meaning is clear.
func EqualHeader(header, want string) bool {
	v, ok := DecodeHeader(header)
	return ok && v == want
}

// NameOf returns the value of Mcp-Name for a request. It reports false for a method without that header, and if the
// member of params is missing, no string or duplicated. With a duplicate, the server might use the other value. params
// is raw JSON, or nil.
func NameOf(method string, params []byte) (string, bool) {
	member := ""
	switch method {
	case "tools/call", "prompts/get":
		member = "name"
	case "resources/read":
		member = "uri"
	case "tasks/get", "tasks/update", "tasks/cancel": // extension io.modelcontextprotocol/tasks
		member = "taskId"
	default:
		return "", false
	}
	var found []byte
	times := 0
	rawjson.Each(params, func(name, value []byte) {
		if string(name) == member {
			found = value
			times++
		}
	})
	if times != 1 {
		return "", false
	}
	return rawjson.Text(found)
}

// Mirrors returns the headers that repeat arguments of a call. It returns nil if h is nil.
func Mirrors(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	out := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, HeaderParam) {
			out[name] = values
		}
	}
	return out
}
