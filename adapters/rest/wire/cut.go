package wire

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// cutter makes JSON smaller so that it stays JSON: arrays keep whole items from
// their beginning, large members of objects give way before small ones.
type cutter struct{ notes []string }

// maxNotes is how many cuts are told.
const maxNotes = 5

func (k *cutter) note(path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	switch n := len(k.notes); {
	case n < maxNotes:
		k.notes = append(k.notes, path+fmt.Sprintf(format, args...))
	case n == maxNotes:
		k.notes = append(k.notes, "and more of the kind")
	}
}

// fit appends v, in about budget bytes.
func (k *cutter) fit(dst []byte, v gjson.Result, path string, budget int) []byte {
	switch {
	case len(v.Raw) <= budget:
		return append(dst, v.Raw...)
	case v.IsArray():
		return k.array(dst, v, path, budget)
	case v.IsObject():
		return k.object(dst, v, path, budget)
	case v.Type == gjson.String:
		return k.str(dst, v, path, budget)
	}
	return append(dst, v.Raw...)
}

func (k *cutter) array(dst []byte, v gjson.Result, path string, budget int) []byte {
	dst = append(dst, '[')
	left, shown, total := budget-2, 0, 0
	v.ForEach(func(_, one gjson.Result) bool {
		fits := shown == total && len(one.Raw) < left
		switch {
		case fits && shown > 0:
			dst = append(append(dst, ','), one.Raw...)
		case fits:
			dst = append(dst, one.Raw...)
		case total == 0 && left > 16: // one that is cut tells more than none
			dst = k.fit(dst, one, path+"[0]", left)
			left = 0
			fits = true
		}
		if fits {
			shown++
			left -= len(one.Raw) + 1
		}
		total++
		return true
	})
	if shown < total {
		k.note(path, "showing %d of %d items", shown, total)
	}
	return append(dst, ']')
}

func (k *cutter) object(dst []byte, v gjson.Result, path string, budget int) []byte {
	type member struct{ key, value gjson.Result }
	var members []member
	names, total := 2, 0
	v.ForEach(func(key, value gjson.Result) bool {
		total++
		// Even cut to nothing a value takes some bytes.
		if cost := len(key.Raw) + 2; names+cost+min(len(value.Raw), 4)*(len(members)+1) <= budget && len(members) == total-1 {
			members = append(members, member{key, value})
			names += cost
		}
		return true
	})
	// The level up to which values can stay as they are.
	sizes := make([]int, len(members))
	for i, m := range members {
		sizes[i] = len(m.value.Raw)
	}
	slices.Sort(sizes)
	left, level := budget-names, 0
	for i, size := range sizes {
		if level = left / (len(sizes) - i); size > level {
			break
		}
		left -= size
		level = size
	}
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, m.key.Raw...), ':')
		name := m.key.String()
		if path != "" {
			name = path + "." + name
		}
		dst = k.fit(dst, m.value, head([]byte(name), 100), level)
	}
	if len(members) < total {
		k.note(path, "showing %d of %d members", len(members), total)
	}
	return append(dst, '}')
}

func (k *cutter) str(dst []byte, v gjson.Result, path string, budget int) []byte {
	text := v.Str
	n := min(len(text), max(budget-5, 0))
	for {
		for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		if at := len(dst); true {
			dst = appendString(dst, text[:n]+"…")
			if len(dst)-at <= budget || n == 0 {
				break
			}
			dst = dst[:at]
		}
		n = n * 3 / 4
	}
	k.note(path, "showing %d of %d bytes of text", n, len(text))
	return dst
}

// salvage closes JSON that ends in the midst: what is not whole at the end is
// left out.
func salvage(b []byte) []byte {
	end, _ := walk(b, len(b))
	_, open := walk(b, end)
	out := append([]byte(nil), b[:end]...)
	for _, c := range slices.Backward(open) {
		out = append(out, c)
	}
	return out
}

// walk returns the last place before limit behind which JSON may be closed, and
// what is open at limit.
func walk(b []byte, limit int) (end int, open []byte) {
	str := false
	for i := 0; i < limit; i++ {
		switch c := b[i]; {
		case str && c == '\\':
			i++
		case c == '"':
			str = !str
		case str:
		case c == '{':
			open, end = append(open, '}'), i+1
		case c == '[':
			open, end = append(open, ']'), i+1
		case c == '}' || c == ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
			end = i + 1
		case c == ',':
			end = i
		}
	}
	return end, open
}
