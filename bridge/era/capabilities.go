package era

import (
	"bytes"
	"slices"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// LegacyCapabilities returns the capabilities that the bridge declares to a legacy server for a client of 2026-07-28
// (protocol.md D1.2). It drops capabilities that are no objects, because servers would reject the handshake.
func LegacyCapabilities(modern []byte) []byte {
	return clientCapabilities(modern, func(name, value []byte) []byte {
		if string(name) == "roots" {
			return rawjson.Delete(value, "listChanged") // the bridge never sends that notification
		}
		return value
	})
}

// ModernCapabilities returns the capabilities that the bridge declares to a server of 2026-07-28 for a client of that
// legacy revision (protocol.md D2.3).
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

// clientCapabilities returns the capabilities without tasks, and with those that both eras have mapped by f. It keeps
// unknown capabilities.
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

// settings holds the client capabilities that both eras have, with the members that must be objects; nil means all.
var settings = map[string][]string{
	"roots":        {},
	"sampling":     {"context", "tools"},
	"elicitation":  {"form", "url"},
	"experimental": nil,
	"extensions":   nil,
}

// WithoutTasks returns server capabilities without tasks of either era, because tasks do not cross eras. If c
// is no object, the result is {}.
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

// CanonicalCapabilities returns the same text for equal capabilities: with sorted members, without white space, and
// with numbers unchanged. Capabilities that are nested too deep stay as they are.
func CanonicalCapabilities(c []byte) []byte {
	if !rawjson.IsObject(c) {
		return []byte("{}")
	}
	if out, ok := canonicalJSON(c); ok {
		return out
	}
	return c
}

// maxCanonicalDepth bounds the nesting, because each level may copy all levels below it.
const maxCanonicalDepth = 64

// canonicalJSON returns the same text for equal JSON. It reports false if the value is nested too deep.
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
	// Members of the same name keep their order, because some peers use the first of them and others the last.
	slices.SortStableFunc(parts, func(p, b part) int { return bytes.Compare(p.name, b.name) })
	out = append(out, open)
	for i, p := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p.text...)
	}
	return append(out, open+2), true // in ASCII, } is { + 2, and ] is [ + 2
}
