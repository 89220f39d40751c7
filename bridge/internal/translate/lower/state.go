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

// Round is what a request says that repeats another one with answers
// (2026-07-28, multi round-trip requests). It is not changed.
type Round struct {
	state    string // requestState; empty when there is none
	stated   bool
	answers  gjson.Result // inputResponses, an object; the zero Result when there are none
	orphaned bool         // the answers are to questions of the bridge's, whose state is missing
	stateRaw gjson.Result // requestState, with its place in the params
	ours     *state       // what requestState says if the bridge has made it; else nil
}

// Repeated reports whether the request goes on with what another one began.
func (a *Round) Repeated() bool { return a != nil && a.stated }

// Ours reports whether the bridge has made its requestState.
func (a *Round) Ours() bool { return a != nil && a.ours != nil }

// State returns the requestState of a request that is Repeated: a string, with its
// place in the params.
func (a *Round) State() gjson.Result { return a.stateRaw }

// Parked reports whether a call waits for the request.
func (a *Round) Parked() bool { return a != nil && a.ours != nil && a.ours.Kind == stateParked }

// Elsewhere returns at which other instance the call waits that a request goes on with;
// nothing when it is this one.
func (s *Server) Elsewhere(a *Round) string {
	if a.ours.Instance == s.o.Instance {
		return ""
	}
	return a.ours.Instance
}

// Unknown answers a request to a legacy server that goes on with what the bridge
// knows nothing of.
func (a *Round) Unknown() *jsonrpc.Message {
	switch {
	case a.Repeated() && a.ours == nil:
		return jsonrpc.InvalidParams("this requestState is not one of this instance of the bridge, or of its last start: all requests of an exchange must reach the same one")
	case a != nil && a.orphaned:
		return jsonrpc.InvalidParams("inputResponses came without the requestState that belongs to them: what they are about must not be done twice")
	}
	return nil
}

// Round reads what a request goes on with; nil when that is nothing. The message
// answers one whose answers are not as they have to be, or that goes on
// with something else than it should.
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
		return nil, jsonrpc.InvalidParams("inputResponses and requestState must not stand twice")
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
			if no := s.foreign(a.ours, r); no != nil {
				return nil, no
			}
		}
	}
	return &a, nil
}

// keyPrefix begins the keys under which the bridge puts questions; a number
// follows.
const keyPrefix = "r"

// ours reports whether one of the answers has a key as the bridge makes them.
func ours(answers gjson.Result) (found bool) {
	answers.ForEach(func(key, _ gjson.Result) bool {
		digits, ok := strings.CutPrefix(key.Str, keyPrefix)
		found = ok && digits != "" && strings.Trim(digits, "0123456789") == ""
		return !found
	})
	return found
}

// state is what a requestState of the bridge says. It is sealed: only
// the bridge can have written it.
type state struct {
	Kind     string   `json:"k"`
	Version  int      `json:"v"`
	Instance string   `json:"i"` // of the bridge
	Whose    string   `json:"p"` // hash of who the client is
	Server   string   `json:"s"`
	Method   string   `json:"m"`
	Digest   string   `json:"d"` // of what is called and with what
	Issued   int64    `json:"t"` // Unix seconds
	Expires  int64    `json:"e"`
	Call     string   `json:"c,omitempty"` // the parked call
	Round    int      `json:"n"`
	IDs      []string `json:"u,omitempty"` // of the elicitations, one for each key
}

// The kinds of requestState.
const (
	stateParked  = "parked" // a call waits for the answers
	stateURL     = "url"    // the call is to be made again when URLs have been visited
	stateVersion = 1
	sealedState  = "requestState" // as Keys know it
	maxState     = 4 << 10        // bytes of one that the bridge makes (protocol.md F)
)

// sealed returns the state as the client of a request gets it, with what is the
// same in all.
func (s *Server) sealed(r *bridge.Request, state state) string {
	state.Version, state.Instance, state.Server = stateVersion, s.o.Instance, s.o.Name
	state.Whose, state.Issued = seal.Fingerprint(s.o.Identity(r)), time.Now().Unix()
	raw, err := json.Marshal(state)
	if err != nil {
		panic(err) // texts and numbers always have a JSON form
	}
	return s.o.Seals.Seal(sealedState, raw)
}

// opened returns what a requestState says, or nil when it is none of ours.
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

// foreign answers a request whose requestState belongs to something else: an
// expired one, another client's, another request's.
func (s *Server) foreign(state *state, r *bridge.Request) *jsonrpc.Message {
	switch {
	case state.Whose != seal.Fingerprint(s.o.Identity(r)), state.Server != s.o.Name, state.Method != r.Method:
		return jsonrpc.InvalidParams("this requestState belongs to another request")
	case time.Now().Unix() > state.Expires:
		return jsonrpc.InvalidParams("this requestState has expired")
	case state.Digest != digest(r.Message):
		return jsonrpc.InvalidParams("this requestState belongs to a request with other params")
	}
	return nil
}

// digest is what a request and its repetitions have in common: the method, what
// is called, and with which arguments.
func digest(m *jsonrpc.Message) string {
	h := sha256.New()
	args := []byte(gjson.GetBytes(m.Params, "arguments").Raw)
	if len(args) > 0 && args[0] == '{' {
		args = era.CanonicalCapabilities(args) // one spelling for all that say the same
	}
	for _, part := range [][]byte{[]byte(m.Method), []byte(m.Name()), []byte(m.URI()), args} {
		h.Write([]byte{byte(len(part) >> 24), byte(len(part) >> 16), byte(len(part) >> 8), byte(len(part))})
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
