package tree

import "unicode/utf8"

// Short shortens a text of a document to 80 bytes, for a message.
func Short(s string) string {
	begin, mark := Cut(s, 80)
	return begin + mark
}

// Cut returns the beginning of a text, without a partial character, and a mark for its end, in n bytes
// together. The mark is empty if the text is not cut, or if n is less than 3.
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
