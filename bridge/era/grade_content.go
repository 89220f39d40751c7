package era

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// called returns the result of tools/call for a client of the older revision to.
func called(result []byte, from, to string) []byte {
	var shown []byte // structuredContent that becomes a text block
	result = rawjson.Edit(result, func(name, value []byte) []byte {
		switch string(name) {
		case "structuredContent":
			if to < Rev20250618 || to < FirstModern && !rawjson.IsObject(value) {
				if shown = value; !rawjson.Given(value) && !IsModern(from) {
					shown = nil // before 2026-07-28, null means that there is no value
				}
				return nil
			}
		case "content":
			if to < Rev20250618 { // newer revisions know all kinds of blocks, and content may be large
				return rawjson.EditItems(value, func(b []byte) []byte { return block(b, to) })
			}
		}
		return value
	})
	if shown == nil {
		return result
	}
	more := textBlock(string(shown))
	switch content := rawjson.Get(result, "content"); {
	case rawjson.IsArray(content):
		if shows(content, shown) {
			return result
		}
		return rawjson.Set(result, "content", rawjson.Append(content, '[', more))
	case rawjson.Given(content): // no client accepts this content, but a person may read it
		return rawjson.Set(result, "content", list(textBlock(string(content)), more))
	default:
		return rawjson.Set(result, "content", list(more))
	}
}

// shows reports whether a text block has the value: as the same bytes, as equal JSON, or as the text of a string.
func shows(content, value []byte) bool {
	plain, isText := rawjson.Text(value)
	canonical, _ := canonicalJSON(value)
	found := false
	rawjson.Walk(content, '[', func(_, at, end int) bool {
		b := content[at:end]
		if kind, _ := rawjson.Text(rawjson.Get(b, "type")); kind != "text" {
			return true
		}
		t, _ := rawjson.Text(rawjson.Get(b, "text"))
		found = t == string(value) || isText && t == plain
		if !found && canonical != nil && json.Valid([]byte(t)) {
			other, ok := canonicalJSON([]byte(t))
			found = ok && string(other) == string(canonical)
		}
		return !found
	})
	return found
}

func prompted(result []byte, to string) []byte {
	if to >= Rev20250618 {
		return result
	}
	return items(result, "messages", func(message []byte) []byte {
		return rawjson.Edit(message, func(name, value []byte) []byte {
			if string(name) != "content" {
				return value
			}
			if rawjson.IsArray(value) {
				return rawjson.EditItems(value, func(b []byte) []byte { return block(b, to) })
			}
			return block(value, to)
		})
	})
}

// block returns a block of content for a client of the older revision to. A kind that the client does not know becomes
// a text.
func block(b []byte, to string) []byte {
	if to >= Rev20250618 {
		return b
	}
	switch kind, _ := rawjson.Text(rawjson.Get(b, "type")); {
	case kind == "resource_link":
		return inWords(b, link(b))
	case kind == "audio" && to < Rev20250326:
		return inWords(b, audio(b))
	}
	return b
}

// inWords returns a text block in place of b, with the annotations and _meta of b.
func inWords(b []byte, words string) []byte {
	out := textBlock(words)
	for _, name := range []string{"annotations", "_meta"} {
		if value := rawjson.Get(b, name); value != nil {
			out = rawjson.Set(out, name, value)
		}
	}
	return out
}

func link(b []byte) string {
	uri, _ := rawjson.Text(rawjson.Get(b, "uri"))
	name, _ := rawjson.Text(rawjson.Get(b, "name"))
	description, _ := rawjson.Text(rawjson.Get(b, "description"))
	if name != "" && uri != "" {
		name += ": "
	}
	if name += uri; name != "" && description != "" {
		name += "\n"
	}
	return name + description
}

func audio(b []byte) string {
	kind, ok := rawjson.Text(rawjson.Get(b, "mimeType"))
	if !ok {
		kind = "of unknown type"
	}
	data, _ := rawjson.Text(rawjson.Get(b, "data"))
	size := base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(data, "=")))
	return "[audio " + kind + ", " + strconv.Itoa(size) + " bytes]"
}

func textBlock(s string) []byte {
	return append(append([]byte(`{"type":"text","text":`), rawjson.Quote(s)...), '}')
}

// list returns a JSON array of these values.
func list(values ...[]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(values, []byte{','}), []byte{']'})
}
