package toolset

import "github.com/tidwall/gjson"

// PutMember returns the object with a member set, in its place if it has one of that
// name and otherwise at the end.
func PutMember(object []byte, name string, value []byte) []byte {
	return RewriteMembers(object, func(k string, v []byte) (string, []byte) {
		if k == name {
			return k, value
		}
		return k, v
	}, Member{Name: name, Value: value})
}

// Member is one of an object's.
type Member struct {
	Name  string
	Value []byte
}

// AddMembers returns the object with more members at the end, but those that it has already.
func AddMembers(object []byte, more ...Member) []byte {
	return RewriteMembers(object, func(name string, value []byte) (string, []byte) { return name, value }, more...)
}

// RewriteMembers returns the object with its members as f has them: without those of
// which the value becomes nil, and with more at the end unless there is one of
// that name already.
func RewriteMembers(object []byte, f func(name string, value []byte) (string, []byte), more ...Member) []byte {
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
		add(m.Name, m.Value)
	}
	return append(out, '}')
}

// JSONList returns texts as a JSON list.
func JSONList(texts []string) []byte {
	out := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			out = append(out, ',')
		}
		out = gjson.AppendJSONString(out, s)
	}
	return append(out, ']')
}
