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

// These constants bound the shown part of a message.
const (
	maxTrafficText   = 200      // bytes of a name
	maxID            = 64       // bytes of an id
	maxPayload       = 4 << 10  // bytes of a payload
	maxTrafficLooked = 64 << 10 // bytes; the payload of a larger message is not shown
	maxAsked         = 256      // requests of one connection whose method is stored for their answers
)

// These are the sides on which a message passes.
const (
	Client = "client" // between a client and the bridge
	Server = "server" // between the bridge and a server
)

// Message describes a passing message. A published Message is immutable.
type Message struct {
	At   time.Time `json:"at"`
	Side string    `json:"side"` // Client or Server
	// To is the direction, on both sides: server or client.
	To        string `json:"to"`
	Server    string `json:"server,omitempty"`
	Principal string `json:"principal,omitempty"`
	Session   string `json:"session,omitempty"` // as in logs; empty on the server side
	Kind      string `json:"kind"`              // request, notification, result or error
	// For an answer, Method is the method of its request, if that is known.
	Method string   `json:"method,omitempty"`
	Name   string   `json:"name,omitempty"` // of the tool or prompt, the URI of the resource, or the progress
	ID     string   `json:"id,omitempty"`   // as on the wire
	Bytes  int      `json:"bytes"`
	Took   *float64 `json:"took_ms,omitempty"` // of an answer, since its request passed
	Code   int64    `json:"code,omitempty"`    // of an error
	// ToolError means that the message is the result of a tool that failed.
	ToolError bool `json:"tool_error,omitempty"`
	// Payload is masked JSON; Cut means that it is incomplete.
	Payload string `json:"payload,omitempty"`
	Cut     bool   `json:"cut,omitempty"`
}

// TrafficWatcher receives passing messages. It must not block.
type TrafficWatcher interface {
	// Wants reports whether the observer wants messages of that server and session, and whether it wants their
	// payloads.
	Wants(server, session string) (it, payload bool)
	Passed(m *Message)
}

// Traffic shows the messages of a bridge to watchers. Its methods may be called concurrently. A nil Traffic has
// no watchers.
type Traffic struct {
	// Mask returns raw JSON without secrets, cut at about most bytes, and whether it is complete. If Mask is nil, no
	// payloads are shown. Mask is set before the first message.
	Mask func(raw []byte, most int) (shown []byte, whole bool)

	watchers atomic.Pointer[[]TrafficWatcher] // nil without watchers
	mu       sync.Mutex                       // held while watchers is replaced
}

// On reports whether there are watchers.
func (t *Traffic) On() bool { return t != nil && t.watchers.Load() != nil }

// Look passes messages to w until done is called.
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

// Where says on which Side a message passes, for which server and session, and on behalf of which principal.
type Where struct {
	Side, Server, Principal, Session string
}

// about describes the request of an answer.
type about struct {
	method string
	named
	at time.Time
}

// named is the subject of a message. The URI of a resource counts as payload, because it may contain a path, an
// id or a token.
type named struct {
	name string // for all watchers
	uri  string // for watchers of payloads; empty unless the message is about a resource
}

// Pass shows a message. id replaces the id of the message. of is the request of an answer, if it is known.
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

// describe returns the description of a message. uri masks the URI of a resource; nil shows only its scheme and
// host.
func describe(w Where, toServer bool, id []byte, m *jsonrpc.Message, of *about, uri func(string) string) *Message {
	out := &Message{
		At:        time.Now(),
		Side:      w.Side,
		To:        "client",
		Server:    w.Server,
		Principal: w.Principal,
		Session:   w.Session,
		Method:    clipTo(m.Method, maxTrafficText),
		ID:        clipTo(string(id[:min(len(id), maxID)]), maxID),
		Bytes:     m.Len(),
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
		out.ToolError = bridge.OutcomeOfAnswer(out.Method, m) == bridge.ToolFailed
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

// nameOf returns the subject of a message.
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

// uri masks a URI, and returns its first maxTrafficText bytes.
func (t *Traffic) uri(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		return ""
	}
	raw, _ = t.Mask(raw, 2*maxTrafficText)
	return clipTo(gjson.ParseBytes(raw).String(), maxTrafficText)
}

// payload returns the masked payload of a message. If the message is longer than maxTrafficLooked, text is empty and
// cut is true.
func (t *Traffic) payload(m *jsonrpc.Message) (text string, cut bool) {
	if m.Len() > maxTrafficLooked {
		return "", true
	}
	raw := m.Error
	if raw == nil {
		raw = m.Shown()
	}
	if len(raw) == 0 {
		return "", false
	}
	shown, whole := t.Mask(raw, maxPayload)
	return string(shown), !whole
}

// clipTo returns the start of a text, as a copy, because the text belongs to the message.
func clipTo(s string, most int) string { return string([]byte(s[:min(len(s), most)])) }

// Exchange is a client's request that was passed to a server.
type Exchange struct {
	t  *Traffic
	w  Where
	of about
	id []byte
}

// Asked shows a client's request. Without watchers, Asked returns nil.
func (t *Traffic) Asked(server, session, principal string, m *jsonrpc.Message) *Exchange {
	if !t.On() {
		return nil
	}
	e := &Exchange{t, Where{Client, server, principal, session}, about{clipTo(m.Method, maxTrafficText), nameOf(m), time.Now()}, append([]byte(nil), m.ID...)}
	t.Pass(e.w, true, e.id, m, nil)
	return e
}

// Answered shows the answer to the request. Answered does nothing if e or m is nil.
func (e *Exchange) Answered(m *jsonrpc.Message) {
	if e != nil && m != nil {
		e.t.Pass(e.w, false, e.id, m, &e.of)
	}
}

// Failed shows that the server did not answer, with the client's error text.
func (e *Exchange) Failed(why string) {
	if e != nil {
		e.t.Pass(e.w, false, e.id, jsonrpc.NewError(e.id, jsonrpc.CodeInternal, why, nil), &e.of)
	}
}

// Notified shows a notification to the client about the request.
func (e *Exchange) Notified(m *jsonrpc.Message) {
	if e != nil {
		e.t.Pass(e.w, false, nil, m, nil)
	}
}

// Wire observes a connection to a server as a bridge.Tap. Its methods may be called concurrently.
type Wire struct {
	t *Traffic
	w Where

	mu    sync.Mutex // guards the rest
	asked map[string]about
}

var _ bridge.Tap = (*Wire)(nil)

// Wire returns the tap of a connection to that server on behalf of that principal.
func (t *Traffic) Wire(server, principal string) *Wire {
	return &Wire{t: t, w: Where{
		Side:      Server,
		Server:    server,
		Principal: principal,
	}}
}

func (w *Wire) On() bool { return w.t.On() }

func (w *Wire) Passed(toServer bool, id []byte, m *jsonrpc.Message) {
	if m.Method != "" && len(id) == 0 {
		w.t.Pass(w.w, toServer, nil, m, nil)
		return
	}
	key := "<" + string(id[:min(len(id), maxID)]) // the server numbers its own requests
	if toServer == (m.Method != "") {
		key = ">" + key[1:]
	}
	w.mu.Lock()
	var of *about
	if m.Method == "" {
		if one, ok := w.asked[key]; ok {
			delete(w.asked, key)
			of = &one
		}
	} else {
		if w.asked == nil || len(w.asked) >= maxAsked { // drop them all: a request may stay without an answer, or be answered while nobody watches
			w.asked = map[string]about{}
		}
		w.asked[key] = about{clipTo(m.Method, maxTrafficText), nameOf(m), time.Now()}
	}
	w.mu.Unlock()
	w.t.Pass(w.w, toServer, id, m, of)
}

// Weight returns about the size of the message as JSON, in bytes.
func (m *Message) Weight() int {
	return 260 + len(m.Server) + len(m.Principal) + len(m.Method) + len(m.Name) + len(m.ID) + 2*len(m.Payload)
}
