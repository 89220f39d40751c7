package auth

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/token"
)

// changingClaims are claims that differ in each token of a user.
var changingClaims = []string{"exp", "iat", "nbf", "jti", "auth_time"}

// CheckClaim returns the rule that the name of a claim for servers breaks, or "".
func CheckClaim(name string) (rule string) {
	switch {
	case name == "" || len(name) > 256:
		return "names no claim, such as sub or email"
	case slices.Contains(changingClaims, name):
		return "names a claim that differs in each token: the caller would seem to change with it"
	}
	return ""
}

// maxText bounds a claim for servers, in bytes.
const maxText = 1 << 10

// ClaimText returns a claim as the value of a header or of a variable. It is empty if the claim cannot be expressed
// exactly.
func ClaimText(v gjson.Result) string {
	texts := token.Texts(v)
	if v.IsArray() {
		texts = slices.DeleteFunc(texts, func(item string) bool { return strings.Contains(item, ",") || !unchanged(item) })
	}
	text := strings.Join(texts, ",")
	if len(text) > maxText || !unchanged(text) {
		return ""
	}
	return text
}

// unchanged reports whether a text reaches a server unchanged in a header.
func unchanged(text string) bool {
	return text != "" && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError
	})
}
