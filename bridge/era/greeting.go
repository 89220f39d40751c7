package era

import (
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// DiscoverResult turns a legacy server's result of initialize into a result of server/discover (protocol.md D1.3).
// supported are the bridge's revisions. Without subscribe, the result announces no notifications of changes.
func DiscoverResult(initialize []byte, supported []string, subscribe bool) []byte {
	versions := make([][]byte, len(supported))
	for i, v := range supported {
		versions[i] = []byte(rawjson.Quote(v))
	}
	capabilities := WithoutTasks(rawjson.Get(initialize, "capabilities"))
	if !subscribe {
		capabilities = rawjson.Edit(capabilities, func(name, value []byte) []byte {
			switch string(name) {
			case "tools", "prompts", "resources":
				return rawjson.Delete(value, "listChanged", "subscribe")
			}
			return value
		})
	}
	meta := rawjson.Get(initialize, "_meta")
	if !rawjson.IsObject(meta) {
		meta = []byte("{}")
	}
	meta = rawjson.Delete(meta, KeyServerInfo)
	if info := rawjson.Get(initialize, "serverInfo"); rawjson.IsObject(info) {
		meta = rawjson.Set(meta, KeyServerInfo, info)
	}
	out := append([]byte(`{"resultType":"complete","supportedVersions":`), list(versions...)...)
	out = append(append(out, `,"capabilities":`...), capabilities...)
	out = others(out, initialize)
	out = append(out, `,"ttlMs":0,"cacheScope":"private"`...)
	if !rawjson.IsEmpty(meta) {
		out = append(append(out, `,"_meta":`...), meta...)
	}
	return append(out, '}')
}

// InitializeResult turns a modern server's result of server/discover into a result of initialize for a legacy client
// (protocol.md D2.2). name is the name in serverInfo if the server gives none.
func InitializeResult(discover []byte, revision, name string) []byte {
	meta := rawjson.Get(discover, "_meta")
	info := rawjson.Get(meta, KeyServerInfo)
	if !rawjson.IsObject(info) {
		info = rawjson.Get(discover, "serverInfo") // drafts of the revision had serverInfo here
	}
	out := append([]byte(`{"protocolVersion":`), rawjson.Quote(revision)...)
	out = append(append(out, `,"capabilities":`...), WithoutTasks(rawjson.Get(discover, "capabilities"))...)
	out = append(append(out, `,"serverInfo":`...), implementation(named(info, name), revision)...)
	out = others(out, discover)
	if rawjson.IsObject(meta) {
		if meta = rawjson.Delete(meta, KeyServerInfo); !rawjson.IsEmpty(meta) {
			out = append(append(out, `,"_meta":`...), meta...)
		}
	}
	return append(out, '}')
}

// Greeted returns a legacy server's result of initialize with the members that clients require. Missing members
// get asked, the revision of the request, and name. A result with none of the members stays as it is. The revision
// 2024-10-07 becomes 2024-11-05.
func Greeted(initialize []byte, asked, name string) []byte {
	info, capabilities := rawjson.Get(initialize, "serverInfo"), rawjson.Get(initialize, "capabilities")
	out := initialize
	revision, ok := rawjson.Text(rawjson.Get(out, "protocolVersion"))
	if revision == firstDraft {
		out = rawjson.Set(out, "protocolVersion", []byte(rawjson.Quote(Rev20241105)))
	}
	if !ok {
		if !rawjson.IsObject(info) && !rawjson.IsObject(capabilities) {
			return initialize
		}
		out = rawjson.Set(out, "protocolVersion", []byte(rawjson.Quote(asked)))
	}
	if !rawjson.IsObject(capabilities) {
		out = rawjson.Set(out, "capabilities", []byte("{}"))
	}
	if whole := named(info, name); !rawjson.Same(whole, info) {
		out = rawjson.Set(out, "serverInfo", whole)
	}
	return out
}

// named returns info with a name and a version. If info has both, it returns info itself.
func named(info []byte, name string) []byte {
	if !rawjson.IsObject(info) {
		info = []byte("{}")
	}
	for _, must := range []struct{ name, value string }{{"name", name}, {"version", "unknown"}} {
		if _, ok := rawjson.Text(rawjson.Get(info, must.name)); !ok {
			info = rawjson.Set(info, must.name, []byte(rawjson.Quote(must.value)))
		}
	}
	return info
}

// The kinds of results that a modern server may send to a client without extensions (2026-07-28, Results).
const (
	ResultComplete = "complete"
	ResultInput    = "input_required" // the call continues when the client has answered questions
)

// ResultType returns the kind of a modern server's result. A result without resultType is complete.
func ResultType(m *jsonrpc.Message) string {
	raw := m.Found().Type.Of(m.Result)
	switch string(raw) {
	case "", `"complete"`:
		return ResultComplete
	case `"input_required"`:
		return ResultInput
	}
	if kind, ok := rawjson.Text(raw); ok {
		return kind
	}
	return string(raw)
}

// others appends the members of result that the results of both eras share, apart from those that the caller builds.
func others(out, result []byte) []byte {
	rawjson.Each(result, func(name, value []byte) {
		switch string(name) {
		case "protocolVersion", "serverInfo", "capabilities", "_meta",
			"resultType", "supportedVersions", "ttlMs", "cacheScope":
			return
		case "instructions":
			if _, ok := rawjson.Text(value); !ok {
				return
			}
		}
		out = append(append(append(append(out, ','), rawjson.Quote(string(name))...), ':'), value...)
	})
	return out
}
