package era

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// The keys of _meta that revision 2026-07-28 reserves: the first four are
// those of a request.
const (
	KeyVersion      = "io.modelcontextprotocol/protocolVersion"
	KeyCapabilities = "io.modelcontextprotocol/clientCapabilities"
	KeyClientInfo   = "io.modelcontextprotocol/clientInfo"
	KeyLogLevel     = "io.modelcontextprotocol/logLevel"
	KeyServerInfo   = "io.modelcontextprotocol/serverInfo"     // of a result
	KeySubscription = "io.modelcontextprotocol/subscriptionId" // of a notification or the result of a listen
)

// requestKeys are the reserved ones of a request.
var requestKeys = []string{KeyVersion, KeyCapabilities, KeyClientInfo, KeyLogLevel}

// KeyLane is the member of _meta by which a stateless client asks the bridge for
// connections of its own: of two values, each has others (protocol.md D1.2). The
// server does not see it.
const KeyLane = "dev.mcp-bridge/lane"

// Reserved is how the keys of _meta begin that are the protocol's own.
const Reserved = "io.modelcontextprotocol/"

// TasksExtension is how 2026-07-28 declares tasks, and tasks are not the same as
// those of 2025-11-25: neither crosses eras.
const TasksExtension = Reserved + "tasks"

// logLevels are those of notifications/message, the least severe first (RFC
// 5424).
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity orders log levels; an unknown one is below all others.
func Severity(level string) int { return slices.Index(logLevels, level) }

// Level reads the level from params of logging/setLevel. The second value says
// what is wrong with it, for the message of -32602, or nothing.
func Level(params []byte) (level, fault string) {
	if level, _ = rawjson.Text(rawjson.Get(params, "level")); Severity(level) < 0 {
		return "", "level must be one of " + strings.Join(logLevels, ", ")
	}
	return level, ""
}

// LogLevel returns from which level on a client wants log messages about a request
// of that _meta; empty means none.
func LogLevel(meta []byte) string {
	if !rawjson.Mentions(meta, "logLevel") {
		return ""
	}
	return gjson.GetBytes(meta, gjson.Escape(KeyLogLevel)).Str
}

// Wanted reports whether a notification is for who wants log messages from level
// on: it is no log message, or a severe one.
func Wanted(n *jsonrpc.Message, level string) bool {
	if n.Method != "notifications/message" {
		return true
	}
	return level != "" && Severity(gjson.GetBytes(n.Params, "level").Str) >= Severity(level)
}

// Meta is what a request of the modern era says about its client (2026-07-28,
// per-request _meta). Capabilities and ClientInfo are raw JSON objects; nil or
// empty means absent.
type Meta struct {
	Version                  string
	Capabilities, ClientInfo []byte
	LogLevel                 string
}

// ReadMeta reads params._meta, raw JSON or nil. The second value says what is
// wrong with it, for the message of -32602, or nothing; what
// could be read is returned in that case too, since a version that is not
// served has an answer of its own. A key that stands twice is wrong: two
// readers would see two clients. Meta refers to the bytes given.
func ReadMeta(meta []byte) (Meta, string) {
	if meta == nil {
		return Meta{}, "params._meta is missing"
	}
	var raw [4][]byte // by the order of requestKeys
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
		m.Version = "" // nobody knows which
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
		return wrong(twice, "stands twice")
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

// Members returns m as members of _meta without the braces, on one line. What
// is absent is left out.
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

// Inject returns the params, a raw JSON object or nil, with the members, as
// Members writes them, in _meta. Reserved keys of a request that the client
// put there are gone first: they would speak for the bridge. A _meta
// that is not an object is replaced, and of several the first one stays. All
// other bytes are what they were. params itself is not changed.
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

// Strip returns the params, a raw JSON object or nil, without the reserved
// keys of a request, and without a _meta that has nothing else. Of several
// _meta the first one stays. It returns params itself if there is nothing to
// do.
func Strip(params []byte) []byte {
	return editMeta(params, func(meta []byte) []byte {
		return orNothing(meta, rawjson.Delete(meta, requestKeys...))
	})
}

// editMeta returns params with the first _meta as f returns it and without
// further ones: no two readers may take different ones.
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

// StripMRTR returns the params, a raw JSON object or nil, without
// inputResponses and requestState: what a request was before it was sent again
// with answers (2026-07-28, multi round-trip requests). It returns params
// itself if there is nothing to do.
func StripMRTR(params []byte) []byte { return rawjson.Delete(params, "inputResponses", "requestState") }

// Lowered returns the request as a legacy server of that revision understands it:
// without what 2026-07-28 says with each request, and without what is the
// bridge's business (protocol.md D1.1). What stays is not copied. The message
// is valid for as long as m is.
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

// around is the edit that removes a member of an object whose value stands
// there, with its name and one comma.
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

// SaysVersion reports whether the _meta of a message has a version of the protocol.
func SaysVersion(meta []byte) bool {
	if !bytes.Contains(meta, []byte(versionName)) && bytes.IndexByte(meta, '\\') < 0 { // names may be written with escapes
		return false
	}
	return gjson.GetBytes(meta, VersionPath).Exists()
}

// VersionPath is where _meta has the version, as a path of gjson.
var VersionPath = gjson.Escape(KeyVersion)

var versionName = KeyVersion[strings.IndexByte(KeyVersion, '/')+1:] // the slash is often escaped
