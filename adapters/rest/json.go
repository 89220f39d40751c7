package rest

import "github.com/mcp-bridge/bridge/internal/rawjson"

// memberOf returns the value of a member of an object, which is valid JSON, as it
// stands there: nil if there is none. Of several the first counts.
func memberOf(object []byte, name string) (value []byte) {
	rawjson.Walk(object, '{', func(start, at, end int) bool {
		if string(rawjson.Unquote(object[start:rawjson.StringEnd(object, start)])) == name {
			value = object[at:end]
		}
		return value == nil
	})
	return value
}
