package era

import (
	"bytes"
	"slices"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// LegacyCapabilities returns the bridge's offer to a legacy server for a client of 2026-07-28 (protocol.md D1.2). It
// drops capabilities that are no objects, because servers would reject the handshake.
func LegacyCapabilities(modern []byte) []byte {
	return clientCapabilities(modern, func(name, value []byte) []byte {
		if string(name) == "roots" {
			return rawjson.Delete(value, "listChanged") // the bridge never sends it
		}
		return value
	})
}

// ModernCapabilities returns the bridge's declaration to a server of 2026-07-28 for a legacy client of that revision
// (protocol.md D2.3).
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

// clientCapabilities returns the capabilities with those of both eras mapped by f. Others pass.
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

// settings lists the client capabilities of both eras, with their members that must be objects; nil means all.
var settings = map[string][]string{
	"roots":        {},
	"sampling":     {"context", "tools"},
	"elicitation":  {"form", "url"},
	"experimental": nil,
	"extensions":   nil,
}

// WithoutTasks returns server capabilities without tasks of either era, which pass between equal eras only
// . For anything but an object it returns an empty one.
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

// CanonicalCapabilities returns one spelling for equal capabilities: sorted members, no white space, numbers
// unchanged. Too deep ones stay as they are.
func CanonicalCapabilities(c []byte) []byte {
	if !rawjson.IsObject(c) {
		return []byte("{}")
	}
	if out, ok := canonicalJSON(c); ok {
		return out
	}
	return c
}

// maxCanonicalDepth bounds the work: each level may copy all levels below.
const maxCanonicalDepth = 64

// canonicalJSON returns one spelling for equal JSON. It reports false if the value is too deep.
func canonicalJSON(value []byte) (out []byte, ok bool) { return canonical(value, 0) }

func canonical(value []byte, depth int) (out []byte, ok bool) {
	if value = value[rawjson.Space(value, 0):]; len(value) == 0 || depth > maxCanonicalDepth {
		return nil, false
	}
	open := value[0]
	switch open {
	default:
		return value[:rawjson.End(value, 0)], true
	case '"':
		return []byte(rawjson.Quote(string(rawjson.Unquote(value[:rawjson.StringEnd(value, 0)])))), true
	case '{', '[':
	}
	type part struct{ name, text []byte }
	var parts []part
	ok = true
	rawjson.Walk(value, open, func(start, at, end int) bool {
		var p part
		if p.text, ok = canonical(value[at:end], depth+1); ok && open == '{' {
			p.name = rawjson.Unquote(value[start:rawjson.StringEnd(value, start)])
			p.text = slices.Concat([]byte(rawjson.Quote(string(p.name))), []byte{':'}, p.text)
		}
		parts = append(parts, p)
		return ok
	})
	if !ok {
		return nil, false
	}
	// Members of the same name keep their order, because some peers take the first one and others
	// the last.
	slices.SortStableFunc(parts, func(p, b part) int { return bytes.Compare(p.name, b.name) })
	out = append(out, open)
	for i, p := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p.text...)
	}
	return append(out, open+2), true // in ASCII, } and ] follow two behind { and [
}
