package server

import (
	"net/http"
	"net/url"
	"strings"
)

// outside returns the prefix of the request's path as the client sees it: the parts that trusted proxies
// and http.StripPrefix removed.
func (s *server) outside(r *http.Request) string {
	prefix := strings.TrimRight(r.Header.Get("X-Forwarded-Prefix"), "/")
	if !s.access.Trusts(r.RemoteAddr) || !cleanPrefix(prefix) {
		prefix = ""
	}
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		path := strings.TrimSuffix(sent.EscapedPath(), "/") // see unslashed
		if stripped, ok := strings.CutSuffix(path, strings.TrimSuffix(r.URL.EscapedPath(), "/")); ok && cleanPrefix(stripped) {
			prefix += stripped
		}
	}
	return prefix
}

// cleanPrefix reports whether a prefix is a plain path.
func cleanPrefix(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return false
	}
	for _, c := range []byte(p) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}
