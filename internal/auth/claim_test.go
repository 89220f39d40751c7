package auth

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Claims in the form for a server.
func TestClaimText(t *testing.T) {
	for raw, want := range map[string]string{
		`"ann"`: "ann", `7`: "7", `true`: "true", `"Jürgen K."`: "Jürgen K.", `["a","b"]`: "a,b", `["a",["b"],{},7]`: "a,7", `["a","b,c"," d","e\nf","g"]`: "a,g", `"a,b"`: "a,b",
		`""`: "", `null`: "", `{}`: "", `[]`: "", `"a\r\nX-Admin: 1"`: "", `"a\u0000"`: "", `"a\u0085"`: "", `" a"`: "", `"a "`: "", `"a\u00a0"`: "", `"\t"`: "", `"` + strings.Repeat("x", maxText) + `"`: strings.Repeat("x", maxText), `"` + strings.Repeat("x", maxText+1) + `"`: "",
	} {
		if got := ClaimText(gjson.Parse(raw)); got != want {
			t.Errorf("%.40s: %q, want %q", raw, got, want)
		}
	}
}

// Each claim has its own header, and no client can set one.
func TestHeader(t *testing.T) {
	names := map[string]string{}
	for _, name := range []string{"sub", "SUB", "email", "https://example.com/roles", "realm_access.roles", "ü"} {
		h := ClaimHeader(name)
		if other := names[h]; other != "" || h != http.CanonicalHeaderKey(h) {
			t.Errorf("%s and %s have %s", name, other, h)
		}
		names[h] = name
		sent := http.Header{}
		sent.Set(strings.ToLower(h), "root")
		sent.Set("X-Other", "kept")
		if StripClaims(sent); len(sent) != 1 {
			t.Errorf("%s: %v", name, sent)
		}
	}
}
