package era

import (
	"cmp"
	"slices"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// LegacyCapabilities is what a bridge offers a legacy server on behalf of a
// client of 2026-07-28 (protocol.md D1.2). Capabilities that are no objects are
// left out: a server would refuse the handshake for them.
func LegacyCapabilities(modern []byte) []byte {
	return clientCapabilities(modern, func(name, value []byte) []byte {
		if string(name) == "roots" {
			return rawjson.Delete(value, "listChanged") // nobody would send it
		}
		return value
	})
}

// ModernCapabilities is what a bridge declares to a server of 2026-07-28 on
// behalf of a legacy client of that revision (protocol.md D2.3).
func ModernCapabilities(legacy []byte, revision string) []byte {
	return clientCapabilities(legacy, func(name, value []byte) []byte {
		switch string(name) {
		case "roots":
			return rawjson.Delete(value, "listChanged")
		case "sampling":
			if revision < Rev20251125 && !rawjson.IsEmpty(value) {
				return []byte("{}")
			}
		case "elicitation":
			if revision < Rev20250618 {
				return nil
			}
			if revision < Rev20251125 {
				return rawjson.Delete(value, "url")
			}
		}
		return value
	})
}

// clientCapabilities returns the capabilities as f maps those that mean the same
// in both eras. Others are an open set: they pass.
func clientCapabilities(c []byte, f func(name, value []byte) []byte) []byte {
	if !rawjson.IsObject(c) {
		return []byte("{}")
	}
	return rawjson.Edit(c, func(name, value []byte) []byte {
		settings, known := settings[string(name)]
		switch {
		case string(name) == "tasks":
			return nil
		case !known:
			return value
		case !rawjson.IsObject(value):
			return nil
		}
		value = orNothing(value, rawjson.Edit(value, func(n, v []byte) []byte {
			if string(n) == TasksExtension && string(name) == "extensions" {
				return nil
			}
			if !rawjson.IsObject(v) && (settings == nil || slices.Contains(settings, string(n))) {
				return nil
			}
			return v
		}))
		if value == nil {
			return nil
		}
		return f(name, value)
	})
}

// settings are the capabilities of clients that both eras have, with the members
// that must be objects; nil means all.
var settings = map[string][]string{
	"roots":        {},
	"sampling":     {"context", "tools"},
	"elicitation":  {"form", "url"},
	"experimental": nil,
	"extensions":   nil,
}

// WithoutTasks returns capabilities of a server without those of tasks, of either
// era: those are relayed between equals only. What is no object is one
// without capabilities.
func WithoutTasks(c []byte) []byte {
	if !rawjson.IsObject(c) {
		return []byte("{}")
	}
	return rawjson.Edit(c, func(name, value []byte) []byte {
		switch string(name) {
		case "tasks":
			return nil
		case "extensions":
			return orNothing(value, rawjson.Delete(value, TasksExtension))
		}
		return value
	})
}

// CanonicalCapabilities is one spelling for all capabilities that are the same:
// sorted members, no white space, numbers as they are. Capabilities of absurd
// depth are their own spelling.
func CanonicalCapabilities(c []byte) []byte {
	if !rawjson.IsObject(c) {
		return []byte("{}")
	}
	if out, ok := canonicalJSON(c); ok {
		return out
	}
	return c
}

// maxCanonicalDepth bounds the work: each level may move what is below it.
const maxCanonicalDepth = 64

// canonicalJSON is one spelling for all JSON that means the same. It reports
// false for what is too deep.
func canonicalJSON(value []byte) ([]byte, bool) {
	c := canonical{b: value, out: make([]byte, 0, len(value))}
	if c.value(rawjson.Space(value, 0), 0) < 0 {
		return nil, false
	}
	return c.out, true
}

type canonical struct{ b, out []byte }

// value writes the value that begins at i and returns the index behind it, or
// -1.
func (c *canonical) value(i, depth int) int {
	if i >= len(c.b) || depth > maxCanonicalDepth {
		return -1
	}
	switch c.b[i] {
	case '"':
		end := rawjson.StringEnd(c.b, i)
		c.out = append(c.out, rawjson.Quote(string(rawjson.Unquote(c.b[i:end])))...)
		return end
	case '[':
		c.out = append(c.out, '[')
		empty := len(c.out)
		end := each(c.b, i, func(_ []byte, _, from int) int {
			if len(c.out) > empty {
				c.out = append(c.out, ',')
			}
			return c.value(from, depth+1)
		})
		c.out = append(c.out, ']')
		return end
	case '{':
		return c.object(i, depth)
	}
	end := rawjson.End(c.b, i)
	c.out = append(c.out, c.b[i:end]...)
	return end
}

func (c *canonical) object(i, depth int) int {
	type member struct {
		name     string
		from, to int // in out
	}
	var all []member
	c.out = append(c.out, '{')
	begin := len(c.out)
	end := each(c.b, i, func(name []byte, _, value int) int {
		if len(all) > 0 {
			c.out = append(c.out, ',')
		}
		m := member{name: string(name), from: len(c.out)}
		c.out = append(append(c.out, rawjson.Quote(m.name)...), ':')
		end := c.value(value, depth+1)
		m.to = len(c.out)
		all = append(all, m)
		return end
	})
	// Members of one name stay, in their order: peers differ in which they take.
	byName := func(a, b member) int { return cmp.Compare(a.name, b.name) }
	if end >= 0 && !slices.IsSortedFunc(all, byName) {
		slices.SortStableFunc(all, byName)
		sorted := make([]byte, 0, len(c.out)-begin)
		for i, m := range all {
			if i > 0 {
				sorted = append(sorted, ',')
			}
			sorted = append(sorted, c.out[m.from:m.to]...)
		}
		copy(c.out[begin:], sorted)
	}
	c.out = append(c.out, '}')
	return end
}
