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

// prefix is the prefix of headers that carry claims inside the bridge. The bridge removes such headers
// from clients' requests.
const prefix = "X-Bridge-Claim-"

// ClaimHeader returns the header that carries a claim inside the bridge.
func ClaimHeader(name string) string {
	return http.CanonicalHeaderKey(prefix + hex.EncodeToString([]byte(name)))
}

// changingClaims are the claims that differ in each token.
var changingClaims = []string{"exp", "iat", "nbf", "jti", "auth_time"}

// TokenHeader is the header that carries the caller's token inside the bridge, for servers where it
// is exchanged. Clients cannot set it, and it is sent to no server.
const TokenHeader = prefix + "Token" // never a name of ClaimHeader: those are hexadecimal

// LastingHeaders returns h without the token.
func LastingHeaders(h http.Header) http.Header {
	if len(h[TokenHeader]) == 0 {
		return h
	}
	h = maps.Clone(h)
	delete(h, TokenHeader)
	return h
}

// CheckClaim returns the fault of a claim's name, for claims that are passed to servers.
func CheckClaim(name string) (rule string) {
	switch {
	case name == "" || len(name) > 256:
		return "names no claim, such as sub or email"
	case slices.Contains(changingClaims, name):
		return "names a claim that differs in each token: the caller would seem to change with it"
	}
	return ""
}

// IsClaimHeader reports whether the bridge itself writes a header. Allow-lists must not name it.
func IsClaimHeader(name string) bool { return strings.HasPrefix(http.CanonicalHeaderKey(name), prefix) }

// StripClaims removes all headers that only the bridge may write.
func StripClaims(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			delete(h, name)
		}
	}
}

// maxText bounds a claim that is passed to a server, in bytes.
const maxText = 1 << 10

// ClaimText returns a claim as the value of a header or variable; empty if it could not be passed
// unchanged.
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

// unchanged reports whether a text can be passed unchanged.
func unchanged(text string) bool {
	return text != "" && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError
	})
}
