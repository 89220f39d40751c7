package auth

import (
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/token"
)

// prefix begins the names of the headers of a request in which its claims are. What
// clients send under such a name is taken away.
const prefix = "X-Bridge-Claim-"

// ClaimHeader returns the header of a request in which the bridge keeps a claim of its token.
func ClaimHeader(name string) string {
	return http.CanonicalHeaderKey(prefix + hex.EncodeToString([]byte(name)))
}

// fleeting are claims that are others in each token.
var fleeting = []string{"exp", "iat", "nbf", "jti", "auth_time"}

// TokenHeader is the header of a request in which the bridge keeps the token that was shown with
// it, for servers where that is exchanged for another one. No client can write it, and it
// goes out to no server.
const TokenHeader = prefix + "Token" // which is no name of Header's: those are hexadecimal

// LastingHeaders returns headers without the token.
func LastingHeaders(h http.Header) http.Header {
	if len(h[TokenHeader]) == 0 {
		return h
	}
	h = maps.Clone(h)
	delete(h, TokenHeader)
	return h
}

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

// IsClaimHeader reports whether a header is one that the bridge itself writes: its name is for no
// allow-list of a file.
func IsClaimHeader(name string) bool { return strings.HasPrefix(http.CanonicalHeaderKey(name), prefix) }

// StripClaims takes from headers what a client has written there.
func StripClaims(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			delete(h, name)
		}
	}
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
