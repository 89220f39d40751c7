package wire

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// cutter shortens JSON so that it stays JSON: arrays keep whole items from their beginning, and
// large members of objects are cut before small ones.
type cutter struct {
	doc   *jsonrpc.Document
	notes []string
}

// maxNotes is how many cuts the notes list.
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

// fit appends the value between i and end in about budget bytes.
func (k *cutter) fit(dst []byte, i, end int, path string, budget int) []byte {
	v := k.doc.Text[i:end]
	if len(v) <= budget {
		return append(dst, v...)
	}
	switch v[0] {
	case '[':
		return k.array(dst, i, path, budget)
	case '{':
		return k.object(dst, i, path, budget)
	case '"':
		return k.str(dst, v, path, budget)
	}
	return append(dst, v...)
}

// behind returns the index behind the value at i.
func (k *cutter) behind(i int) int {
	if end, _, ok := k.doc.Large(i); ok {
		return end
	}
	return jsonrpc.Value(k.doc.Text, i, math.MaxInt)
}

func (k *cutter) array(dst []byte, i int, path string, budget int) []byte {
	_, n, known := k.doc.Large(i)
	dst = append(dst, '[')
	left, shown, total := budget-2, 0, 0
	for i++; k.doc.Text[i] != ']'; total++ {
		if k.doc.Text[i] == ',' {
			i++
		}
		end := k.behind(i)
		one := k.doc.Text[i:end]
		fits := shown == total && len(one) < left
		switch {
		case fits && shown > 0:
			dst = append(append(dst, ','), one...)
		case fits:
			dst = append(dst, one...)
		case total == 0 && left > 16: // a cut item is better than none
			dst = k.fit(dst, i, end, path+"[0]", left)
			left = 0
			fits = true
		}
		i = end
		if fits {
			shown++
			left -= len(one) + 1
		} else if known { // the rest is not examined
			total = n
			break
		}
	}
	if shown < total {
		k.note(path, "showing %d of %d items", shown, total)
	}
	return append(dst, ']')
}

func (k *cutter) object(dst []byte, i int, path string, budget int) []byte {
	type member struct {
		key        []byte
		value, end int
	}
	_, n, known := k.doc.Large(i)
	var members []member
	names, total := 2, 0
	for i++; k.doc.Text[i] != '}'; {
		if k.doc.Text[i] == ',' {
			i++
		}
		colon := k.behind(i)
		m := member{k.doc.Text[i:colon], colon + 1, k.behind(colon + 1)}
		i = m.end
		total++
		// A value takes some bytes even when all of it is cut.
		if cost := len(m.key) + 2; names+cost+min(m.end-m.value, 4)*(len(members)+1) <= budget && len(members) == total-1 {
			members = append(members, m)
			names += cost
		} else if known { // the rest is not examined
			total = n
			break
		}
	}
	// level is the size up to which values stay complete.
	sizes := make([]int, len(members))
	for i, m := range members {
		sizes[i] = m.end - m.value
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
		dst = append(append(dst, m.key...), ':')
		if m.end-m.value <= level {
			dst = append(dst, k.doc.Text[m.value:m.end]...)
			continue
		}
		name := gjson.ParseBytes(m.key).String()
		if path != "" {
			name = path + "." + name
		}
		dst = k.fit(dst, m.value, m.end, head([]byte(name), 100), level)
	}
	if len(members) < total {
		k.note(path, "showing %d of %d members", len(members), total)
	}
	return append(dst, '}')
}

func (k *cutter) str(dst, v []byte, path string, budget int) []byte {
	text := v[1 : len(v)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = []byte(gjson.ParseBytes(v).Str)
	}
	n := min(len(text), max(budget-5, 0))
	at := len(dst)
	for {
		for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		dst = rawjson.AppendText(dst[:at], text[:n])
		dst = append(append(dst[:len(dst)-1], "…"...), '"')
		if len(dst)-at <= budget || n == 0 {
			break
		}
		n = n * 3 / 4
	}
	k.note(path, "showing %d of %d bytes of text", n, len(text))
	return dst
}

// salvage closes JSON that ends early. It drops an incomplete end.
func salvage(b []byte) []byte {
	end, _ := walk(b, len(b))
	_, open := walk(b, end)
	slices.Reverse(open)
	return slices.Concat(b[:end], open)
}

// walk returns the last index before limit at which JSON may be closed, and the brackets open at
// limit.
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
