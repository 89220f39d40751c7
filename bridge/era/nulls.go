package era

import "github.com/mcp-bridge/bridge/internal/rawjson"

// These are the members of results and answers that no schema allows to be null. Serializers that keep unset
// members send them as null nevertheless, and clients that validate refuse the whole result.
var (
	// optional may be absent.
	optional = names("_meta", "nextCursor", "isError", "title", "description", "annotations", "icons", "execution",
		"outputSchema", "arguments", "required", "properties", "mimeType", "size", "text", "blob", "sizes", "theme",
		"audience", "priority", "lastModified", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
		"taskSupport", "total", "hasMore", "instructions", "websiteUrl", "statusMessage", "pollInterval", "name", "stopReason")
	// lists must be arrays: an empty list of Go is null.
	lists = names("tools", "prompts", "resources", "resourceTemplates", "contents", "content", "messages", "values", "roots")
	// parents have such members in turn. All other values are data.
	parents = names("tools", "prompts", "resources", "resourceTemplates", "contents", "content", "messages", "roots",
		"annotations", "icons", "execution", "inputSchema", "outputSchema", "arguments", "completion", "resource", "serverInfo", "task")
)

// deepest is how many levels of such members there are: messages, a message, its content, a resource in it, and
// what that has.
const deepest = 6

func names(all ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range all {
		set[name] = true
	}
	return set
}

// WithoutNulls returns the result of a request, or the answer to a question, without optional members that are null.
// It does not look into structuredContent, _meta and the content of a form: null is a value there. It returns
// the same bytes if nothing changes.
func WithoutNulls(method string, result []byte, modern bool) []byte {
	if _, question := asking[method]; !question && !InBoth(method) && !IsTask(method) && method != "initialize" && method != "server/discover" {
		return result // a vendor's own
	}
	return rawjson.Edit(result, func(name, value []byte) []byte {
		switch string(name) {
		case "capabilities":
			return rawjson.Edit(value, func(_, capability []byte) []byte {
				return orAbsent(capability, rawjson.Edit(capability, func(name, flag []byte) []byte {
					if n := string(name); n == "listChanged" || n == "subscribe" {
						return orAbsent(flag, flag)
					}
					return flag
				}))
			})
		case "structuredContent":
			if !modern { // null is a value only since 2026-07-28
				return orAbsent(value, value)
			}
			return value
		case "content":
			if method == "elicitation/create" {
				return orAbsent(value, value)
			}
		}
		return withoutNull(string(name), value, 0)
	})
}

func withoutNulls(object []byte, depth int) []byte {
	if depth > deepest || !rawjson.IsObject(object) {
		return object
	}
	return rawjson.Edit(object, func(name, value []byte) []byte { return withoutNull(string(name), value, depth) })
}

// withoutNull returns the value of a member, or nil to drop the member.
func withoutNull(name string, value []byte, depth int) []byte {
	switch {
	case !rawjson.Given(value) && lists[name]:
		return []byte("[]")
	case optional[name] && !rawjson.Given(value):
		return nil
	case !parents[name]:
		return value
	case rawjson.IsArray(value):
		return rawjson.EditItems(value, func(item []byte) []byte { return withoutNulls(item, depth+1) })
	}
	return withoutNulls(value, depth+1)
}

// orAbsent returns now, or nil if the value is null.
func orAbsent(value, now []byte) []byte {
	if !rawjson.Given(value) {
		return nil
	}
	return now
}
