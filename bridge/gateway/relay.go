package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
)

// relay makes the call of a client without a session to a server of its own
// era: it goes as it is, but for the handles that only the client may use that
// was given them (protocol.md D4). named says that the request has chosen its
// connection.
func (l *lower) relay(ctx context.Context, r *bridge.Request, named bool, again *nextRound, state *requestState) (*jsonrpc.Message, error) {
	inner := *r
	if named {
		place := cap(r.Params) - cap(r.Meta())
		edits, _ := jsonrpc.Omit(r.Meta(), place, func(name string) bool { return name == keyLane })
		inner.Message = r.Edited(edits...)
	}
	if state != nil { // it is the bridge's own, of when the server was a legacy one
		return staleState("the call that this requestState belongs to is gone: the server has become another"), nil
	}
	up := l.checked
	h := handles{p: l.p, from: r.From}
	no := h.unwrap(&inner, again)
	if no != nil {
		return no, nil
	}
	if r.Method == era.Listen {
		return l.relayListen(ctx, up, &inner, &h)
	}
	if r.Back != nil {
		v := newVisit(r)
		v.l, v.relayed = l, true
		inner.Back = v
	}
	a, err := up.Call(ctx, &inner)
	switch {
	case err != nil:
		return a, err
	case a.Error != nil && r.Method == "server/discover":
		return l.remembered(a), nil
	case a.Error != nil:
		return regraded(r, a, era.LatestModern), nil
	case r.Method == "server/discover":
		return rediscovered(a), nil
	case a.Found().Type.End == 0:
		a.Edit(first(a.Result, complete))
	default:
		return h.wrap(r, a), nil
	}
	return a, nil
}

// first is the edit that puts members before the others of an object.
func first(object []byte, members string) jsonrpc.Edit {
	at := slices.Index(object, '{') + 1
	if rest := object[at:]; rest[rawjson.Space(rest, 0)] != '}' {
		members += ","
	}
	return jsonrpc.Edit{From: at, To: at, Text: []byte(members)}
}

// remembered returns in place of an error what the server said when it was found
// to be a modern one: to a client, an error would say that it is none, although
// it passes, or is that of a server without server/discover.
func (l *lower) remembered(a *jsonrpc.Message) *jsonrpc.Message {
	s := l.lane.Server()
	if !s.Modern() { // it has just become another one
		return a
	}
	a.Release()
	return rediscovered(jsonrpc.NewResult(nil, rawjson.SetFirst(s.Result, "ttlMs", []byte("0"))))
}

// regraded returns an error as a client without a session understands it, whose
// request a server of that revision has answered with it (protocol.md D7,
//
func regraded(r *bridge.Request, a *jsonrpc.Message, revision string) *jsonrpc.Message {
	e := era.Error(r.Method, r.URI(), a.Error, revision, era.LatestModern)
	if &e[0] != &a.Error[0] {
		a.Error = slices.Clone(e)
	}
	return a
}

// rediscovered returns the answer to server/discover with the revisions that
// the bridge serves in place of the server's own (protocol.md D4, C4).
func rediscovered(a *jsonrpc.Message) *jsonrpc.Message {
	versions := `["` + strings.Join(era.Supported(), `","`) + `"]`
	result := rawjson.SetFirst(a.Whole(), "supportedVersions", []byte(versions))
	for _, must := range [][2]string{{"resultType", `"complete"`}, {"capabilities", "{}"}, {"ttlMs", "0"}, {"cacheScope", `"private"`}} {
		if !gjson.GetBytes(result, must[0]).Exists() {
			result = rawjson.SetFirst(result, must[0], []byte(must[1]))
		}
	}
	b := a.WithResult(result)
	b.ID = slices.Clone(a.ID)
	a.Release()
	return b
}
