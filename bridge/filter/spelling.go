package filter

import (
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/spelling"
)

// spellings returns four forms of a URI: unchanged, after a URL parser, after percent-decoding and a URL parser, and
// after a lenient URL parser. One resource has many spellings: servers on the TypeScript and Python SDKs parse URLs,
// and read Demo://a/x/../b as demo://a/b. A hidden resource must be hidden under all of them.
func spellings(uri string) [4]string {
	parsed := spelling.Parsed(uri)
	s := [4]string{uri, parsed, parsed, parsed}
	if strings.Contains(uri, "%") {
		uri = spelling.Decoded(uri)
		s[2] = spelling.Parsed(uri)
	}
	if s[3] = s[2]; strings.Contains(uri, ";") || !utf8.ValidString(uri) {
		s[3] = spelling.Lenient(uri)
	}
	return s
}

// PassesURI reports whether Allow and Deny show the resource with that URI. A URI passes Allow only if all its
// spellings do, and is denied if one spelling is. Patterns are spelled in the same four forms, so that a pattern in
// unusual form matches, too.
func (r *Rules) PassesURI(uri string) bool {
	forms := spellings(uri)
	like := func(pattern string, i int) bool {
		return glob.Match(pattern, forms[i]) || i > 0 && glob.Match(spellings(pattern)[i], forms[i])
	}
	for _, p := range r.Deny {
		for i := range forms {
			if like(p, i) {
				return false
			}
		}
	}
	for _, p := range r.Allow {
		all := true
		for i := range forms {
			all = all && like(p, i)
		}
		if all {
			return true
		}
	}
	return len(r.Allow) == 0
}
