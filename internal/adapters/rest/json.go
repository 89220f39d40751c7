package rest

import (
	"bytes"
	"math"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/jsonrpc"
)

// memberOf returns the value of a member of an object, which is valid JSON, as it
// stands there: nil if there is none. Of several the first counts.
func memberOf(object []byte, name string) []byte {
	i := jsonrpc.Space(object, 0)
	if i == len(object) || object[i] != '{' {
		return nil
	}
	for i = jsonrpc.Space(object, i+1); i < len(object) && object[i] != '}'; {
		end := jsonrpc.Value(object, i, 0)
		if end < 0 {
			return nil
		}
		key := object[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(gjson.ParseBytes(object[i:end]).Str)
		}
		begin := jsonrpc.Space(object, jsonrpc.Space(object, end)+1)
		if end = jsonrpc.Value(object, begin, math.MaxInt); end < 0 {
			return nil
		}
		if string(key) == name {
			return object[begin:end]
		}
		if i = jsonrpc.Space(object, end); i < len(object) && object[i] == ',' {
			i = jsonrpc.Space(object, i+1)
		}
	}
	return nil
}
