package rest

import (
	"bytes"
	"math"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
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

// put returns the object with a member set, in its place if it has one of that
// name and otherwise at the end.
func put(object []byte, name string, value []byte) []byte {
	return members(object, func(k string, v []byte) (string, []byte) {
		if k == name {
			return k, value
		}
		return k, v
	}, member{name, value})
}

// member is one of an object's.
type member struct {
	name  string
	value []byte
}

// members returns the object with its members as f has them: without those of
// which the value becomes nil, and with more at the end unless there is one of
// that name already.
func members(object []byte, f func(name string, value []byte) (string, []byte), more ...member) []byte {
	out := make([]byte, 0, len(object)+64)
	out = append(out, '{')
	seen := map[string]bool{}
	add := func(name string, value []byte) {
		if value == nil || seen[name] {
			return
		}
		seen[name] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = gjson.AppendJSONString(out, name)
		out = append(append(out, ':'), value...)
	}
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		name, value := f(k.String(), []byte(v.Raw))
		add(name, value)
		return true
	})
	for _, m := range more {
		add(m.name, m.value)
	}
	return append(out, '}')
}

// quoted returns a text as JSON.
func quoted(s string) []byte { return gjson.AppendJSONString(nil, s) }

// list returns texts as a JSON list.
func list(texts []string) []byte {
	out := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			out = append(out, ',')
		}
		out = gjson.AppendJSONString(out, s)
	}
	return append(out, ']')
}
