package tree

import "unicode/utf8"

// Short shortens a part of a document for a message.
func Short(s string) string {
	begin, mark := Cut(s, 80)
	return begin + mark
}

// Cut shortens a text to at most n bytes, at a whole character. mark is appended if it was longer;
// it may be empty.
func Cut(s string, n int) (begin, mark string) {
	if len(s) <= n {
		return s, ""
	}
	if n < 3 {
		return "", ""
	}
	end := n - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], "…"
}
