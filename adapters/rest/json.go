package rest

import "github.com/tidwall/gjson"

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
