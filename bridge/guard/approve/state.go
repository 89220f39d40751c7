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
	Call    string `json:"c"` // call.digest
	Expires int64  `json:"e"` // in Unix seconds
	// Allowed means that a person has allowed the call, and the server has asked questions since.
	Allowed bool `json:"a,omitempty"`
	// Definition is the tool's definition when the person was asked: see call.asked.
	Definition []byte `json:"d,omitempty"`
	// Server is the server's requestState as raw JSON; empty for none.
	Server string `json:"s,omitempty"`
}

// digest identifies a call: by the server, the tool, the principal and the arguments that the server gets.
func (c *call) digest() string {
	h := sha256.New()
	for _, part := range []string{c.a.s.Name, c.r.Name(), c.r.From.Principal, string(rawjson.Compact(c.args))} {
		h.Write([]byte(rawjson.Quote(part)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// seal returns the requestState of a call.
func (c *call) seal(allowed bool, server string, life time.Duration) string {
	s := state{
		ID:      rand.Text(),
		Call:    c.digest(),
		Expires: time.Now().Add(life).Unix(),
		Allowed: allowed,
		Server:  server,
	}
	if c.remembers() {
		s.Definition = c.asked[:]
	}
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	return c.a.s.Seals.Seal(sealedState, raw)
}

// open returns the state that a call brings, or nil if it brings none that is valid for it.
func (c *call) open() *state {
	token := gjson.GetBytes(c.params, "requestState")
	if token.Type != gjson.String {
		return nil
	}
	raw, err := c.a.s.Seals.Open(sealedState, token.Str)
	if err != nil {
		return nil
	}
	var s state
	if json.Unmarshal(raw, &s) != nil || s.Call != c.digest() || time.Now().Unix() > s.Expires {
		return nil
	}
	return &s
}

// use reports whether the state was not used before.
func (a *Approvals) use(s *state) bool {
	used, _ := a.spent.ContainsOrAdd(s.ID, struct{}{})
	return !used
}

// restore returns params without what the bridge's state has added.
func (s *state) restore(params []byte) []byte {
	switch {
	case !s.Allowed: // the answers are to the bridge's question
		return era.StripMRTR(params)
	case s.Server == "":
		return rawjson.Delete(params, "requestState")
	default:
		return rawjson.Set(params, "requestState", []byte(s.Server))
	}
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
	token := c.seal(true, server, stateLife)
	return m.Replaced(rawjson.Set(result, "requestState", []byte(rawjson.Quote(token))))
}
