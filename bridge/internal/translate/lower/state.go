package lower

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Round is the part of a request that answers questions of an earlier request (2026-07-28, multi round-trip
// requests). It is immutable.
type Round struct {
	state    string // requestState; empty for none
	stated   bool
	answers  gjson.Result // inputResponses, an object; zero for none
	orphaned bool         // the answers have keys of the bridge, but no requestState
	stateRaw gjson.Result // requestState with its index in the params
	ours     *state       // content of a requestState of the bridge; else nil
}

// Repeated reports whether the request has a requestState.
func (r *Round) Repeated() bool { return r != nil && r.stated }

// Ours reports whether the bridge made the requestState.
func (r *Round) Ours() bool { return r != nil && r.ours != nil }

// State returns the requestState, a string, with its index in the params.
func (r *Round) State() gjson.Result { return r.stateRaw }

// Parked reports whether the request resumes a parked call.
func (r *Round) Parked() bool { return r != nil && r.ours != nil && r.ours.Kind == stateParked }

// Elsewhere returns the instance that holds the parked call, or "" if this instance holds it.
func (s *Server) Elsewhere(r *Round) string {
	if r.ours.Instance == s.o.Instance {
		return ""
	}
	return r.ours.Instance
}

// Unknown returns the error of a request to a legacy server whose requestState the bridge did not make, or whose
// answers came without their requestState. Unknown returns nil for other requests.
func (r *Round) Unknown() *jsonrpc.Message {
	switch {
	case r.Repeated() && r.ours == nil:
		return jsonrpc.InvalidParams("this requestState is not from this instance of the bridge since its last start: all requests of an exchange must reach the same instance")
	case r != nil && r.orphaned:
		return jsonrpc.InvalidParams("inputResponses came without their requestState, so the call was not repeated: send both")
	}
	return nil
}

// Round reads the answers of a request; nil means that it has none. The message is the error of a malformed request
// or of a requestState that has expired or belongs to another request.
func (s *Server) Round(r *bridge.Request) (*Round, *jsonrpc.Message) {
	if !era.MayAsk(r.Method) || !rawjson.Mentions(r.Params, "requestState", "inputResponses") {
		return nil, nil
	}
	var a Round
	twice := false
	answered := false
	gjson.ParseBytes(r.Params).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "requestState":
			twice = twice || a.stated
			a.stated, a.state, a.stateRaw = true, value.Str, value
		case "inputResponses":
			twice = twice || answered
			answered, a.answers = true, value
		}
		return true
	})
	switch {
	case twice:
		return nil, jsonrpc.InvalidParams("inputResponses and requestState must not appear twice")
	case a.stated && a.stateRaw.Type != gjson.String:
		return nil, jsonrpc.InvalidParams("requestState must be a string")
	case len(a.state) > seal.MaxToken:
		return nil, jsonrpc.InvalidParams(bridge.OverLimit("requestState is too long", seal.MaxToken))
	case answered && !a.answers.IsObject():
		return nil, jsonrpc.InvalidParams("inputResponses must be an object")
	case !a.stated && !answered:
		return nil, nil
	}
	a.orphaned = !a.stated && ours(a.answers)
	if a.stated {
		if a.ours = s.opened(a.state); a.ours != nil {
			if no := s.mismatch(a.ours, r); no != nil {
				return nil, no
			}
		}
	}
	return &a, nil
}

// keyPrefix starts the keys of the bridge's questions. A number follows.
const keyPrefix = "r"

// ours reports whether an answer has a key of the bridge.
func ours(answers gjson.Result) (found bool) {
	answers.ForEach(func(key, _ gjson.Result) bool {
		digits, ok := strings.CutPrefix(key.Str, keyPrefix)
		found = ok && digits != "" && strings.Trim(digits, "0123456789") == ""
		return !found
	})
	return found
}

// state is the content of a requestState of the bridge. It is sealed, so only the bridge can have written it.
type state struct {
	Kind     string   `json:"k"`
	Version  int      `json:"v"`
	Instance string   `json:"i"` // the id of the instance that holds the call
	Whose    string   `json:"p"` // hash of the client's identity
	Server   string   `json:"s"`
	Method   string   `json:"m"`
	Digest   string   `json:"d"` // of the method, target and arguments
	Issued   int64    `json:"t"` // Unix seconds
	Expires  int64    `json:"e"`
	Call     string   `json:"c,omitempty"` // the parked call
	Round    int      `json:"n"`
	IDs      []string `json:"u,omitempty"` // of the elicitations, one for each key
}

// These are the kinds of requestState.
const (
	stateParked  = "parked" // a call waits for the answers
	stateURL     = "url"    // the request is repeated after URLs were visited
	stateVersion = 1
	sealedState  = "requestState" // the purpose of the seal
	maxState     = 4 << 10        // bytes of a requestState (protocol.md F)
)

// sealed returns the sealed state for the client of r. sealed sets the common fields.
func (s *Server) sealed(r *bridge.Request, state state) string {
	state.Version, state.Instance, state.Server = stateVersion, s.o.Instance, s.o.Name
	state.Whose, state.Issued = seal.Fingerprint(string(bridge.IdentityKey(r.From, s.o.Forward))), time.Now().Unix()
	raw, err := json.Marshal(state)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return s.o.Seals.Seal(sealedState, raw)
}

// opened returns the content of a requestState, or nil if the bridge did not make it.
func (s *Server) opened(token string) *state {
	raw, err := s.o.Seals.Open(sealedState, token)
	if err != nil {
		return nil
	}
	var state state
	if json.Unmarshal(raw, &state) != nil || state.Version != stateVersion {
		return nil
	}
	return &state
}

// mismatch returns the error of a requestState that has expired, or belongs to another client or request
//
func (s *Server) mismatch(state *state, r *bridge.Request) *jsonrpc.Message {
	switch {
	case state.Whose != seal.Fingerprint(string(bridge.IdentityKey(r.From, s.o.Forward))), state.Server != s.o.Name, state.Method != r.Method:
		return jsonrpc.InvalidParams("this requestState belongs to another request")
	case time.Now().Unix() > state.Expires:
		return jsonrpc.InvalidParams("this requestState has expired")
	case state.Digest != digest(r.Message):
		return jsonrpc.InvalidParams("this requestState belongs to a request with other params")
	}
	return nil
}

// digest identifies a request and its repetitions by method, target and arguments.
func digest(m *jsonrpc.Message) string {
	h := sha256.New()
	args := []byte(gjson.GetBytes(m.Params, "arguments").Raw)
	if len(args) > 0 && args[0] == '{' {
		args = era.CanonicalCapabilities(args) // one spelling for equal arguments
	}
	for _, part := range [][]byte{[]byte(m.Method), []byte(m.Name()), []byte(m.URI()), args} {
		h.Write([]byte{byte(len(part) >> 24), byte(len(part) >> 16), byte(len(part) >> 8), byte(len(part))})
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
