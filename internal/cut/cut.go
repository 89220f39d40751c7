// Package cut shortens texts and JSON for models.
package cut

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

// JSON returns the document cut to about budget bytes, as valid JSON, and what was cut, for the model. An array keeps its
// first items whole. In an object, large members are cut before small ones.
func JSON(doc *jsonrpc.Document, budget int) (out []byte, notes []string) {
	c := cutter{doc: doc}
	out = c.fit(make([]byte, 0, min(len(doc.Text), budget+budget/8)), 0, len(doc.Text), "", budget)
	return out, c.notes
}

// Head returns at most limit bytes of a text, cut between characters. After a cut, Head adds the size of the whole text.
func Head(b []byte, limit int) string {
	if len(b) <= limit {
		return string(b)
	}
	return string(b[:Before(b, limit)]) + fmt.Sprintf("… (%d bytes in all)", len(b))
}

// Before returns the largest index up to limit at which a text may be cut between characters.
func Before(b []byte, limit int) int {
	for limit > 0 && limit < len(b) && !utf8.RuneStart(b[limit]) {
		limit--
	}
	return limit
}

// cutter cuts one document.
type cutter struct {
	doc   *jsonrpc.Document
	notes []string // what was cut, for the model
}

// maxNotes bounds the cuts that notes lists.
const maxNotes = 5

func (c *cutter) note(path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	switch n := len(c.notes); {
	case n < maxNotes:
		c.notes = append(c.notes, path+fmt.Sprintf(format, args...))
	case n == maxNotes:
		c.notes = append(c.notes, "and more of the kind")
	}
}

// fit appends the value of doc.Text[i:end], cut to about budget bytes. path is its name in notes.
func (c *cutter) fit(dst []byte, i, end int, path string, budget int) []byte {
	v := c.doc.Text[i:end]
	if len(v) <= budget {
		return append(dst, v...)
	}
	switch v[0] {
	case '[':
		return c.array(dst, i, path, budget)
	case '{':
		return c.object(dst, i, path, budget)
	case '"':
		return c.str(dst, v, path, budget)
	}
	return append(dst, v...)
}

// behind returns the index after the value that begins at i.
func (c *cutter) behind(i int) int {
	if end, _, ok := c.doc.Large(i); ok {
		return end
	}
	return jsonrpc.Value(c.doc.Text, i, math.MaxInt)
}

func (c *cutter) array(dst []byte, i int, path string, budget int) []byte {
	_, n, known := c.doc.Large(i)
	dst = append(dst, '[')
	left, shown, total := budget-2, 0, 0
	for i++; c.doc.Text[i] != ']'; total++ {
		if c.doc.Text[i] == ',' {
			i++
		}
		end := c.behind(i)
		one := c.doc.Text[i:end]
		fits := shown == total && len(one) < left
		switch {
		case fits && shown > 0:
			dst = append(append(dst, ','), one...)
		case fits:
			dst = append(dst, one...)
		case total == 0 && left > 16: // a cut item is better than none
			dst = c.fit(dst, i, end, path+"[0]", left)
			left = 0
			fits = true
		}
		i = end
		if fits {
			shown++
			left -= len(one) + 1
		} else if known { // the number of items is known without reading the rest
			total = n
			break
		}
	}
	if shown < total {
		c.note(path, "showing %d of %d items", shown, total)
	}
	return append(dst, ']')
}

func (c *cutter) object(dst []byte, i int, path string, budget int) []byte {
	type member struct {
		key        []byte
		value, end int
	}
	_, n, known := c.doc.Large(i)
	var members []member
	names, total := 2, 0
	for i++; c.doc.Text[i] != '}'; {
		if c.doc.Text[i] == ',' {
			i++
		}
		colon := c.behind(i)
		m := member{c.doc.Text[i:colon], colon + 1, c.behind(colon + 1)}
		i = m.end
		total++
		// A value takes some bytes even when all of it is cut.
		if cost := len(m.key) + 2; names+cost+min(m.end-m.value, 4)*(len(members)+1) <= budget && len(members) == total-1 {
			members = append(members, m)
			names += cost
		} else if known { // the number of members is known without reading the rest
			total = n
			break
		}
	}
	// Values up to level bytes stay complete.
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
			dst = append(dst, c.doc.Text[m.value:m.end]...)
			continue
		}
		name := gjson.ParseBytes(m.key).String()
		if path != "" {
			name = path + "." + name
		}
		dst = c.fit(dst, m.value, m.end, Head([]byte(name), 100), level)
	}
	if len(members) < total {
		c.note(path, "showing %d of %d members", len(members), total)
	}
	return append(dst, '}')
}

func (c *cutter) str(dst, v []byte, path string, budget int) []byte {
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
	c.note(path, "showing %d of %d bytes of text", n, len(text))
	return dst
}

// Salvage returns valid JSON for JSON that was cut off. It drops the last value if that may be
// incomplete.
func Salvage(b []byte) []byte {
	var open []byte // the brackets to close at end
	end := 0        // the last index at which the brackets may be closed
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = rawjson.StringEnd(b, i) - 1
		case '{':
			open, end = append(open, '}'), i+1
		case '[':
			open, end = append(open, ']'), i+1
		case '}', ']':
			open, end = open[:max(len(open)-1, 0)], i+1
		case ',':
			end = i
		}
	}
	slices.Reverse(open)
	return slices.Concat(b[:end], open)
}
