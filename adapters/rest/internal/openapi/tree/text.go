package tree

import "unicode/utf8"

// Short cuts what a message repeats of a document.
func Short(s string) string {
	begin, mark := Cut(s, 80)
	return begin + mark
}

// Cut shortens a text to n bytes at most, at a whole character. The mark, which
// stands behind it, says that there was more, or is empty.
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
