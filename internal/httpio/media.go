package httpio

import (
	"mime"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Media types of forms, of JSON, of server-sent events, and of unknown bytes.
const (
	Form   = "application/x-www-form-urlencoded"
	JSON   = "application/json"
	Events = "text/event-stream"
	Bytes  = "application/octet-stream"
)

// Kind returns JSON or Events if Content-Type has a name that peers use for one of them, otherwise the MediaType.
// Before a browser sends one of these names to another origin, it asks; it sends text/plain without asking.
func Kind(h http.Header) string {
	if t := h.Get("Content-Type"); t == JSON || t == Events {
		return t
	}
	t := MediaType(h)
	if IsJSON(t) || IsLines(t) {
		return JSON
	}
	switch t {
	case "application/json-rpc", "application/jsonrpc", "application/jsonrequest", "application/x-json", "text/x-json":
		return JSON
	case "application/event-stream", "text/eventstream", "text/x-event-stream":
		return Events
	}
	return t
}

// MediaType returns the media type in Content-Type: see BaseType.
func MediaType(h http.Header) string { return BaseType(h.Get("Content-Type")) }

// BaseType returns a media type without its parameters, in lower case. If a header has several, which proxies join, it
// returns the first.
func BaseType(s string) string {
	if end := strings.IndexAny(s, ";,"); end >= 0 {
		s = s[:end]
	}
	return strings.ToLower(strings.Trim(s, " \t\"'"))
}

// IsJSON reports whether s is a media type of JSON.
func IsJSON(s string) bool {
	t := BaseType(s)
	return t == JSON || t == "text/json" || strings.HasSuffix(t, "+json")
}

// IsLines reports whether s is a media type of JSON texts, one on each line.
func IsLines(s string) bool {
	switch BaseType(s) {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines", "application/json-lines":
		return true
	}
	return false
}

// Sendable reports whether a media type from an argument of a call may be sent in a header.
func Sendable(t string) bool {
	_, _, err := mime.ParseMediaType(t)
	return err == nil && strings.Contains(t, "/") && httpguts.ValidHeaderFieldValue(t) && len(t) < 200
}
