// Package rawjson reads and edits JSON as bytes. Parts that do not change keep their digits, their order and their
// unknown members. The package does not check JSON, and decodes only names and texts. Callers have checked that the
// bytes are JSON. Other bytes do no harm, but the results are useless.
package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Walk calls f for each member of an object (open is '{') or for each item of an array (open is '['). start is the
// index of the item, or of the member's name. The value is at [value, end). If b does not begin with open, Walk returns
// false.
func Walk(b []byte, open byte, f func(start, value, end int) bool) bool {
	i := Space(b, 0)
	if i >= len(b) || b[i] != open {
		return false
	}
	i = Space(b, i+1)
	for i < len(b) && b[i] != open+2 { // } and ] come two bytes after { and [
		start, value := i, i
		if open == '{' {
			if b[i] != '"' {
				break
			}
			if i = Space(b, StringEnd(b, i)); i >= len(b) || b[i] != ':' {
				break
			}
			value = Space(b, i+1)
		}
		end := End(b, value)
		if end == value || !f(start, value, end) {
			break
		}
		if i = Space(b, end); i >= len(b) || b[i] != ',' {
			break
		}
		i = Space(b, i+1)
	}
	return true
}

// Space returns the index of the next byte that is not white space.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// End returns the index after the value at i, at any depth.
func End(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			i = StringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			for i++; i < len(b) && !delimiter[b[i]]; i++ {
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// Deeper reports whether a text nests arrays and objects deeper than most levels. The text may be invalid or incomplete
// JSON.
func Deeper(b []byte, most int) bool {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = StringEnd(b, i) - 1
		case '{', '[':
			if depth++; depth > most {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// delimiter holds the bytes that may follow a number or a literal.
var delimiter = [256]bool{
	',':  true,
	':':  true,
	'}':  true,
	']':  true,
	' ':  true,
	'\t': true,
	'\n': true,
	'\r': true,
	'"':  true,
	'{':  true,
	'[':  true,
}

// StringEnd returns the index after the string whose opening quote is at i.
func StringEnd(b []byte, i int) int {
	first := i + 1
	for i = first; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return len(b)
		}
		i += j
		escapes := 0
		for k := i - 1; k >= first && b[k] == '\\'; k-- {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// Unquote returns the text of a JSON string. Invalid UTF-8 becomes U+FFFD, as in encoding/json.
func Unquote(s []byte) []byte {
	if len(s) < 2 {
		return nil
	}
	if inside := s[1 : len(s)-1]; bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return inside
	}
	var out string
	if json.Unmarshal(s, &out) != nil {
		return nil
	}
	return []byte(out)
}

// Quote returns a text as a JSON string.
func Quote(s string) string { return string(gjson.AppendJSONString(nil, s)) }

// Each calls f for each member of an object, with the member's decoded name and value. If b is not an object, Each
// returns false.
func Each(b []byte, f func(name, value []byte)) bool {
	return Walk(b, '{', func(start, value, end int) bool {
		f(Unquote(b[start:StringEnd(b, start)]), b[value:end])
		return true
	})
}

// Get returns the value of a member of an object, or nil. If a name is repeated, Get takes the last member, as most
// peers do.
func Get(object []byte, name string) []byte {
	var found []byte
	Each(object, func(n, value []byte) {
		if string(n) == name {
			found = value
		}
	})
	return found
}

// Text returns the text of a JSON string. For other values, it returns false.
func Text(value []byte) (string, bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return string(Unquote(value)), true
}

// IsObject reports whether a value is an object, by its first byte.
func IsObject(value []byte) bool { return begins(value, '{') }

// IsArray reports whether a value is an array, by its first byte.
func IsArray(value []byte) bool { return begins(value, '[') }

func begins(value []byte, c byte) bool {
	i := Space(value, 0)
	return i < len(value) && value[i] == c
}

// Given reports whether a member is present and not null.
func Given(value []byte) bool { return len(value) > 0 && value[0] != 'n' }

// Same reports whether two slices are the same bytes in memory.
func Same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Edit returns the object with each value replaced by the result of f: the value itself, another value, or nil, which
// drops the member. f gets every member of a repeated name, because peers differ in which member they use. If nothing
// changes, Edit returns object itself.
func Edit(object []byte, f func(name, value []byte) []byte) []byte {
	return replace(object, '{', func(start, value, end int) []byte {
		return f(Unquote(object[start:StringEnd(object, start)]), object[value:end])
	})
}

// EditItems is Edit for the items of an array.
func EditItems(array []byte, f func(item []byte) []byte) []byte {
	return replace(array, '[', func(_, value, end int) []byte { return f(array[value:end]) })
}

func replace(b []byte, open byte, f func(start, value, end int) []byte) []byte {
	var out []byte
	done := 0     // b[:done] is finished
	changed := -1 // length of out at the first change, or -1
	kept := false // the result has an earlier member
	Walk(b, open, func(start, value, end int) bool {
		now := f(start, value, end)
		if Same(now, b[value:end]) {
			if changed >= 0 {
				if kept {
					out = append(out, b[done:end]...)
				} else {
					out = append(out, b[start:end]...) // without the comma
				}
			}
			done, kept = end, true
			return true
		}
		if changed < 0 {
			changed = done
			if done == 0 {
				changed = start
			}
			out = append(make([]byte, 0, len(b)+len(now)), b[:changed]...)
		}
		if now != nil {
			if kept {
				out = append(out, b[done:value]...)
			} else {
				out = append(out, b[start:value]...)
			}
			out = append(out, now...)
			kept = true
		}
		done = end
		return true
	})
	if changed < 0 {
		return b
	}
	return append(out, b[done:]...)
}

// Set returns the object with a member set, in its place or at the end. It drops repetitions of the name, so that a
// long value does not multiply. A value that is not an object, such as nil, counts as an empty object.
func Set(object []byte, name string, value []byte) []byte {
	out, there := replaced(object, name, value)
	if there {
		return out
	}
	return Append(out, '{', append([]byte(Quote(name)+":"), value...))
}

// Merge calls Set for all members of another object.
func Merge(object, over []byte) []byte {
	var names []string
	members := map[string][]byte{}
	Each(over, func(name, value []byte) {
		if _, repeated := members[string(name)]; !repeated {
			names = append(names, string(name))
		}
		members[string(name)] = value
	})
	if len(names) > 0 && !IsObject(object) {
		object = []byte("{}")
	}
	there := map[string]bool{}
	object = Edit(object, func(name, old []byte) []byte {
		n := string(name)
		value, set := members[n]
		switch {
		case !set:
			return old
		case there[n]:
			return nil
		}
		there[n] = true
		return value
	})
	var more []byte
	for _, name := range names {
		if there[name] {
			continue
		}
		if len(more) > 0 {
			more = append(more, ',')
		}
		more = append(append(append(more, Quote(name)...), ':'), members[name]...)
	}
	if len(more) == 0 {
		return object
	}
	return Append(object, '{', more)
}

// SetFirst is like Set, but puts a new member first, so that readers of a long text find the member early.
func SetFirst(object []byte, name string, value []byte) []byte {
	object, there := replaced(object, name, value)
	if there {
		return object
	}
	at := bytes.IndexByte(object, '{') + 1
	out := append(make([]byte, 0, len(object)+len(name)+len(value)+4), object[:at]...)
	out = append(append(append(out, Quote(name)...), ':'), value...)
	if !IsEmpty(object) {
		out = append(out, ',')
	}
	return append(out, object[at:]...)
}

// replaced returns the object with another value for a member, and whether the object has that member.
func replaced(object []byte, name string, value []byte) (out []byte, there bool) {
	if !IsObject(object) {
		return []byte("{}"), false
	}
	out = Edit(object, func(n, old []byte) []byte {
		switch {
		case string(n) != name:
			return old
		case there:
			return nil
		}
		there = true
		return value
	})
	return out, there
}

// Append returns the object or array with more at its end.
func Append(b []byte, open byte, more []byte) []byte {
	at := bytes.LastIndexByte(b, open+2)
	if at < 0 {
		return b
	}
	empty := true
	Walk(b, open, func(int, int, int) bool {
		empty = false
		return false
	})
	out := append(make([]byte, 0, len(b)+len(more)+1), b[:at]...)
	if !empty {
		out = append(out, ',')
	}
	return append(append(out, more...), b[at:]...)
}

// Delete returns the object without the members of the given names.
func Delete(object []byte, names ...string) []byte {
	return Edit(object, func(name, value []byte) []byte {
		for _, n := range names {
			if string(name) == n {
				return nil
			}
		}
		return value
	})
}

// Members returns the members of an object by name, or nil for other values. If a name is repeated, the last member
// counts. If a name differs from a name in sole only in case, Members omits it, because some readers treat the two
// names as equal.
func Members(object []byte, sole ...string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return nil
	}
	for name := range all {
		if slices.ContainsFunc(sole, func(s string) bool { return s != name && strings.EqualFold(s, name) }) {
			delete(all, name)
		}
	}
	return all
}

// IsEmpty reports whether a value is an object without members.
func IsEmpty(object []byte) bool {
	some := false
	return Walk(object, '{', func(int, int, int) bool {
		some = true
		return false
	}) && !some
}

// OneLine returns a copy of JSON without line breaks, which stand only between tokens.
func OneLine(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}

// Mentions reports whether a JSON text may have a member whose name is one of the words. Names with escapes count too.
func Mentions(text []byte, words ...string) bool {
	for _, w := range words {
		if bytes.Contains(text, []byte(w)) {
			return true
		}
	}
	return bytes.Contains(text, []byte(`\u`))
}

// Compact returns JSON without space between its tokens. If there is no such space, Compact returns b itself.
func Compact(b []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = StringEnd(b, i)
		case ' ', '\t', '\n', '\r':
			if out == nil {
				out = make([]byte, 0, len(b))
			}
			out = append(out, b[from:i]...)
			i = Space(b, i)
			from = i
		default:
			i++
		}
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}

// Member is a member of an object.
type Member struct {
	Name  string
	Value []byte // raw JSON
}

// Rewrite returns the object with its members renamed and replaced by f, which drops a member by a nil value. A nil f
// keeps them. Rewrite then adds more. Of members with one name, it keeps the first.
func Rewrite(object []byte, f func(name string, value []byte) (string, []byte), more ...Member) []byte {
	out := append(make([]byte, 0, len(object)+64), '{')
	seen := map[string]bool{}
	add := func(name string, value []byte) {
		if value == nil || seen[name] {
			return
		}
		seen[name] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(gjson.AppendJSONString(out, name), ':'), value...)
	}
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		name, value := k.String(), []byte(v.Raw)
		if f != nil {
			name, value = f(name, value)
		}
		add(name, value)
		return true
	})
	for _, m := range more {
		add(m.Name, m.Value)
	}
	return append(out, '}')
}

// List returns texts as a JSON array.
func List(texts []string) []byte {
	out := []byte{'['}
	for i, s := range texts {
		if i > 0 {
			out = append(out, ',')
		}
		out = gjson.AppendJSONString(out, s)
	}
	return append(out, ']')
}
