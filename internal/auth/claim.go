package auth

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/token"
)

// fleeting are claims that are others in each token.
var fleeting = []string{"exp", "iat", "nbf", "jti", "auth_time"}

// CheckClaim returns what is wrong with the name of a claim that a server is to be told.
func CheckClaim(name string) (rule string) {
	switch {
	case name == "" || len(name) > 256:
		return "names no claim, such as sub or email"
	case slices.Contains(fleeting, name):
		return "names a claim that is another in each token: who a caller is would change with it"
	}
	return ""
}

// maxText is how long a claim may be that a server is told, in bytes.
const maxText = 1 << 10

// ClaimText returns a claim as a header or a variable can have it; nothing for one that would
// not arrive as it is.
func ClaimText(v gjson.Result) string {
	texts := token.Texts(v)
	if v.IsArray() {
		texts = slices.DeleteFunc(texts, func(item string) bool { return strings.Contains(item, ",") || !plain(item) })
	}
	text := strings.Join(texts, ",")
	if len(text) > maxText || !plain(text) {
		return ""
	}
	return text
}

// plain reports whether a text arrives as it is.
func plain(text string) bool {
	return text != "" && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError
	})
}
