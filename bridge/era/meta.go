package era

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Keys of _meta that 2026-07-28 defines. The first four are keys of requests.
const (
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"     // in results
	KeySubscription = "io.modelcontextprotocol/subscriptionId" // in notifications, and in the result of subscriptions/listen
)

// requestKeys are the keys of requests, in the order of ReadMeta.
var requestKeys = []string{KeyVersion, KeyCapabilities, KeyClientInfo, KeyLogLevel}

// KeyLane is the key of _meta with the handle of a stateless client. Each handle has connections of its own
// (protocol.md D1.2). Servers do not get the key.
const KeyLane = "dev.mcp-bridge/lane"

// KeyMissing is the member of a list's _meta with the servers that the list of several servers lacks: an array of
// objects with the members server, why and, if the server fails, since (RFC 3339).
const KeyMissing = "dev.mcp-bridge/missing"

// Reserved is the prefix of the keys of _meta that the protocol itself defines.
const Reserved = "io.modelcontextprotocol/"

// TasksExtension is the extension for tasks in 2026-07-28. These tasks differ from those of 2025-11-25, and neither
// cross eras.
const TasksExtension = Reserved + "tasks"

// logLevels are the log levels of RFC 5424, the least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity returns a number that is higher for more severe log levels. For an unknown level it is -1.
func Severity(level string) int { return slices.Index(logLevels, level) }

// Level reads the params of logging/setLevel. fault is the error text for an invalid level, or "".
func Level(params []byte) (level, fault string) {
	if level, _ = rawjson.Text(rawjson.Get(params, "level")); Severity(level) < 0 {
		return "", "level must be one of " + strings.Join(logLevels, ", ")
	}
	return level, ""
}

// LogLevel returns the lowest level of log messages that a request with that _meta asks for. Empty means that it asks
// for none.
func LogLevel(meta []byte) string {
	if !rawjson.Mentions(meta, "logLevel") {
		return ""
	}
	return gjson.GetBytes(meta, gjson.Escape(KeyLogLevel)).Str
}

// Wanted reports whether a client that asks for log messages from level on gets the notification m. It is true
// for notifications that are no log messages.
func Wanted(m *jsonrpc.Message, level string) bool {
	if m.Method != "notifications/message" {
		return true
	}
	return level != "" && Severity(gjson.GetBytes(m.Params, "level").Str) >= Severity(level)
}

// Meta is what a modern request says about its client (2026-07-28, per-request _meta). Capabilities and ClientInfo are
// raw JSON objects; nil or empty means that they are absent.
type Meta struct {
	Version                  string
	Capabilities, ClientInfo []byte
	LogLevel                 string
}

// ReadMeta reads params._meta, which is raw JSON or nil. If it is invalid, the second value is the error text (R-067,
// Even then Meta has the members that could be read, because an unsupported version has an error of its own.
// Duplicate keys are invalid, because another reader might use the other value. Meta refers to the bytes of meta.
func ReadMeta(meta []byte) (Meta, string) {
	if meta == nil {
		return Meta{}, "params._meta is missing"
	}
	var raw [4][]byte // in the order of requestKeys
	twice := -1
	if !rawjson.Each(meta, func(name, value []byte) {
		k := slices.Index(requestKeys, string(name))
		if k < 0 {
			return
		}
		if raw[k] != nil {
			twice = k
		}
		raw[k] = value
	}) {
		return Meta{}, "params._meta must be an object"
	}
	var m Meta
	isText, isLevel := false, false
	m.Version, isText = rawjson.Text(raw[0])
	if twice == 0 {
		m.Version = "" // it is unclear which version counts
	}
	if rawjson.IsObject(raw[1]) {
		m.Capabilities = raw[1]
	}
	if rawjson.IsObject(raw[2]) {
		m.ClientInfo = raw[2]
	}
	if level, ok := rawjson.Text(raw[3]); ok && slices.Contains(logLevels, level) {
		m.LogLevel, isLevel = level, true
	}
	wrong := func(k int, what string) (Meta, string) { return m, "params._meta: " + requestKeys[k] + " " + what }
	switch {
	case twice >= 0:
		return wrong(twice, "appears twice")
	case raw[0] == nil:
		return wrong(0, "is missing")
	case !isText || m.Version == "":
		return wrong(0, "must be a string and not empty")
	case raw[1] == nil:
		return wrong(1, "is missing")
	case m.Capabilities == nil:
		return wrong(1, "must be an object")
	case raw[2] != nil && m.ClientInfo == nil:
		return wrong(2, "must be an object")
	case raw[3] != nil && !isLevel:
		return wrong(3, "must be one of "+strings.Join(logLevels, ", "))
	}
	return m, ""
}

// Members returns m as the members of an object without braces, on one line. It omits absent values.
func (m Meta) Members() []byte {
	var out []byte
	add := func(key string, value []byte) {
		if out != nil {
			out = append(out, ',')
		}
		out = append(append(out, '"'), key...)
		out = append(append(out, `":`...), value...)
	}
	if m.Version != "" {
		add(KeyVersion, []byte(rawjson.Quote(m.Version)))
	}
	if m.Capabilities != nil {
		add(KeyCapabilities, m.Capabilities)
	}
	if m.ClientInfo != nil {
		add(KeyClientInfo, m.ClientInfo)
	}
	if m.LogLevel != "" {
		add(KeyLogLevel, []byte(rawjson.Quote(m.LogLevel)))
	}
	return rawjson.OneLine(out)
}

// Inject returns params with members, the result of Members, in _meta. It first removes the keys of requests that the
// client set, which would speak for the bridge. If _meta is no object, Inject replaces it; of several it keeps
// the first. params is a raw JSON object or nil, and is not changed.
func Inject(params, members []byte) []byte {
	made := slices.Concat([]byte{'{'}, members, []byte{'}'})
	if params = bytes.TrimLeft(params, " \t\r\n"); !rawjson.Given(params) {
		params = []byte("{}")
	}
	if !rawjson.IsObject(params) {
		return params // no request has such params
	}
	seen := false
	out := editMeta(params, func(meta []byte) []byte {
		seen = true
		switch left := rawjson.Delete(meta, requestKeys...); {
		case !rawjson.IsObject(meta) || rawjson.IsEmpty(left):
			return made
		case len(members) == 0:
			return left
		default:
			return rawjson.Append(left, '{', members)
		}
	})
	if seen {
		return out
	}
	return rawjson.Append(params, '{', append([]byte(`"_meta":`), made...))
}

// Strip returns params without the keys of requests in _meta, and without an empty _meta. Of several _meta it keeps the
// first. If nothing changes, it returns params itself. params is a raw JSON object or nil.
func Strip(params []byte) []byte {
	return editMeta(params, func(meta []byte) []byte {
		return orNothing(meta, rawjson.Delete(meta, requestKeys...))
	})
}

// editMeta returns params with the first _meta mapped by f. It removes further ones, so that all readers see the same
// _meta.
func editMeta(params []byte, f func(meta []byte) []byte) []byte {
	seen := false
	return rawjson.Edit(params, func(name, value []byte) []byte {
		switch {
		case string(name) != "_meta":
			return value
		case seen:
			return nil
		}
		seen = true
		return f(value)
	})
}

// StripMRTR returns params as they were before the client repeated the request with answers: without inputResponses and
// requestState (2026-07-28, multi round-trip requests). If nothing changes, it returns params itself. params is a raw
// JSON object or nil.
func StripMRTR(params []byte) []byte { return rawjson.Delete(params, "inputResponses", "requestState") }

// Lowered returns the request for a legacy server of that revision (protocol.md D1.1): without what 2026-07-28 puts
// into requests, and without members for the bridge. The result shares memory with m, so it is valid as long as m is.
func Lowered(m *jsonrpc.Message, revision string) *jsonrpc.Message {
	var edits []jsonrpc.Edit
	meta, place := m.Meta(), 0
	emptied := false
	if gjson.ParseBytes(meta).IsObject() {
		place = cap(m.Params) - cap(meta)
		edits, emptied = jsonrpc.Omit(meta, place, bridged)
	}
	var drop func(name string) bool
	switch {
	case MayAsk(m.Method) && rawjson.Mentions(m.Params, "requestState", "inputResponses", `"task"`):
		drop = func(name string) bool {
			return name == "inputResponses" || name == "requestState" || name == "task" && m.Method == "tools/call"
		}
	case m.Method == Complete && revision < Rev20250618:
		drop = func(name string) bool { return name == "context" }
	case emptied:
		return m.Edited(around(m.Params, place, place+len(meta)))
	case len(edits) == 0:
		return m
	default:
		return m.Edited(edits...)
	}
	if emptied {
		edits = nil
	}
	more, _ := jsonrpc.Omit(m.Params, 0, func(name string) bool { return drop(name) || emptied && name == "_meta" })
	return m.Edited(append(edits, more...)...)
}

// bridged reports whether the member name of _meta is for the bridge, not for a legacy server.
func bridged(name string) bool {
	switch name {
	case KeyVersion, KeyCapabilities, KeyClientInfo, KeyLogLevel, KeyLane:
		return true
	}
	return false
}

// around returns the edit that removes a member of an object, with its name and a comma. value and end are the bounds
// of the member's value.
func around(object []byte, value, end int) jsonrpc.Edit {
	name := bytes.LastIndexByte(object[:value], '"')
	name = bytes.LastIndexByte(object[:name], '"')
	if before := bytes.TrimRight(object[:name], " \t\r\n"); before[len(before)-1] == ',' {
		return jsonrpc.Edit{From: len(before) - 1, To: end}
	}
	if behind := end + rawjson.Space(object[end:], 0); object[behind] == ',' {
		return jsonrpc.Edit{From: name, To: behind + 1}
	}
	return jsonrpc.Edit{From: name, To: end}
}

// SaysVersion reports whether the _meta names a protocol version.
func SaysVersion(meta []byte) bool {
	if !bytes.Contains(meta, []byte(versionName)) && bytes.IndexByte(meta, '\\') < 0 { // names may have escapes
		return false
	}
	return gjson.GetBytes(meta, VersionPath).Exists()
}

// VersionPath is the gjson path of KeyVersion in _meta.
var VersionPath = gjson.Escape(KeyVersion)

var versionName = KeyVersion[strings.IndexByte(KeyVersion, '/')+1:] // without the slash, which writers often escape
