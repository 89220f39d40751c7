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

// MediaType returns the media type in Content-Type: see BaseType.
func MediaType(h http.Header) string { return BaseType(h.Get("Content-Type")) }

// BaseType returns a media type without its parameters, in small letters.
func BaseType(s string) string {
	t, _, _ := strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// IsJSON reports whether a media type is JSON.
func IsJSON(s string) bool {
	t := BaseType(s)
	return t == JSON || t == "text/json" || strings.HasSuffix(t, "+json")
}

// IsLines reports whether a media type is a sequence of JSON texts, one on each line.
func IsLines(s string) bool {
	switch BaseType(s) {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines", "application/json-lines":
		return true
	}
	return false
}

// Sendable reports whether a media type from an argument can be sent.
func Sendable(t string) bool {
	_, _, err := mime.ParseMediaType(t)
	return err == nil && strings.Contains(t, "/") && httpguts.ValidHeaderFieldValue(t) && len(t) < 200
}
