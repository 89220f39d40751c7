package jsonrpc

// IsBatch reports whether the text is an array, which is a batch of messages (only in 2025-03-26).
func IsBatch(b []byte) bool {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\n', '\r':
		case '{', '[':
			return c == '['
		default:
			b = Bare(b)
			return len(b) > 0 && b[0] == '['
		}
	}
	return false
}

// Split returns the elements of an array, each a text for Parse. If b is not JSON, the error is a *SyntaxError; if it
// is no array, the error is an *InvalidError.
func Split(b []byte) ([][]byte, error) {
	b = Bare(b)
	s := scanner{b: b}
	i := s.space(0)
	end := s.value(i, 0, other)
	if end < 0 || s.space(end) != len(b) {
		return nil, s.syntax(end)
	}
	if b[i] != '[' {
		return nil, &InvalidError{What: "an array is expected"}
	}
	var elements [][]byte
	for i = s.space(i + 1); b[i] != ']'; {
		end := s.value(i, 1, other)
		elements = append(elements, b[i:end:end])
		if i = s.space(end); b[i] == ',' {
			i = s.space(i + 1)
		}
	}
	return elements, nil
}
