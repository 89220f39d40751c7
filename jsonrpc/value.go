package jsonrpc

// Value scans the JSON value that begins at b[i], without white space before it,
// and returns the index behind it; -1 when it is not JSON, or nested more than
// deep levels, of which there can be no more than 1,000. Nothing is decoded.
func Value(b []byte, i, deep int) int {
	s := scanner{b: b}
	return s.value(i, maxDepth-min(deep, maxDepth), other)
}

// Space returns the index of the first byte of b from i on that is not white
// space of JSON.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// Valid reports whether b is one JSON value, with white space around it or not,
// that is nested no more than deep levels. Strings may hold bytes that are not
// UTF-8.
func Valid(b []byte, deep int) bool {
	end := Value(b, Space(b, 0), deep)
	return end >= 0 && Space(b, end) == len(b)
}
