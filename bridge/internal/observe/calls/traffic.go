package calls

import (
	"encoding/json"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What is shown of a message at most.
const (
	maxTrafficText   = 200      // bytes of a name
	maxID            = 64       // bytes of an id
	maxPayload       = 4 << 10  // bytes of a payload
	maxTrafficLooked = 64 << 10 // bytes that a payload may have to be shown at all
	maxAsked         = 256      // requests of one connection whose answers are told with their method
)

// The ends between which a message passes.
const (
	Client = "client" // between a client and the bridge
	Server = "server" // between the bridge and a server
)

// Message says what has passed. It is not changed once it is given out.
type Message struct {
	At   time.Time `json:"at"`
	Side string    `json:"side"` // Client or Server
	// To says where it goes: server, also on the side of the client, or client.
	To        string `json:"to"`
	Server    string `json:"server,omitempty"`
	Principal string `json:"principal,omitempty"`
	Session   string `json:"session,omitempty"` // as in logs; empty on the side of the server
	Kind      string `json:"kind"`              // request, notification, result or error
	// Method is also that of what an answer is to, if it is known.
	Method string   `json:"method,omitempty"`
	Name   string   `json:"name,omitempty"` // of the tool or prompt, the URI of the resource, or how far something is
	ID     string   `json:"id,omitempty"`   // as it is on the wire
	Bytes  int      `json:"bytes"`
	Took   *float64 `json:"took_ms,omitempty"` // of an answer, since its request passed
	Code   int64    `json:"code,omitempty"`    // of an error
	// Payload is JSON without what may be a secret; Cut says that it is not whole.
	Payload string `json:"payload,omitempty"`
	Cut     bool   `json:"cut,omitempty"`
}

// TrafficWatcher is told what passes. It must not block.
type TrafficWatcher interface {
	// Wants reports whether it wants messages of that server and session, and whether with
	// what they carry.
	Wants(server, session string) (it, payload bool)
	Passed(m *Message)
}

// Traffic is that of a bridge. Its methods may be called concurrently. A nil Traffic is
// that of one at which nobody ever looks.
type Traffic struct {
	// Mask returns JSON of about so many bytes without what may be a secret, and whether it
	// is whole. nil shows no payloads. It is set before the first message.
	Mask func(raw []byte, most int) (shown []byte, whole bool)

	watchers atomic.Pointer[[]TrafficWatcher] // nil while nobody looks
	mu       sync.Mutex                       // held while watchers is exchanged
}

// On reports whether somebody looks.
func (t *Traffic) On() bool { return t != nil && t.watchers.Load() != nil }

// Look has w told of what passes, until done is called.
func (t *Traffic) Look(w TrafficWatcher) (done func()) {
	t.change(func(all []TrafficWatcher) []TrafficWatcher { return append(all, w) })
	return sync.OnceFunc(func() {
		t.change(func(all []TrafficWatcher) []TrafficWatcher {
			for i, one := range all {
				if one == w {
					return append(all[:i], all[i+1:]...)
				}
			}
			return all
		})
	})
}

func (t *Traffic) change(f func([]TrafficWatcher) []TrafficWatcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []TrafficWatcher
	if now := t.watchers.Load(); now != nil {
		all = append(all, *now...)
	}
	if all = f(all); len(all) == 0 {
		t.watchers.Store(nil)
		return
	}
	t.watchers.Store(&all)
}

// Where says between whom a message passes.
type Where struct {
	Side, Server, Principal, Session string
}

// about is what an answer is an answer to.
type about struct {
	method string
	named
	at time.Time
}

// named is what a message is about. The URI of a resource is a part of what the message
// carries: it can have a path, an id or a token in it.
type named struct {
	name string // for all
	uri  string // for those who get what messages carry; empty unless it is about a resource
}

// Pass tells of a message. id stands in the place of the message's own. of is what an answer
// is to, if that is known.
func (t *Traffic) Pass(w Where, toServer bool, id []byte, m *jsonrpc.Message, of *about) {
	all := t.watchers.Load()
	if all == nil {
		return
	}
	var short, long *Message
	for _, one := range *all {
		it, payload := one.Wants(w.Server, w.Session)
		switch {
		case !it:
		case payload && t.Mask != nil:
			if long == nil {
				long = describe(w, toServer, id, m, of, t.uri)
				long.Payload, long.Cut = t.payload(m)
			}
			one.Passed(long)
		default:
			if short == nil {
				short = describe(w, toServer, id, m, of, nil)
			}
			one.Passed(short)
		}
	}
}

// describe says what a message is. uri says what is shown of the URI of a resource; nil
// shows no more than where it is.
func describe(w Where, toServer bool, id []byte, m *jsonrpc.Message, of *about, uri func(string) string) *Message {
	out := &Message{
		At: time.Now(), Side: w.Side, To: "client", Server: w.Server, Principal: w.Principal, Session: w.Session,
		Method: clipTo(m.Method, maxTrafficText), ID: clipTo(string(id[:min(len(id), maxID)]), maxID), Bytes: m.Len(),
	}
	if toServer {
		out.To = "server"
	}
	switch {
	case m.Error != nil:
		out.Kind, out.Code = "error", gjson.GetBytes(m.Error, "code").Int()
	case m.IsResponse():
		out.Kind = "result"
	case len(id) > 0:
		out.Kind = "request"
	default:
		out.Kind = "notification"
	}
	switch {
	case m.IsResponse() && of != nil:
		out.Method, out.Name = of.method, of.shown(uri)
		took := float64(out.At.Sub(of.at).Microseconds()) / 1000
		out.Took = &took
	case m.IsResponse():
	case m.Method == "notifications/progress":
		p := gjson.GetManyBytes(m.Params, "progress", "total")
		if out.Name = clipTo(p[0].Raw, maxID); p[1].Exists() {
			out.Name += "/" + clipTo(p[1].Raw, maxID)
		}
	default:
		out.Name = nameOf(m).shown(uri)
	}
	return out
}

// nameOf returns what a message is about.
func nameOf(m *jsonrpc.Message) named {
	if name := m.Name(); name != "" {
		return named{name: clipTo(name, maxTrafficText)}
	}
	text := m.URI()
	if text == "" {
		return named{}
	}
	out := named{uri: clipTo(text, maxTrafficText)}
	if u, err := url.Parse(text); err == nil && u.Scheme != "" {
		out.name = u.Scheme + ":"
		if u.Opaque == "" {
			out.name += "//" + u.Host
		}
		out.name = clipTo(out.name, maxTrafficText)
	}
	return out
}

func (n named) shown(uri func(string) string) string {
	if n.uri == "" || uri == nil {
		return n.name
	}
	return uri(n.uri)
}

// uri returns a URI without what may be a secret.
func (t *Traffic) uri(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	raw, _ = t.Mask(raw, 2*maxTrafficText)
	return clipTo(gjson.ParseBytes(raw).String(), maxTrafficText)
}

// payload returns what a message carries, without what may be a secret. What is very large
// is not looked into.
func (t *Traffic) payload(m *jsonrpc.Message) (text string, cut bool) {
	if m.Len() > maxTrafficLooked {
		return "", true
	}
	raw := m.Error
	if raw == nil {
		raw = m.Whole()
	}
	if len(raw) == 0 {
		return "", false
	}
	shown, whole := t.Mask(raw, maxPayload)
	return string(shown), !whole
}

// clipTo returns the beginning of a text, as a copy: the message is somebody else's.
func clipTo(s string, most int) string { return string([]byte(s[:min(len(s), most)])) }

// Exchange is a client's request to a server, which has passed.
type Exchange struct {
	t  *Traffic
	w  Where
	of about
	id []byte
}

// Asked tells of a client's request. It returns nil if nobody looks.
func (t *Traffic) Asked(server, session, principal string, m *jsonrpc.Message) *Exchange {
	if !t.On() {
		return nil
	}
	e := &Exchange{t, Where{Client, server, principal, session}, about{clipTo(m.Method, maxTrafficText), nameOf(m), time.Now()}, append([]byte(nil), m.ID...)}
	t.Pass(e.w, true, e.id, m, nil)
	return e
}

// Answered tells of the answer.
func (e *Exchange) Answered(m *jsonrpc.Message) {
	if e != nil && m != nil {
		e.t.Pass(e.w, false, e.id, m, &e.of)
	}
}

// Failed tells that there is no answer of the server, and what the client is told of that.
func (e *Exchange) Failed(why string) {
	if e != nil {
		e.t.Pass(e.w, false, e.id, jsonrpc.NewError(e.id, jsonrpc.CodeInternal, why, nil), &e.of)
	}
}

// Said tells of what a client hears about its request.
func (e *Exchange) Said(m *jsonrpc.Message) {
	if e != nil {
		e.t.Pass(e.w, false, nil, m, nil)
	}
}

// Wire is a connection to a server: a bridge.Tap. Its methods may be called concurrently.
type Wire struct {
	t *Traffic
	w Where

	mu    sync.Mutex // guards the rest
	asked map[string]about
}

var _ bridge.Tap = (*Wire)(nil)

// Wire returns what tells of the messages of a connection to that server, which was opened
// on behalf of that principal.
func (t *Traffic) Wire(server, principal string) *Wire {
	return &Wire{t: t, w: Where{Side: Server, Server: server, Principal: principal}}
}

// On implements bridge.Tap.
func (c *Wire) On() bool { return c.t.On() }

// Passed implements bridge.Tap.
func (c *Wire) Passed(toServer bool, id []byte, m *jsonrpc.Message) {
	if m.Method != "" && len(id) == 0 {
		c.t.Pass(c.w, toServer, nil, m, nil)
		return
	}
	key := "<" + string(id[:min(len(id), maxID)]) // the server's requests have ids of its own
	if toServer == (m.Method != "") {
		key = ">" + key[1:]
	}
	c.mu.Lock()
	var of *about
	if m.Method == "" {
		if one, ok := c.asked[key]; ok {
			delete(c.asked, key)
			of = &one
		}
	} else {
		if c.asked == nil || len(c.asked) >= maxAsked { // of requests that have no answer, or had it while nobody looked
			c.asked = map[string]about{}
		}
		c.asked[key] = about{clipTo(m.Method, maxTrafficText), nameOf(m), time.Now()}
	}
	c.mu.Unlock()
	c.t.Pass(c.w, toServer, id, m, of)
}

// Weight is about how many bytes a message has as JSON.
func (m *Message) Weight() int {
	return 260 + len(m.Server) + len(m.Principal) + len(m.Method) + len(m.Name) + len(m.ID) + 2*len(m.Payload)
}
