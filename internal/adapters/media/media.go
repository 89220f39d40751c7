// Package media knows the media types that have a meaning for adapters: what is
// JSON, what is a form, what can be sent.
package media

import (
	"mime"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Types of forms, of JSON, of server-sent events, and of bytes that nothing is known
// about.
const (
	Form   = "application/x-www-form-urlencoded"
	JSON   = "application/json"
	Events = "text/event-stream"
	Bytes  = "application/octet-stream"
)

// Of returns the media type that Content-Type names: see Base.
func Of(h http.Header) string { return Base(h.Get("Content-Type")) }

// Base returns a media type without its parameters, in small letters.
func Base(s string) string {
	t, _, _ := strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(t))
}

// IsJSON reports whether a media type is JSON.
func IsJSON(s string) bool {
	t := Base(s)
	return t == JSON || t == "text/json" || strings.HasSuffix(t, "+json")
}

// IsLines reports whether a media type is a sequence of JSON texts, one a line.
func IsLines(s string) bool {
	switch Base(s) {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines", "application/json-lines":
		return true
	}
	return false
}

// Sendable reports whether a media type that an argument names can be sent.
func Sendable(t string) bool {
	_, _, err := mime.ParseMediaType(t)
	return err == nil && strings.Contains(t, "/") && httpguts.ValidHeaderFieldValue(t) && len(t) < 200
}
