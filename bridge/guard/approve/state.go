package approve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// sealedState is the purpose of the requestState of a call to a modern server.
const sealedState = "approval"

// stateLife bounds a call of a modern server after its approval: the server may ask questions of its own.
const stateLife = time.Hour

// maxState bounds the server's requestState within the bridge's, in bytes.
const maxState = 64 << 10

// state is the sealed content of a requestState. It belongs to one call, and counts once.
type state struct {
	ID      string `json:"i"`
	Call    string `json:"c"` // callDigest
	Expires int64  `json:"e"` // in Unix seconds
	// Allowed means that a person has allowed the call, and the server has asked questions since.
	Allowed bool `json:"a,omitempty"`
	// Server is the server's requestState as raw JSON; empty for none.
	Server string `json:"s,omitempty"`
}

// callDigest identifies a call: by the server, the tool, the principal and the arguments that the server gets.
func (a *Approvals) callDigest(r *bridge.Request) string {
	args, _ := arguments.Of(r.Params)
	h := sha256.New()
	for _, part := range []string{a.s.Name, r.Name(), r.From.Principal, string(rawjson.Compact(args))} {
		h.Write([]byte(rawjson.Quote(part)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// seal returns the requestState of a call.
func (a *Approvals) seal(r *bridge.Request, allowed bool, server string, life time.Duration) string {
	raw, err := json.Marshal(state{
		ID:      rand.Text(),
		Call:    a.callDigest(r),
		Expires: time.Now().Add(life).Unix(),
		Allowed: allowed,
		Server:  server,
	})
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return a.s.Seals.Seal(sealedState, raw)
}

// open returns the state that a call brings, or nil if it brings none that is valid for it.
func (a *Approvals) open(r *bridge.Request) *state {
	token := gjson.GetBytes(r.Params, "requestState")
	if token.Type != gjson.String {
		return nil
	}
	raw, err := a.s.Seals.Open(sealedState, token.Str)
	if err != nil {
		return nil
	}
	var s state
	if json.Unmarshal(raw, &s) != nil || s.Call != a.callDigest(r) || time.Now().Unix() > s.Expires {
		return nil
	}
	return &s
}

// use reports whether the state was not used before.
func (a *Approvals) use(s *state) bool {
	used, _ := a.spent.ContainsOrAdd(s.ID, struct{}{})
	return !used
}

// restore returns the call without what the bridge's state has added.
func (s *state) restore(m *jsonrpc.Message) *jsonrpc.Message {
	params := m.Whole()
	switch {
	case !s.Allowed: // the answers are to the bridge's question
		params = era.StripMRTR(params)
	case s.Server == "":
		params = rawjson.Delete(params, "requestState")
	default:
		params = rawjson.Set(params, "requestState", []byte(s.Server))
	}
	return m.WithParams(params)
}

// continued returns the server's questions about a call that a person has allowed. The call comes again with the state
// that says so.
func (c *call) continued(m *jsonrpc.Message) *jsonrpc.Message {
	result := m.Whole()
	server := gjson.GetBytes(result, "requestState").Raw
	if len(server) > maxState {
		m.Release()
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("the server's requestState is too long", maxState), []byte(`{"bridge":"upstream_invalid"}`))
	}
	token := c.a.seal(c.r, true, server, stateLife)
	return m.Replaced(rawjson.Set(result, "requestState", []byte(rawjson.Quote(token))))
}
