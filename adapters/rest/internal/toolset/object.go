package toolset

import "github.com/tidwall/gjson"

// PutMember returns the object with the member set. A new member is the last one.
func PutMember(object []byte, name string, value []byte) []byte {
	return RewriteMembers(object, func(k string, v []byte) (string, []byte) {
		if k == name {
			return k, value
		}
		return k, v
	}, Member{Name: name, Value: value})
}

// Member is a member of a JSON object.
type Member struct {
	Name  string
	Value []byte // JSON
}

// AddMembers returns the object with more members at the end. It skips members that the object
// already has.
func AddMembers(object []byte, more ...Member) []byte {
	return RewriteMembers(object, func(name string, value []byte) (string, []byte) { return name, value }, more...)
}

// RewriteMembers returns the object with each member replaced by what f returns, and with more at
// the end. It drops a member with a nil value, and a member whose name an earlier one has.
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
