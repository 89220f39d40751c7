package auth

import (
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
