package calls

import "github.com/mcp-bridge/bridge/internal/rawjson"

// memberOf returns the raw value of a member of an object, or nil. The object is valid JSON. If
// several members have the name, the first one counts.
func memberOf(object []byte, name string) (value []byte) {
	rawjson.Walk(object, '{', func(start, at, end int) bool {
		if string(rawjson.Unquote(object[start:rawjson.StringEnd(object, start)])) == name {
			value = object[at:end]
		}
		return value == nil
	})
	return value
}
