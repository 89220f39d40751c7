package jsonrpc

import "github.com/mcp-bridge/bridge/internal/rawjson"

// Value scans the JSON value that begins at b[i], without white space before it,
// and returns the index behind it; -1 when it is not JSON, or nested more than
// deep levels, of which there can be no more than 1,000. Nothing is decoded.
func Value(b []byte, i, deep int) int {
	s := scanner{b: b}
	return s.value(i, maxDepth-min(deep, maxDepth), other)
}

// Valid reports whether b is one JSON value, with white space around it or not,
// that is nested no more than deep levels. Strings may hold bytes that are not
// UTF-8.
func Valid(b []byte, deep int) bool {
	end := Value(b, rawjson.Space(b, 0), deep)
	return end >= 0 && rawjson.Space(b, end) == len(b)
}
