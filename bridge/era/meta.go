package era

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// These keys of _meta are reserved by 2026-07-28. The first four belong to requests.
const (
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"     // of a result
	KeySubscription = "io.modelcontextprotocol/subscriptionId" // of a notification, or of the result of a listen
)

// requestKeys holds the reserved keys of requests.
var requestKeys = []string{KeyVersion, KeyCapabilities, KeyClientInfo, KeyLogLevel}

// KeyLane is the member of _meta with a stateless client's handle. Each handle has connections of its own
// (protocol.md D1.2). Servers do not get it.
const KeyLane = "dev.mcp-bridge/lane"

// Reserved is the prefix of the protocol's own keys of _meta.
const Reserved = "io.modelcontextprotocol/"

// TasksExtension is the extension that declares tasks in 2026-07-28. They differ from the tasks of 2025-11-25,
// and neither crosses eras.
const TasksExtension = Reserved + "tasks"

// logLevels holds the log levels, the least severe first (RFC 5424).
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity orders log levels. An unknown level is below all others.
func Severity(level string) int { return slices.Index(logLevels, level) }

// Level reads the level of logging/setLevel. fault is the message of -32602 for an invalid one, else "".
func Level(params []byte) (level, fault string) {
	if level, _ = rawjson.Text(rawjson.Get(params, "level")); Severity(level) < 0 {
		return "", "level must be one of " + strings.Join(logLevels, ", ")
	}
	return level, ""
}

// LogLevel returns the lowest level of log messages that a request demands in that _meta; empty means none.
func LogLevel(meta []byte) string {
	if !rawjson.Mentions(meta, "logLevel") {
		return ""
	}
	return gjson.GetBytes(meta, gjson.Escape(KeyLogLevel)).Str
}

// Wanted reports whether the receiver of log messages from level on gets the notification. Other
// notifications always pass.
func Wanted(m *jsonrpc.Message, level string) bool {
	if m.Method != "notifications/message" {
		return true
	}
	return level != "" && Severity(gjson.GetBytes(m.Params, "level").Str) >= Severity(level)
}

// Meta is the client data of a modern request (2026-07-28, per-request _meta). Capabilities and ClientInfo are
// raw JSON objects; nil or empty means absent.
type Meta struct {
	Version                  string
	Capabilities, ClientInfo []byte
	LogLevel                 string
}

// ReadMeta reads params._meta, raw JSON or nil. The second value is the message of -32602 for an invalid one,
// else "". Even then it returns the readable members, because an unsupported version has an error
// of its own. Duplicate keys are invalid, because two readers would see two clients. Meta refers to the given
// bytes.
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
		m.Version = "" // ambiguous
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

// Members returns m as members of _meta without braces, on one line. It omits absent values.
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

// Inject returns params with the members, as written by Members, in _meta. params is a raw JSON object or nil.
// It first removes the client's own reserved keys, which would speak for the bridge. It replaces a _meta
// that is no object, and keeps the first of several. All other bytes stay, and params itself is not changed.
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

// Strip returns params without the reserved keys of requests, and without an empty _meta. params is a raw JSON
// object or nil. It keeps the first _meta of several. It returns params itself if nothing changes.
func Strip(params []byte) []byte {
	return editMeta(params, func(meta []byte) []byte {
		return orNothing(meta, rawjson.Delete(meta, requestKeys...))
	})
}

// editMeta returns params with the first _meta mapped by f. It removes further ones, so that all readers take
// the same.
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

// StripMRTR returns params without inputResponses and requestState, as before the request was repeated with
// answers (2026-07-28, multi round-trip requests). params is a raw JSON object or nil. It returns params itself
// if nothing changes.
func StripMRTR(params []byte) []byte { return rawjson.Delete(params, "inputResponses", "requestState") }

// Lowered returns the request for a legacy server of that revision (protocol.md D1.1). It removes the request
// data of 2026-07-28 and members for the bridge. It does not copy the rest, so it is valid as long as m is.
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

// bridged reports whether a member of _meta is for the bridge.
func bridged(name string) bool {
	switch name {
	case KeyVersion, KeyCapabilities, KeyClientInfo, KeyLogLevel, KeyLane:
		return true
	}
	return false
}

// around returns the edit that removes a member of an object, with its name and one comma. The member's value is
// at value.
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

// SaysVersion reports whether the _meta has a protocol version.
func SaysVersion(meta []byte) bool {
	if !bytes.Contains(meta, []byte(versionName)) && bytes.IndexByte(meta, '\\') < 0 { // names may have escapes
		return false
	}
	return gjson.GetBytes(meta, VersionPath).Exists()
}

// VersionPath is the gjson path of the version in _meta.
var VersionPath = gjson.Escape(KeyVersion)

var versionName = KeyVersion[strings.IndexByte(KeyVersion, '/')+1:] // slashes often have escapes
