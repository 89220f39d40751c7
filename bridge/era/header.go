package era

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// The headers that repeat what a request of the modern era says in its body
// (2026-07-28, Streamable HTTP), as Go writes header names. HeaderParam is
// followed by the name that a tool's schema gives.
const (
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderParam   = "Mcp-Param-"
)

// What stands around the base64 of a value that cannot stand in a header as it
// is. Written in another case it is no such thing.
const (
	sentinelHead = "=?base64?"
	sentinelTail = "?="
)

// EncodeHeader returns the text as the value of one of these headers: as it is
// when it is printable ASCII that HTTP keeps, otherwise in base64. So
// no line break and no NUL gets into a header.
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

// DecodeHeader returns the text that the value of such a header stands for
// . White space around the value is no part of it. It reports
// false when the value is marked as base64 and is none, or is not UTF-8.
func DecodeHeader(v string) (string, bool) {
	v = strings.Trim(v, " \t")
	if inside, ok := strings.CutPrefix(v, sentinelHead); ok {
		if inside, ok = strings.CutSuffix(inside, sentinelTail); ok {
			if strings.ContainsAny(inside, "\r\n") { // the decoder would pass over them
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

// EqualHeader reports whether the value of a header says want. Text that
// should have been encoded is accepted as it is too: it can be taken
// for nothing else.
func EqualHeader(header, want string) bool {
	v, ok := DecodeHeader(header)
	return ok && v == want
}

// NameOf returns what Mcp-Name repeats of a request, and false when there is
// nothing: requests of this method have no such header, or the member is
// missing, is no string, or stands twice, so that what is in the header may
// not be what the server takes. params is raw JSON or nil.
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

// Mirrors returns the headers that repeat arguments of a call.
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
