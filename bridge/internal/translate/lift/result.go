package lift

import (
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// lowered returns a modern server's answer for the client.
func (c *call) lowered(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Error == nil {
		if kind := era.ResultType(m); kind != era.ResultComplete {
			m.Release()
			return c.broken("its answer has an unknown resultType: " + rawjson.Quote(kind[:min(len(kind), 40)]))
		}
	}
	m = c.l.downgraded(m, c.r.Method, c.uri, era.LatestModern, c.l.from.Revision)
	if m.Error != nil {
		return m
	}
	return bare(m)
}

// broken returns the error of a call whose server violates the protocol.
func (c *call) broken(what string) *jsonrpc.Message {
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "server "+c.l.o.Server+": "+what, []byte(`{"bridge":"upstream_invalid"}`))
}

// bare removes the members that only modern results have around their payload (protocol.md D2.1). bare does not copy
// the payload.
func bare(m *jsonrpc.Message) *jsonrpc.Message {
	f := m.Found()
	if f.Twice {
		b := m.WithResult(bareMeta(rawjson.Delete(bytes.Clone(m.Result), "resultType", "ttlMs", "cacheScope")))
		b.ID = bytes.Clone(m.ID)
		m.Release()
		return b
	}
	gone := make([]jsonrpc.Span, 0, 4)
	for _, s := range []jsonrpc.Span{f.Type, f.TTL, f.Scope} {
		if s.End > 0 {
			gone = append(gone, s)
		}
	}
	var edits []jsonrpc.Edit
	if meta := f.Meta.Of(m.Result); meta != nil && meta[0] == '{' && (bytes.Contains(meta, []byte(era.Reserved)) || bytes.IndexByte(meta, '\\') >= 0) {
		if left := withoutModern(meta); rawjson.IsEmpty(left) {
			gone = append(gone, f.Meta)
		} else {
			edits = append(edits, jsonrpc.Edit{
				From: f.Meta.Value,
				To:   f.Meta.End,
				Text: left,
			})
		}
	}
	if edits = era.Cut(edits, m.Result, gone); len(edits) > 0 {
		m.Edit(edits...)
	}
	return m
}

// withoutModern returns a result's _meta without the members of modern servers.
func withoutModern(meta []byte) []byte {
	return rawjson.Delete(meta, era.KeyServerInfo, era.KeySubscription)
}

// bareMeta removes the members of modern servers from a result's _meta. bareMeta is the slow path, for results with
// duplicate members.
func bareMeta(result []byte) []byte {
	meta := gjson.GetBytes(result, "_meta")
	if !meta.IsObject() {
		return result
	}
	left := withoutModern([]byte(meta.Raw))
	result = rawjson.Delete(result, "_meta")
	if rawjson.IsEmpty(left) {
		return result
	}
	return rawjson.SetFirst(result, "_meta", left)
}
