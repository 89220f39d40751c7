// Package glob matches the patterns by which operators name tools, prompts, resources and
// servers.
package glob

import (
	"strings"
	"unicode/utf8"
)

// Match reports whether text matches the pattern: * stands for any text, ? for any character. It goes back only to the
// last *, so that a text of a client cannot make it slow.
func Match(pattern, text string) bool {
	star, again := -1, 0 // index of the last *, and of the end of the text that it covers
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
