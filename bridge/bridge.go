// Package bridge is the contract between the parts of the bridge that joins MCP
// clients and MCP servers: what a connection to a server is, what a client is to
// it, what passes between them, and how a call can fail. It holds no state.
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
// Upstream adapters implement [Adapter] and [Upstream], mostly by means of
// conn.Conn. Downstream adapters make a gateway.Session for each client and give
// it a [Stream] to write to. What stands between are wrappers: an Upstream around
// an Upstream. Package gateway puts them together.
//
// A program that embeds a bridge is best served by package server, whose
// examples show it: a configuration made in code, a server of its own in
// process beside others, and the bridge as an http.Handler, among the routes of
// a gin engine, or on stdin and stdout.
//
// Ids and progress tokens never cross: every connection numbers its own
// requests, and answers carry the id bytes that the client sent. A JSON-RPC
// error is an answer; a Go error means that no answer came.
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
	// Open makes a connection and does its handshake on behalf of from. ctx
	// bounds only the opening. What the server starts by itself goes to rest,
	// from now on until rest.Gone, which is called once if and only if Open
	// succeeded and the connection ends, for whatever reason but Close.
	Open(ctx context.Context, from *Caller, rest Client) (Upstream, error)
}

// Upstream is one open conversation with a server. Methods may be called
// concurrently.
type Upstream interface {
	// Server returns what the handshake said.
	Server() *Greeting
	// Call sends a request and waits for its answer. The end of ctx means that
	// the caller wants it cancelled. r is not used after Call has returned.
	Call(ctx context.Context, r *Request) (*jsonrpc.Message, error)
	// Notify sends a notification. It does not wait for the server.
	Notify(ctx context.Context, r *Request) error
	// Close ends every pending Call and returns when all that belongs to the
	// connection has ended: goroutines, processes. The end of ctx cuts the
	// polite part short.
	Close(ctx context.Context) error
}

// Client is the downstream party as a connection's reader sees it: called in
// the order of the wire, never blocking. Messages are valid during the call.
type Client interface {
	Notify(n *jsonrpc.Message)
	// Ask puts the server's question. reply is called exactly once, from any
	// goroutine and perhaps before Ask returns, unless withdraw came first;
	// its argument is valid during the call. withdraw may be nil. It is told why
	// the server does not want the answer any more, if the server has said so.
	Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) (withdraw func(why string))
	// Gone says that the connection has ended by itself; err says why.
	Gone(err error)
}

// Request is a message on its way to a server.
//
// An Adapter gets the message for the server: Params has the server's name of a tool or a
// prompt, not the clients'. Progress goes to Back with the token of the message.
//
// A wrapper reads that name by Name. It is the server's own below the filter, where
// Params may still show what the client sent.
type Request struct {
	*jsonrpc.Message         // valid until Call returns
	From             *Caller // the client that asks
	Back             Client  // where the server's messages about this call go, such as progress; nil drops them
	// Header is what the client sent with this very request. A lane leaves of it
	// what the server's allow-list forwards, under the names that the server
	// knows; what is above must not look at it.
	Header http.Header
	// Identity is what the bridge knows of the caller by the token of this very request.
	// A lane leaves of it what the server's allow-list names.
	Identity *identity.Identity
	// NotBefore, if it is not zero, is the time that the answer must not be older
	// than: what was kept before will not do.
	NotBefore time.Time
	// Mirror are headers that repeat arguments of the call (2026-07-28, B8): what
	// the client sent, and from the wrapper that knows the tool on, what the
	// server gets. It is nil for a client whose wire has no headers.
	Mirror http.Header
	// Trace is what a server that is reached over HTTP is told in headers of the
	// trace that the request belongs to. It is zero unless the bridge takes part
	// in tracing, and then the message says the same.
	Trace Trace
	// Logs says that a modern server is asked for log messages with it, whatever
	// its _meta said before it was changed.
	Logs bool
	// Keep makes the message valid beyond Call, until the function that it
	// returns is called. nil means that it cannot be kept.
	Keep func() (free func())
	// Call is the client's request that this one is made for, if that is to be
	// reported. It is nil for requests of the bridge's own.
	Call Call
	// Handshake says that it is part of a handshake, for which ctx says how long it
	// may take: a program may need longer to start than a call may be silent.
	Handshake bool
	// Opened is called when the connection is there that the request goes over: what
	// came before was the server's start. nil means that nobody wants to know.
	Opened func()
	// Awaited is how long its end is waited for when it is taken back, so that what
	// is sent next does not meet it at the server. 0 means not at all.
	Awaited time.Duration
}

// Call is a client's request on its way to the server, or the servers, that get
// it.
type Call interface {
	// At says which of several servers is to get it, by its name.
	At(server string)
}

// Caller is who asks. It is immutable.
type Caller struct {
	Principal    string // empty while there are no access rules: everybody is one principal
	Revision     string // agreed with the client
	Capabilities []byte // of the client, raw JSON object
	Params       []byte // of initialize, as they go to the server, raw JSON object
	// Header is what the client sent with initialize, as far as it is
	// forwarded: an adapter gets what its server's allow-list forwards, under
	// the names that the server knows.
	Header http.Header
	// Identity is what the bridge knows of the caller by the token of that request, as far
	// as Header is forwarded.
	Identity *identity.Identity
	// Stay is the caller's session, if it may go on at another instance of the bridge;
	// nil otherwise.
	Stay Stay
}

// Forward is one entry of a server's allow-list: a header of the client's requests that
// reaches the server, a claim of the caller's token, or the token itself. config's Validate
// refuses headers that are between the client and the bridge, such as Authorization.
type Forward struct {
	// From is the name of the header in the client's request, in the canonical form of
	// net/http, such as X-Tenant.
	From string
	// Claim is the name of the claim that the server gets, if there is no From.
	Claim string
	// To is the name under which the server gets the value: a header in canonical form,
	// or an environment variable of a child process. Empty means the header From, or for
	// a child process the variable of that name, such as X_TENANT.
	To string
	// Token says that the server's adapter gets the caller's token, to exchange it for one
	// of the server. From, Claim and To are empty then. The token is another one with each
	// request of the same caller: it tells no callers apart, and is not kept with sessions.
	Token bool
}

// Values returns what the entry forwards, of a client's headers and its caller's identity.
func (f *Forward) Values(h http.Header, id *identity.Identity) []string {
	if f.Claim != "" {
		return identity.Claim(id, f.Claim)
	}
	return h[f.From]
}

// Forwarded returns what the allow-list forwards of h and id: headers under the names that
// the server knows, and the token if the list has it. Headers are nil only where h and id
// are, or where there is no list: a client that sends nothing of it is not taken for another
// one that did.
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

// Lasting returns the entries of an allow-list that tell callers apart.
func Lasting(list []Forward) []Forward {
	if !Personal(list) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(f Forward) bool { return f.Token })
}

// Personal reports whether each caller shows the server something of its own.
func Personal(list []Forward) bool {
	return slices.ContainsFunc(list, func(f Forward) bool { return f.Token })
}

// Greeting is what a handshake said about a server.
type Greeting struct {
	Revision     string // of the protocol, as it was agreed, such as 2025-11-25
	Capabilities []byte // of the server, raw JSON object
	Result       []byte // the whole result of initialize or server/discover, raw JSON on one line
	Mirrors      bool   // requests to it carry headers that repeat arguments (2026-07-28, B8)
}

// Modern reports whether the server is of the stateless era: it has no
// sessions, and each request says who asks (2026-07-28, B1).
func (g *Greeting) Modern() bool { return g != nil && era.IsModern(g.Revision) }

// Keeps reports whether next can stand in for g in a live session: the same
// revision, and no capability less.
func (g *Greeting) Keeps(next *Greeting) bool {
	return g.Revision == next.Revision && covers(gjson.ParseBytes(next.Capabilities), gjson.ParseBytes(g.Capabilities))
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

// Meta returns what a request to a modern server says about who asks (B2).
func (c *Caller) Meta() era.Meta {
	m := era.Meta{Version: era.LatestModern, Capabilities: c.Capabilities, ClientInfo: []byte(gjson.GetBytes(c.Params, "clientInfo").Raw)}
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

// Modern reports whether the client is of the stateless era.
func (c *Caller) Modern() bool { return era.IsModern(c.Revision) }

// Request makes a request of the bridge's own to a modern server, on behalf of
// the caller.
func (c *Caller) Request(method string, params []byte) *jsonrpc.Message {
	return jsonrpc.NewRequest(method, era.Inject(params, c.Meta().Members()))
}

// MaxQuestions bounds what a server asks one client, and what it asks about one
// call, without an answer.
const MaxQuestions = 64

// Stream is where a downstream adapter takes messages for its client.
type Stream interface {
	// Send appends a message; it does not block. It reports false when the
	// stream cannot carry it to the client any more: it was closed, or
	// overflows.
	Send(e replay.Event) bool
}

// Nobody is a Client that is not there.
type Nobody struct{}

// Notify drops the notification.
func (Nobody) Notify(*jsonrpc.Message) {}

// Ask refuses the question.
func (Nobody) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "there is nobody to ask", nil))
	return nil
}

// Gone is of no interest.
func (Nobody) Gone(error) {}
