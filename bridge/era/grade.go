package era

import "github.com/mcp-bridge/bridge/internal/rawjson"

// The functions below translate messages between revisions. Peers ignore unknown members, so to remove a member is
// mostly cosmetic. But peers fail at unknown kinds of values, which therefore become known ones. A newer revision gets
// nothing extra. The bridge does not check whether peers exceed their revision: between equal revisions, and from an
// older to a newer revision, most messages pass unchanged.

// Result returns a server's result of revision from as a client of revision to understands it. It leaves the members of
// 2026-07-28 that describe a result as they are: resultType, caching hints and serverInfo. If nothing changes, it
// returns the same bytes.
func Result(method string, result []byte, from, to string) []byte {
	if from == to {
		return result
	}
	older := from > to
	switch {
	case method == "tools/list":
		return items(result, "tools", func(t []byte) []byte { return tool(t, from, to) })
	case !older:
	case method == "tools/call":
		return called(result, from, to)
	case method == "prompts/get":
		return prompted(result, to)
	case method == "prompts/list":
		return items(result, "prompts", func(p []byte) []byte { return prompt(p, to) })
	case method == "resources/list":
		return items(result, "resources", func(r []byte) []byte { return resource(r, to) })
	case method == "resources/templates/list":
		return items(result, "resourceTemplates", func(r []byte) []byte { return resource(r, to) })
	case method == "resources/read" && to < Rev20250618:
		return items(result, "contents", func(c []byte) []byte { return rawjson.Delete(c, "_meta") })
	case method == "initialize":
		return rawjson.Edit(result, func(name, value []byte) []byte {
			if string(name) == "serverInfo" {
				return implementation(value, to)
			}
			return value
		})
	}
	return result
}

// items returns the result with each item of its member list mapped by f.
func items(result []byte, list string, f func(item []byte) []byte) []byte {
	return rawjson.Edit(result, func(name, value []byte) []byte {
		if string(name) != list {
			return value
		}
		return rawjson.EditItems(value, f)
	})
}

func tool(t []byte, from, to string) []byte {
	older := from > to
	var title, annotations []byte
	out := rawjson.Edit(t, func(name, value []byte) []byte {
		switch string(name) {
		case "execution":
			return execution(value, from, to)
		case "outputSchema":
			// Clients before 2026-07-28 reject such a tool, or each of its results.
			if older && (to < Rev20250618 || to < FirstModern && !ofObjects(value)) {
				return nil
			}
		case "annotations":
			annotations = value
			if older && to < Rev20250326 {
				return nil
			}
		case "icons", "title", "_meta":
			if string(name) == "title" {
				title = value
			}
			if older {
				return known(string(name), value, to)
			}
		}
		return value
	})
	// Revision 2025-03-26 has the title in annotations.
	if _, ok := rawjson.Text(title); ok && older && Rev20250326 <= to && to < Rev20250618 {
		switch {
		case !rawjson.Given(annotations):
			return rawjson.Set(out, "annotations", append(append([]byte(`{"title":`), title...), '}'))
		case rawjson.IsObject(annotations) && !rawjson.Given(rawjson.Get(annotations, "title")):
			return rawjson.Set(out, "annotations", rawjson.Set(annotations, "title", title))
		}
	}
	return out
}

// execution returns the member execution of a tool. Only 2025-11-25 has taskSupport in it, and tasks do not cross eras
//
func execution(value []byte, from, to string) []byte {
	if from > to && to < Rev20251125 {
		return nil
	}
	if to == Rev20251125 && !IsModern(from) {
		return value
	}
	return orNothing(value, rawjson.Delete(value, "taskSupport"))
}

// ofObjects reports whether the root of a schema has "type": "object".
func ofObjects(schema []byte) bool {
	t, _ := rawjson.Text(rawjson.Get(schema, "type"))
	return t == "object"
}

// known returns the value of a member that all kinds of items may have, or nil if revision to does not have the member.
func known(name string, value []byte, to string) []byte {
	if to < Rev20250618 || name == "icons" && to < Rev20251125 {
		return nil
	}
	return value
}

func prompt(p []byte, to string) []byte {
	return rawjson.Edit(p, func(name, value []byte) []byte {
		switch string(name) {
		case "icons", "title", "_meta":
			return known(string(name), value, to)
		case "arguments":
			if to < Rev20250618 {
				return rawjson.EditItems(value, func(a []byte) []byte { return rawjson.Delete(a, "title") })
			}
		}
		return value
	})
}

// resource returns an item of resources/list or resources/templates/list for revision to.
func resource(r []byte, to string) []byte {
	return rawjson.Edit(r, func(name, value []byte) []byte {
		switch string(name) {
		case "icons", "title", "_meta":
			return known(string(name), value, to)
		case "annotations":
			if to < Rev20250618 {
				return orNothing(value, rawjson.Delete(value, "lastModified"))
			}
		}
		return value
	})
}

// implementation returns the serverInfo of a server for revision to.
func implementation(value []byte, to string) []byte {
	if to < Rev20251125 {
		value = rawjson.Delete(value, "icons", "description", "websiteUrl")
	}
	if to < Rev20250618 {
		value = rawjson.Delete(value, "title")
	}
	return value
}

// Notification returns the params of a server's notification as a client of revision to understands them.
func Notification(method string, params []byte, from, to string) []byte {
	if from <= to {
		return params
	}
	if method == "notifications/progress" && to < Rev20250326 {
		params = rawjson.Delete(params, "message")
	}
	if IsModern(from) && !IsModern(to) {
		params = dropMeta(params, KeySubscription)
	}
	return params
}

// Params returns the params of a client's request as a server of revision to understands them.
func Params(method string, params []byte, from, to string) []byte {
	switch {
	case from == to:
	case method == Complete && from > to && to < Rev20250618:
		return rawjson.Delete(params, "context")
	case method == "tools/call" && (to != Rev20251125 || IsModern(from)):
		return rawjson.Delete(params, "task") // without tasks the parameter is ignored (D6); the client would not poll the task
	}
	return params
}

// dropMeta returns params without the member key of _meta. If that leaves _meta empty, it drops _meta.
func dropMeta(params []byte, key string) []byte {
	return rawjson.Edit(params, func(name, value []byte) []byte {
		if string(name) != "_meta" {
			return value
		}
		return orNothing(value, rawjson.Delete(value, key))
	})
}

// orNothing returns edited, or nil if the edit of the object value left no members.
func orNothing(value, edited []byte) []byte {
	if !rawjson.Same(value, edited) && rawjson.IsEmpty(edited) {
		return nil
	}
	return edited
}
