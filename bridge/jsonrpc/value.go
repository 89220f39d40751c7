package jsonrpc

import "github.com/mcp-bridge/bridge/internal/rawjson"

// Value scans the JSON value at b[i], which must not be white space, and returns the index behind it. It returns -1 if
// the value is not JSON, or is nested deeper than deep levels (at most 1,000). Value decodes nothing.
func Value(b []byte, i, deep int) int {
	s := scanner{b: b}
	return s.value(i, maxDepth-min(deep, maxDepth), other)
}

// Valid reports whether b is one JSON value of at most deep levels, perhaps with white space around it. Strings need
// not be UTF-8.
func Valid(b []byte, deep int) bool {
	end := Value(b, rawjson.Space(b, 0), deep)
	return end >= 0 && rawjson.Space(b, end) == len(b)
}
