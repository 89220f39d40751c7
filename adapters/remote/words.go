package remote

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// reasons are the members of JSON bodies by which servers and gateways say why they refuse a request, the best first.
var reasons = []string{"error.message", "message", "error_description", "detail", "error", "title", "reason", "msg", "description", "errors.0.message"}

// Words returns why the server refuses a request, for clients: from a body of JSON. Other bodies are error pages and
// dumps, and a body of 401 or of a failure is not about the request. A part that is a header of the request, or a key in its
// query, or may be a secret, is left out.
func Words(res *http.Response, body []byte) string {
	if res.StatusCode/100 != 4 || res.StatusCode == http.StatusUnauthorized || !gjson.ValidBytes(body) {
		return ""
	}
	for _, found := range gjson.GetManyBytes(body, reasons...) {
		if found.Type == gjson.String && found.Str != "" {
			return Printable(withoutSecrets(found.Str, res.Request))
		}
	}
	return ""
}

func withoutSecrets(text string, sent *http.Request) string {
	var secrets []string
	for _, all := range []map[string][]string{sent.Header, sent.URL.Query()} {
		for name, values := range all {
			for _, value := range values {
				_, secret, scheme := strings.Cut(value, " ")
				if !scheme {
					secret = value
				}
				if sanitize.LooksSecret(name, value) {
					secrets = append(secrets, secret)
				}
			}
		}
	}
	parts := strings.Split(string(sanitize.NewMask("…", secrets...).Bytes([]byte(text))), " ")
	for i, part := range parts {
		if sanitize.MayBeSecret(part) {
			parts[i] = "…"
		}
	}
	return strings.Join(parts, " ")
}

// maxQuoted bounds how much of a server's words a client gets.
const maxQuoted = 300

// Printable returns the part of a server's words that a client may get.
func Printable(text string) string {
	return sanitize.Short(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text), maxQuoted)
}
