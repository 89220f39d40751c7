// Package bridge is the contract between the parts of the bridge. It defines connections to servers, their
// clients, the messages between them, and how calls fail. It holds no state.
//
// A call goes down and its answer comes back up:
//
//	client            adapter              gateway                      adapter          server
//	   |   POST    +------------+   +--------------------------+   +--------------+  line   |
//	   |---------->| downstream |-->| Session.Call             |-->|   upstream   |-------->|
//	   |           +------------+   |  wrappers > lane         |   |   Conn       |         |
//	   |  answer         ^          +--------------------------+   +--------------+         |
//	   |<----------------+<---- returns up the same stack <------------- reader <-----------|
//	   |                 ^                                                  |
//	   |  progress, questions --- Stream.Send <--- Client.Notify / Ask <----+
//
// Upstream adapters implement [Adapter] and [Upstream], mostly with conn.Conn. Downstream adapters make a
// gateway.Session for each client and give it a [Stream] to write to. Wrappers are between them: each is an
// Upstream around an Upstream. Package gateway assembles them.
//
// Programs that embed a bridge should use package server. Its examples show a configuration made in code, and a
// server of the program itself beside others. They run the bridge as an http.Handler, in a gin engine, and on
// stdin and stdout.
//
// Ids and progress tokens never cross. Every connection numbers its own requests, and answers carry the id bytes
// of the client. A JSON-RPC error is an answer. A Go error means that no answer came.
package bridge

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// Adapter opens connections to one server.
type Adapter interface {
	// Open opens a connection and makes its handshake on behalf of from. ctx bounds only the opening. The notifications
	// and questions of the server that belong to no call go to rest. If Open succeeds, and the connection later ends
	// other than by Close, the connection calls rest.Gone once.
	Open(ctx context.Context, from *Caller, rest Client) (Upstream, error)
}

// Address is where a server is, in the words of OpenTelemetry.
type Address struct {
	Network string // TCP or Pipe; empty for others
	Host    string // empty if it has none
	Port    int    // 0 if it has none
}

// TCP and Pipe are the networks of an Address.
const (
	TCP  = "tcp"  // HTTP
	Pipe = "pipe" // standard streams of a child process
)

// Upstream is one connection to a server. Its methods may be called concurrently.
type Upstream interface {
	// Server returns the server's greeting.
	Server() *Greeting
	// Call sends a request and waits for its answer. The end of ctx cancels the request. After Call has returned, it
	// does not use r.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
	// Notify sends a notification, without waiting for the server.
	Notify(ctx context.Context, r *Request) error
	// Close ends every pending Call, and waits for all goroutines and processes of the connection. When ctx ends, Close
	// forces them to end.
	Close(ctx context.Context) error
}

// Client receives what a server sends: from the reader of a connection, or about one call. Its methods are called in
// the order of the messages, and must not block. A message is valid until the method returns.
type Client interface {
	Notify(m *jsonrpc.Message)
	// Ask passes on a question of the server. Unless withdraw is called first, the Client calls reply exactly once,
	// from any goroutine, perhaps before Ask returns. The argument of reply is valid until reply returns. withdraw may
	// be nil. why is the server's reason, or empty.
	Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) (withdraw func(why string))
	// Gone reports that the connection ended by itself, and why.
	Gone(err error)
}

// Request is a message on its way to a server.
//
// The Params of the message name a tool or prompt as the server does when an Adapter gets the Request. Back gets
// progress with the progress token of the message.
//
// A wrapper reads the name with Name. Below the filter, Name returns the server's name, although Params may still have
// the client's.
type Request struct {
	*jsonrpc.Message         // valid until Call returns
	From             *Caller // client that makes the request
	Back             Client  // receives the server's messages about this call, such as progress; nil drops them
	// Header holds the headers of the client's request. A lane keeps only those that the server's allow-list forwards,
	// and gives them the server's names. Wrappers above the lane must read no other headers.
	Header http.Header
	// Identity is the identity from the token of the client's request. A lane keeps only the parts that the server's
	// allow-list names.
	Identity *identity.Identity
	// NotBefore, if not zero, is the earliest time at which an acceptable answer was made. Older cached answers do not
	// count.
	NotBefore time.Time
	// Through is the meta tool through which the client called the tool, such as call_tool, or "" if the client called
	// the tool itself.
	Through string
	// Mirror holds the headers that repeat arguments of the call (2026-07-28, B8). Above package tools they are those
	// of the client, below it those for the server. Mirror is nil for a client whose transport has no headers.
	Mirror http.Header
	// Trace is the trace context for the HTTP headers of a server. The message has the same trace context. Trace is
	// zero without tracing.
	Trace Trace
	// Logs means that the bridge itself requests log messages from a modern server, even if _meta does not.
	Logs bool
	// Keep makes the message valid beyond Call, until free is called. nil means that nothing can keep the message
	// valid.
	Keep func() (free func())
	// Call is the client's request that caused this request, for reports. It is nil for requests of the bridge itself.
	Call Call
	// Handshake marks a request of a handshake. Only ctx limits its time, since a program may take longer to start than
	// a call may be silent.
	Handshake bool
	// Opened is called when the connection for the request is open. Until then the server was starting. Opened may be
	// nil.
	Opened func()
	// Awaited is how long Call waits for the answer after a cancellation, so that a later request does not overtake
	// this one. 0 means that Call returns at once.
	Awaited time.Duration
}

// Call is a client's request on its way to one or several servers.
type Call interface {
	// At records the name of a server that gets the request.
	At(server string)
}

// Caller describes the client of a request. It is immutable.
type Caller struct {
	Principal    string // empty without access rules: all clients are one principal
	Session      string // names the client's session; empty without one
	Revision     string // agreed with the client
	Capabilities []byte // of the client, raw JSON object
	Params       []byte // of initialize, for the server, raw JSON object
	// Header holds the forwarded headers of initialize. An adapter gets those that its server's allow-list names, under
	// the server's names.
	Header http.Header
	// Identity is the identity from the token of the request that had Header.
	Identity *identity.Identity
	// Handover is the client's session if another instance may resume it; otherwise nil.
	Handover Handover
}

// Forward is one entry of a server's allow-list. It forwards a header of the client's requests, a claim of the caller's
// token, or the token itself. Package config rejects headers that are for the bridge, such as Authorization.
type Forward struct {
	// From is the header's name in the client's request, in the canonical form of net/http, such as X-Tenant.
	From string
	// Claim is the name of the claim that the server gets, if From is empty.
	Claim string
	// To is the name under which the server gets the value: a header in canonical form, or a variable of a child
	// process. Empty means the header From, or for a child process the variable of that name, such as X_TENANT.
	To string
	// Token gives the adapter the caller's token, so that it can exchange the token for a token of the server. From,
	// Claim and To are empty then. The token may change between requests of a caller, so it does not distinguish
	// callers, and is not stored with sessions.
	Token bool
}

// Values returns the values that f forwards, of the headers h and of the caller's identity.
func (f *Forward) Values(h http.Header, id *identity.Identity) []string {
	if f.Claim != "" {
		return identity.Claim(id, f.Claim)
	}
	return h[f.From]
}

// Forwarded returns the headers and claims that the allow-list forwards, under the server's names, and the token if the
// list has an entry for it. out is nil only if h and id are nil, or the list is empty. So a client without forwarded
// headers differs from a client whose transport has no headers.
func Forwarded(h http.Header, id *identity.Identity, list []Forward) (out http.Header, token *identity.Identity) {
	if h == nil && id == nil || len(list) == 0 {
		return nil, nil
	}
	out = http.Header{}
	for i := range list {
		f := &list[i]
		if f.Token {
			token = identity.WithoutClaims(id)
		} else if values := f.Values(h, id); len(values) > 0 {
			out[f.To] = values
		}
	}
	return out, token
}

// Lasting returns the entries of an allow-list that distinguish callers: all but the token.
func Lasting(list []Forward) []Forward {
	if !Personal(list) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(f Forward) bool { return f.Token })
}

// Personal reports whether an allow-list has an entry for the caller's token.
func Personal(list []Forward) bool {
	return slices.ContainsFunc(list, func(f Forward) bool { return f.Token })
}

// Greeting is the result of a handshake with a server.
type Greeting struct {
	Revision     string // agreed with the server, such as 2025-11-25
	Capabilities []byte // of the server, raw JSON object
	Result       []byte // result of initialize or server/discover, raw JSON on one line
	Mirrors      bool   // its requests need headers that repeat arguments (2026-07-28, B8)
}

// Modern reports whether the server is modern: it has no sessions, and each request describes its client (2026-07-28,
// B1). A nil Greeting is not modern.
func (g *Greeting) Modern() bool { return g != nil && era.IsModern(g.Revision) }

// Keeps reports whether a server with the greeting next can continue a session that began with g. It needs the same
// revision, and all capabilities of g.
func (g *Greeting) Keeps(next *Greeting) bool {
	return g.Revision == next.Revision && covers(gjson.ParseBytes(next.Capabilities), gjson.ParseBytes(g.Capabilities))
}

// covers reports whether now has all that had has: the members of objects, and values that are true.
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

// Meta returns what a request to a modern server says about its client (B2).
func (c *Caller) Meta() era.Meta {
	m := era.Meta{
		Version:      era.LatestModern,
		Capabilities: c.Capabilities,
		ClientInfo:   []byte(gjson.GetBytes(c.Params, "clientInfo").Raw),
	}
	if !c.Modern() {
		m.Capabilities = era.ModernCapabilities(c.Capabilities, c.Revision)
	}
	if len(m.Capabilities) == 0 {
		m.Capabilities = []byte("{}")
	}
	if len(m.ClientInfo) == 0 || m.ClientInfo[0] != '{' {
		m.ClientInfo = nil
	}
	return m
}

// Modern reports whether the client uses a modern revision.
func (c *Caller) Modern() bool { return era.IsModern(c.Revision) }

// Request returns a request of the bridge itself to a modern server, with the caller as the client in _meta.
func (c *Caller) Request(method string, params []byte) *jsonrpc.Message {
	return jsonrpc.NewRequest(method, era.Inject(params, c.Meta().Members()))
}

// MaxQuestions bounds the unanswered questions to one client, and the unanswered questions about one call.
const MaxQuestions = 64

// Stream takes messages for one client.
type Stream interface {
	// Send appends an event without blocking. If the stream is closed or full, Send reports false.
	Send(e replay.Event) bool
}

// Nobody is a Client that drops notifications and rejects questions.
type Nobody struct{}

// Notify drops the notification.
func (Nobody) Notify(*jsonrpc.Message) {}

// Ask rejects the question.
func (Nobody) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "there is no client to ask", nil))
	return nil
}

// Gone does nothing.
func (Nobody) Gone(error) {}
