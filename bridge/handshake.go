package bridge

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
)

// Handshake does the legacy handshake on a fresh connection on behalf of from:
// initialize, and after its answer notifications/initialized. The
// server is offered the revision most at most; empty means no limit. The error
// wraps ErrRefused when the server may be a modern one.
func Handshake(ctx context.Context, c *Conn, from *Caller, most string) (*Server, error) {
	a, err := c.Call(ctx, &Request{Message: request("initialize", capped(from.Params, most)), From: from, opens: true})
	if err != nil {
		return nil, err
	}
	defer a.Release()
	if a.Error != nil {
		return nil, &Error{Server: c.server, Kind: ErrUnavailable, Err: ErrRefused, Public: "it refused to initialize: " + gjson.GetBytes(a.Error, "message").String()}
	}
	result := rawjson.OneLine(a.Whole())
	s := &Server{
		Revision:     gjson.GetBytes(result, "protocolVersion").String(),
		Capabilities: []byte(gjson.GetBytes(result, "capabilities").Raw),
		Result:       result,
	}
	if !era.IsLegacy(s.Revision) {
		return nil, &Error{Server: c.server, Kind: ErrUnavailable, Err: ErrRefused, Public: fmt.Sprintf("it answered initialize with revision %.20q, which has no sessions or is unknown", s.Revision)}
	}
	if len(s.Capabilities) == 0 || s.Capabilities[0] != '{' {
		s.Capabilities = []byte("{}")
	}
	return s, c.Notify(ctx, &Request{Message: jsonrpc.NewNotification("notifications/initialized", nil), From: from})
}

// request makes a request of the bridge's own from params that a client once
// sent. It is a parsed message: a progress token in it is found, and replaced
// like any other.
func request(method string, params []byte) *jsonrpc.Message {
	m := &jsonrpc.Message{ID: []byte("0"), Method: method, Params: params}
	return m.Clone()
}

// listChanged are the notifications that tell a client that a list is to be
// fetched again, by the capability that announces them, and the member by which
// a subscription asks for them (2026-07-28).
var listChanged = []struct{ capability, method, member string }{
	{"tools", "notifications/tools/list_changed", "toolsListChanged"},
	{"prompts", "notifications/prompts/list_changed", "promptsListChanged"},
	{"resources", "notifications/resources/list_changed", "resourcesListChanged"},
}

// changes returns the list_changed notifications that s has announced.
func (s *Server) changes() []*jsonrpc.Message {
	var all []*jsonrpc.Message
	for _, c := range listChanged {
		if gjson.GetBytes(s.Capabilities, c.capability+".listChanged").Bool() {
			all = append(all, jsonrpc.NewNotification(c.method, nil))
		}
	}
	return all
}

// keeps reports whether next can stand in for s in a live session: the same
// revision, and no capability less.
func (s *Server) keeps(next *Server) bool {
	return s.Revision == next.Revision && covers(gjson.ParseBytes(next.Capabilities), gjson.ParseBytes(s.Capabilities))
}

// covers reports whether a capability promises all that had promised: the
// members of an object, and what was true.
func covers(now, had gjson.Result) bool {
	switch {
	case !now.Exists():
		return false
	case had.Type == gjson.True:
		return now.Type == gjson.True
	case had.IsObject():
		members := now.Map()
		for name, member := range had.Map() {
			if member.Type != gjson.False && !covers(members[name], member) {
				return false
			}
		}
	}
	return true
}
