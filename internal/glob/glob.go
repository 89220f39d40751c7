// Package glob has the patterns with which operators name tools, prompts,
// resources and servers. It knows nothing of what they are matched with.
package glob

import (
	"strings"
	"unicode/utf8"
)

// Match reports whether text matches the pattern: * is any text, ? any
// character. It goes back to the last * only, so that no text, which may come
// from a client, takes it long.
func Match(pattern, text string) bool {
	star, again := -1, 0 // where the last * stands, and what it has to reach beyond
	p, t := 0, 0
	for t < len(text) {
		_, size := utf8.DecodeRuneInString(text[t:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, again = p, t
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			t += size
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0:
			again++
			p, t = star+1, again
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
