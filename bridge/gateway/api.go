package gateway

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// Gateway is an interface, not a struct, for the sake of build time: a package that names a struct compiles the methods
// of all generic types that the struct can reach.

// Gateway connects sessions with servers.
type Gateway interface {
	// Revoke ends everything of a principal whose key was removed: sessions, streams, calls in flight, parked calls and
	// subscriptions. Until Restore, the gateway refuses all requests of the principal.
	Revoke(principal string)
	// Restore admits a revoked principal again.
	Restore(principal string)
	// Allowed returns nil if the principal may use the server of that name. An empty name means the aggregate, or the
	// only server. Otherwise the error is ErrUnknownServer, or a kind of ErrDenied or ErrRevoked.
	Allowed(server, principal string) error
	// Resolve returns the request for which a message of a client stands at an address, before scopes are checked. A
	// call through a meta tool stands for the call that it names, and a search of tools for the request for the list of
	// tools. mode is the mode that the client's URL requests.
	Resolve(server, principal string, mode ToolsMode, m *jsonrpc.Message) *jsonrpc.Message
	// Join joins the shared connection to a server on behalf of another instance's session. The guards of the client
	// run at that instance. Join also returns the server's list of forwarded headers.
	Join(name string, from bridge.Caller, rest bridge.Client) (Joined, []bridge.Forward, error)
	// CallPool makes a call for a stateless client of another instance. If the server is removed or replaced, it closes
	// after this call, unless the call is a subscription.
	CallPool(ctx context.Context, name string, r *bridge.Request) (*jsonrpc.Message, error)
	// ReleaseShared closes the shared connection of a server's sessions with that key (see share.Hubs) when no session
	// uses it. The caller calls it when another instance owns the connection.
	ReleaseShared(name, key string)
	// ReleasePool is ReleaseShared for the server's connections of stateless clients.
	ReleasePool(name, key string)
	// CloseUnused closes the connections of stateless clients that serve no request.
	CloseUnused()
	// Portable reports whether another instance can continue a session. If a session ends with its connection (restart:
	// false), the connection has to be resumable too.
	Portable(r *session.Record) bool
	// Adopt continues the session that another instance held. h is the session's record, which this instance now owns.
	// The first call opens the connection.
	Adopt(h session.Held) (Session, error)
	// Move ends the session of that key with ErrMoved, because another instance owns the session.
	Move(key string)
	// MoveIdle ends the sessions that have answered initialize and have no calls in flight, so that other instances
	// continue them. It returns the number of sessions before.
	MoveIdle() (left int)
	// Room returns a principal's share of Options.MaxBytes. The empty name stands for requests without a principal.
	Room(principal string) limits.Room
	// OffersModern reports whether clients can use revision 2026-07-28 at the address of that server. An empty name
	// means the aggregate, or the only server. If they cannot, the caller treats a stateless request like a request
	// before initialize.
	OffersModern(server string) bool
	// Approvals returns the calls that wait for an operator.
	Approvals() *approve.Queue
	// Drain refuses new calls and ends subscriptions. Then it waits until no call is in flight or ctx ends.
	Drain(ctx context.Context) error
	// Draining reports whether Drain or Close was called.
	Draining() bool
	// Activity returns the number of calls in flight, and the number of calls since the start.
	Activity() (now int, all uint64)
	// Close ends all sessions and connections, and returns when all their goroutines have ended. When ctx ends, Close
	// forces connections to close. Two seconds later Close returns, even if an adapter is still not closed.
	Close(ctx context.Context)
	// Initialize starts a session for the initialize request m. It returns the session and the answer. If the handshake
	// fails, it returns no session, the error as an answer, and the error.
	Initialize(ctx context.Context, m *jsonrpc.Message, s SessionOptions) (Session, *jsonrpc.Message, error)
	// NewLog returns the event log of a stream to a client of that principal. Its memory is a part of Options.MaxBytes.
	// keeps means that the client may resume the stream, so that the log has a history.
	NewLog(principal string, l replay.Limits, keeps bool) *replay.Log
	// Call answers the request m of a stateless client, under the client's id. If the call fails, the answer is an
	// error message, and the error is the reason. The end of ctx cancels the request; then there is no answer.
	//
	// A subscription lasts until ctx ends or the bridge ends the subscription. Then the answer is the closing result of
	// subscriptions/listen (2026-07-28).
	Call(ctx context.Context, m *jsonrpc.Message, stateless Stateless) (*jsonrpc.Message, error)
	// Status returns the state of each server, in the order of Options.
	Status() []Status
	// Groups returns how each group offers its tools, sorted by name, after all servers together if there are several.
	Groups() []GroupStatus
	// Sample returns the Sample of the server of that name. ok is false for an unknown name.
	Sample(server string) (sample Sample, ok bool)
	// Totals returns counts over all servers.
	Totals() Totals
	// Dropped returns the counter of notifications that full queues dropped. Adapters add their own drops to it.
	Dropped() *atomic.Uint64
	// Sessions returns the state of each session for whose principal whose returns true.
	Sessions(whose func(principal string) bool) []SessionStatus
	// EndSession ends the principal's session with that SessionStatus.ID, and reports whether there was such a session.
	EndSession(id, principal string) bool
	// Operated returns the parts of a server that operators control. All are nil for an unknown name. A part that is
	// off is nil.
	Operated(server string) (*breaker.Breaker, *cache.Cache, *health.Connections, *drain.Server)
	// Try opens a connection to the server in the background, to test it, unless such a test is in flight. It reports
	// false for an unknown name, and for a server that gets headers or claims of callers: only callers can open it.
	Try(server string) bool
	// Probe opens and closes a connection to the server of that name on behalf of a principal,
	// even if the circuit is open.
	Probe(ctx context.Context, server, principal string) error
	// Servers returns the names of the servers, in the order of Options.
	Servers() []string
	// StartAhead starts each server that can start without a client.
	StartAhead()
	// Forwards returns the client headers that at least one server gets, sorted.
	Forwards() []string
	// Apply replaces the servers. A server that is not in c.Names gets no new calls. Its sessions end when its calls in
	// flight have ended, at the latest after c.Drain. Sessions at a changed server keep its former Adapter and
	// settings, unless Renew is set. Other sessions are not affected. Clients of the aggregate are notified of changed
	// lists.
	//
	// Apply knows the calls in flight only if Options.Watch is set. While the gateway stops, Apply changes nothing and
	// returns ErrShutdown.
	Apply(c Change) error
}

// SessionOptions describe a new session.
type SessionOptions struct {
	// Server is the name of the server; empty means the aggregate, or the only server.
	Server string
	// ID names the session to its client. It must not be guessable.
	ID string
	// Principal owns the session. It is empty without access rules.
	Principal string
	// Envelope is the envelope of the initialize request; nil on stdio.
	Envelope *Envelope
	// Portable means that another instance may continue the session by Adopt, because its client depends on no stream
	// of this instance.
	Portable bool
}

// Session is the session of one client.
type Session interface {
	// Done returns a channel that closes when the session begins to end.
	Done() <-chan struct{}
	// OnEnd calls f when the session ends, or at once if it already ended.
	OnEnd(f func())
	// Go runs f in a goroutine that the session's end awaits. If the session or the gateway has
	// ended, Go reports false and does not call f.
	Go(f func()) bool
	// Seen records a sign of life of the client.
	Seen()
	// End ends the session with the reason err, and returns at once. Its connection closes in
	// the background.
	End(err error)
	// Server returns the name of the session's server; empty means the aggregate.
	Server() string
	// Principal returns the owner of the session. Other principals can neither use the session nor detect that the
	// session exists.
	Principal() string
	// Revision returns the protocol revision that the bridge and the client agreed on.
	Revision() string
	// Call calls Enter, then Do.
	Call(m *jsonrpc.Message, e *Envelope, back bridge.Stream) (*jsonrpc.Message, error)
	// Enter registers the client's request m, so that a cancellation which follows finds the request. e is the envelope
	// of m, or nil. back takes the server's messages before the answer. The caller calls Do or Go on the result,
	// exactly once.
	Enter(m *jsonrpc.Message, e *Envelope, back bridge.Stream) Call
	// Notify handles a notification of the client.
	Notify(m *jsonrpc.Message, e *Envelope)
	// Attach adds st as a standing stream: it carries messages that belong to no call. Pending events and questions go
	// to st at once. detach removes it.
	Attach(st bridge.Stream) (detach func())
	// Answer passes the client's answer to the question of the same id. If no question of that id is open, perhaps
	// since it expired, the error is errNobodyWaits.
	Answer(m *jsonrpc.Message) error
}

// Call is one request of the client that Enter registered or refused.
type Call interface {
	// Go calls Do in a goroutine of the session, and then done with the results of Do. If the session has ended, Go
	// reports false and calls nothing; Do then returns the error.
	Go(done func(*jsonrpc.Message, error)) bool
	// Do makes the call and returns the answer under the client's id. If the call fails, the answer is an error
	// message, and err is the reason. Only if the client cancelled the call, there is no answer.
	Do() (m *jsonrpc.Message, err error)
}

// Joined is the share of another instance's session in a shared connection.
type Joined interface {
	bridge.Upstream
	// Keep opens the connection and keeps it open until release is called.
	Keep(ctx context.Context) (release func(), err error)
}

// New returns a running Gateway. Close ends it.
func New(o Options) Gateway { return newGateway(o) }

func (g *gateway) Initialize(ctx context.Context, m *jsonrpc.Message, o SessionOptions) (Session, *jsonrpc.Message, error) {
	s, a, err := g.initialize(ctx, m, o)
	if s == nil { // a Session that holds nil is not nil
		return nil, a, err
	}
	return s, a, err
}

func (g *gateway) Adopt(h session.Held) (Session, error) {
	s, err := g.adopt(h)
	if err != nil {
		return nil, err
	}
	return s, nil
}
