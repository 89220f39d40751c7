package strict

import (
	"slices"
	"strings"
	"unicode"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// masked hides the values on a line that could not be read, because a value may be a secret. Keys and punctuation stay,
// because punctuation is the usual cause.
func masked(line []rune) []rune {
	out := slices.Clone(line)
	for i, r := range line {
		if inWord(r) {
			out[i] = '*'
		}
		if r != ':' {
			continue
		}
		for k := i - 1; k >= 0 && (inWord(line[k]) || strings.ContainsRune(`"'_-`, line[k])); k-- {
			out[k] = line[k]
		}
	}
	return out
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// opened hides only what looks like a secret on a line: words with the form of a key or a password, and all values
// behind a word that may name a secret. before is the text of the file before the line: within a text in quotes, and
// below a key that may name secrets, opened hides as much as masked.
func opened(line []rune, before string) []rune {
	out := masked(line)
	if strings.Count(before, `"`)%2 == 1 || strings.Count(before, "'")%2 == 1 || slices.ContainsFunc(keysAbove(string(line), before), namesSecret) {
		return out
	}
	words := strings.FieldsFunc(before, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`,{}[]"'`, r) })
	if len(words) > 0 && namesSecret(words[len(words)-1]) { // such as a flag on the line before
		return out
	}
	for begin := 0; begin < len(line); {
		end := begin
		for end < len(line) && !unicode.IsSpace(line[end]) && !strings.ContainsRune(`,{}[]"'`, line[end]) {
			end++
		}
		text := string(line[begin:end])
		if slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":=?&/", r) }), namesSecret) {
			return out
		}
		if !sanitize.MayBeSecret(text) && !sanitize.LooksSecret("", text) {
			copy(out[begin:end], line[begin:end])
		}
		begin = end + 1
	}
	return out
}

// manyTexts are the keys with values that may be secrets, whatever the names of the values.
var manyTexts = []string{"env", "environment", "header", "headers", "openapi_headers", "query", "auth", "body", "claims", "key", "keys"}

// namesSecret reports whether what follows a key, a flag or a variable may be a secret.
func namesSecret(name string) bool {
	name = strings.ToLower(strings.Trim(name, `-"' `))
	return name == "p" || slices.Contains(manyTexts, name) || sanitize.MayNameSecret(name) || strings.Contains(name, "pass") || strings.Contains(name, "pw")
}

// keysAbove returns the keys that a line is below, by its indentation and by the brackets that are open before it.
func keysAbove(line, before string) (keys []string) {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }
	key := func(text string) string {
		text, _, _ = strings.Cut(strings.TrimLeft(text, "- \t"), ":")
		return strings.TrimSpace(text)
	}
	least := indent(line)
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "- ") {
		least++ // a list may be as far to the left as its key
	}
	lines := strings.Split(before, "\n")
	for _, above := range slices.Backward(lines) {
		if n := indent(above); n < least && strings.TrimSpace(above) != "" {
			least = n
			keys = append(keys, key(above))
		}
	}
	var open []string
	begin := 0 // of the words before a bracket
	for i, r := range before {
		switch r {
		case '{', '[':
			open = append(open, key(before[begin:i]))
			begin = i + 1
		case '}', ']':
			open = open[:max(0, len(open)-1)]
			begin = i + 1
		case ',', '\n':
			begin = i + 1
		}
	}
	return append(keys, open...)
}
