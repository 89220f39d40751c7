package era

import "github.com/mcp-bridge/bridge/internal/rawjson"

// Members of results and answers that no schema allows to be null. Some serializers send unset members as null
// nevertheless, and clients that validate then refuse the whole result.
var (
	// optional are members that may be absent.
	optional = names("_meta", "nextCursor", "isError", "title", "description", "annotations", "icons", "execution",
		"outputSchema", "arguments", "required", "properties", "mimeType", "size", "text", "blob", "sizes", "theme",
		"audience", "priority", "lastModified", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
		"taskSupport", "total", "hasMore", "instructions", "websiteUrl", "statusMessage", "pollInterval", "name", "stopReason")
	// lists are members that must be arrays. Go's serializer writes an empty list as null.
	lists = names("tools", "prompts", "resources", "resourceTemplates", "contents", "content", "messages", "values", "roots")
	// parents are members whose values may have such members. The values of other members are data.
	parents = names("tools", "prompts", "resources", "resourceTemplates", "contents", "content", "messages", "roots",
		"annotations", "icons", "execution", "inputSchema", "outputSchema", "arguments", "completion", "resource", "serverInfo", "task")
)

// deepest is how many levels such members are nested: messages, a message, its content, a resource in it, and the
// members of that.
const deepest = 6

func names(all ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range all {
		set[name] = true
	}
	return set
}

// WithoutNulls returns the result of a request, or the answer to a question, without optional members that are null. It
// leaves structuredContent, _meta and the content of a form as they are, where null is a value. If nothing changes, it
// returns the same bytes.
func WithoutNulls(method string, result []byte, modern bool) []byte {
	if _, question := asking[method]; !question && !InBoth(method) && !IsTask(method) && method != "initialize" && method != "server/discover" {
		return result // a method of a vendor
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
			if !modern { // before 2026-07-28, null means that there is no value
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

// withoutNull returns the value of a member without nulls, or nil if the member must be dropped.
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

// orAbsent returns now, or nil if value is null.
func orAbsent(value, now []byte) []byte {
	if !rawjson.Given(value) {
		return nil
	}
	return now
}
