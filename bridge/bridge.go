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
	// Open makes a connection and its handshake on behalf of from. ctx bounds only the opening. The server's own
	// notifications and questions go to rest. If Open succeeds and the connection ends other than by Close, it
	// calls rest.Gone once.
	Open(ctx context.Context, from *Caller, rest Client) (Upstream, error)
}

// Address is where a server is, in the words of OpenTelemetry.
type Address struct {
	Network string // TCP or Pipe; empty if it is neither
	Host    string // empty if it has none
	Port    int    // 0 if it has none
}

// These are the networks of an Address.
const (
	TCP  = "tcp"  // HTTP
	Pipe = "pipe" // standard streams of a child process
)

// Upstream is one connection to a server. Its methods may be called concurrently.
type Upstream interface {
	// Server returns the server's greeting.
	Server() *Greeting
	// Call sends a request and waits for its answer. When ctx ends, the caller has cancelled it. r is not used
	// after Call returns.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
	// Notify sends a notification, without waiting for the server.
	Notify(ctx context.Context, r *Request) error
	// Close ends every pending Call and waits for all goroutines and processes of the connection. When ctx ends,
	// it forces them to end.
	Close(ctx context.Context) error
}

// Client is the downstream party for a connection's reader. Its methods are called in the order of the wire, and
// must not block. Messages are valid during the call.
type Client interface {
	Notify(m *jsonrpc.Message)
	// Ask passes on a question of the server. reply is called exactly once, from any goroutine and perhaps
	// before Ask returns, unless withdraw was called first. Its argument is valid during the call. withdraw may
	// be nil. Its argument is the server's reason, if it gave one.
	Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) (withdraw func(why string))
	// Gone reports that the connection ended by itself, and why.
	Gone(err error)
}

// Request is a message on its way to a server.
//
// An Adapter gets the message for the server: Params has the server's name of a tool or prompt. Back gets
// progress with the message's token.
//
// A wrapper reads that name with Name. Below the filter it is the server's own, although Params may still have
// the client's.
type Request struct {
	*jsonrpc.Message         // valid until Call returns
	From             *Caller // the client that makes it
	Back             Client  // gets the server's messages about this call, such as progress; nil drops them
	// Header holds the headers of this request. A lane removes all that the server's allow-list does not
	// forward, and uses the server's names. Wrappers above the lane must not read it.
	Header http.Header
	// Identity is the caller's identity, from the token of this request. A lane keeps only the parts that the
	// allow-list names.
	Identity *identity.Identity
	// NotBefore, if not zero, is the earliest time of an acceptable answer. Older cached answers do not count.
	NotBefore time.Time
	// Through is the meta tool that named the called tool, such as call_tool; empty if the client called the tool itself.
	Through string
	// Mirror holds headers that repeat arguments of the call (2026-07-28, B8). They are the client's, and from
	// package tools on the server's. It is nil for a client whose wire has no headers.
	Mirror http.Header
	// Trace is the trace context for the headers of a server over HTTP. The message has the same. Trace is zero without
	// tracing.
	Trace Trace
	// Logs means that the bridge requests log messages from a modern server, whatever _meta says.
	Logs bool
	// Keep makes the message valid beyond Call, until free is called. nil means that this is impossible.
	Keep func() (free func())
	// Call is the client's request behind this one, for reports. It is nil for requests of the bridge itself.
	Call Call
	// Handshake marks a part of a handshake, whose time limit is that of ctx. A program may take longer to start
	// than a call may be silent.
	Handshake bool
	// Opened is called when the connection for the request is open. The time before was the server's start. Opened may
	// be nil.
	Opened func()
	// Awaited is how long Call waits for the answer after a cancellation, so that later requests do not overtake
	// it. 0 means not at all.
	Awaited time.Duration
}

// Call is a client's request on its way to one or several servers.
type Call interface {
	// At records the name of a server that gets it.
	At(server string)
}

// Caller is the client of a request. It is immutable.
type Caller struct {
	Principal    string // empty without access rules: all clients are one principal
	Revision     string // agreed with the client
	Capabilities []byte // of the client, raw JSON object
	Params       []byte // of initialize, for the server, raw JSON object
	// Header holds the forwarded headers of initialize. An adapter gets those of its server's allow-list, under
	// the server's names.
	Header http.Header
	// Identity is the caller's identity, from the token of the same request as Header.
	Identity *identity.Identity
	// Handover is the caller's session, if another instance may resume it; nil otherwise.
	Handover Handover
}

// Forward is one entry of a server's allow-list. It lets the server get a header of the client's requests, a claim of
// the caller's token, or the token itself. Validate of package config rejects headers between the client and the
// bridge, such as Authorization.
type Forward struct {
	// From is the header's name in the client's request, in the canonical form of net/http, such as X-Tenant.
	From string
	// Claim is the name of the claim that the server gets, if From is empty.
	Claim string
	// To is the server's name for the value: a header in canonical form, or a variable of a child process. Empty
	// means the header From, or for a child process the variable of that name, such as X_TENANT.
	To string
	// Token gives the server's adapter the caller's token, to exchange it for one of the server. From, Claim and To are
	// empty then. The token may change between requests of the same caller: it does not distinguish callers, and is not
	// stored with sessions.
	Token bool
}

// Values returns the forwarded values of a client's headers and its caller's identity.
func (f *Forward) Values(h http.Header, id *identity.Identity) []string {
	if f.Claim != "" {
		return identity.Claim(id, f.Claim)
	}
	return h[f.From]
}

// Forwarded returns the headers and claims that the allow-list forwards, under the server's names, and the token if
// the list has it. out is nil only if h and id are, or the list is empty. So a client without such headers differs from
// one without headers.
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

// Lasting returns the entries of an allow-list that distinguish callers.
func Lasting(list []Forward) []Forward {
	if !Personal(list) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(f Forward) bool { return f.Token })
}

// Personal reports whether a header carries something of the caller itself, such as a token.
func Personal(list []Forward) bool {
	return slices.ContainsFunc(list, func(f Forward) bool { return f.Token })
}

// Greeting is the result of a handshake with a server.
type Greeting struct {
	Revision     string // agreed with the server, such as 2025-11-25
	Capabilities []byte // of the server, raw JSON object
	Result       []byte // result of initialize or server/discover, raw JSON on one line
	Mirrors      bool   // requests to it have headers that repeat arguments (2026-07-28, B8)
}

// Modern reports whether the server is of the modern era: without sessions, and with its client in each request
// (2026-07-28, B1).
func (g *Greeting) Modern() bool { return g != nil && era.IsModern(g.Revision) }

// Keeps reports whether next can replace g in a live session. It needs the same revision and all capabilities.
func (g *Greeting) Keeps(next *Greeting) bool {
	return g.Revision == next.Revision && covers(gjson.ParseBytes(next.Capabilities), gjson.ParseBytes(g.Capabilities))
}

// covers reports whether now has all of had: the members of objects, and true values.
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

// Meta returns the client data of a request to a modern server (B2).
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

// Modern reports whether the client is of the modern era.
func (c *Caller) Modern() bool { return era.IsModern(c.Revision) }

// Request returns a request of the bridge itself to a modern server, on behalf of the caller.
func (c *Caller) Request(method string, params []byte) *jsonrpc.Message {
	return jsonrpc.NewRequest(method, era.Inject(params, c.Meta().Members()))
}

// MaxQuestions bounds the unanswered questions to one client, and those about one call.
const MaxQuestions = 64

// Stream takes messages for a client of a downstream adapter.
type Stream interface {
	// Send appends a message without blocking. It reports false if the stream was closed or overflows.
	Send(e replay.Event) bool
}

// Nobody is a Client that ignores everything.
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
