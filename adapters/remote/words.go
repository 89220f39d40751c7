package remote

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// reasons are paths in JSON bodies at which servers and gateways say why they refuse a request, the
// best first.
var reasons = []string{"error.message", "message", "error_description", "detail", "error", "title", "reason", "msg", "description", "errors.0.message"}

// Words returns the server's own words for a client: why it refuses a request. It takes them from
// the JSON body of a status 4xx other than 401. Bodies that are not JSON are error pages, and the
// bodies of other statuses are not about the request. Words leaves out credentials of the request,
// and whatever may be a secret. It returns "" if there are no words.
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

// maxQuoted bounds a server's words for a client, in characters.
const maxQuoted = 300

// Printable returns a server's words for a client, without control characters, and cut to maxQuoted.
func Printable(text string) string {
	return sanitize.Short(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text), maxQuoted)
}
