package gateway

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// The interfaces keep adapters and the server from compiling all of this package: whoever names a type compiles the
// methods of all generic types that it can reach.

// Gateway connects sessions with servers.
type Gateway interface {
	// Revoke ends everything of a principal whose key was removed: sessions, streams,
	// calls in flight, parked calls and subscriptions. Until Restore, the principal can
	// begin nothing. Other principals are not affected.
	Revoke(principal string)
	// Restore admits a revoked principal again.
	Restore(principal string)
	// Allowed returns nil if the principal may use the server of that name; empty means
	// the aggregate, or the only server. Otherwise the error is ErrUnknownServer, or of the
	// kind ErrDenied or ErrRevoked.
	Allowed(server, principal string) error
	// Join joins the shared connection to a server for a session of another instance, where the
	// guards for clients run. It also returns the server's forwarded headers.
	Join(name string, from bridge.Caller, rest bridge.Client) (Joined, []bridge.Forward, error)
	// CallPool makes the call of another instance's stateless client. A server that is removed or
	// replaced waits for it, unless it is a subscription.
	CallPool(ctx context.Context, name string, r *bridge.Request) (*jsonrpc.Message, error)
	// ReleaseShared closes the idle shared connection of a server's sessions with that key, which
	// share.Hubs makes, once another instance owns it.
	ReleaseShared(name, key string)
	// ReleasePool is ReleaseShared for the pool that serves the server's stateless clients.
	ReleasePool(name, key string)
	// CloseUnused closes the connections of stateless clients that no request uses.
	CloseUnused()
	// Portable reports whether another instance can continue a session. That is impossible if a session
	// ends with its connection (restart: false), unless the connection moves too.
	Portable(r *session.Record) bool
	// Adopt continues a session of another instance; h is its record, taken over from there.
	// The first call opens the connection.
	Adopt(h session.Held) (Session, error)
	// Move ends the session of that key here, because another instance owns it.
	Move(key string)
	// MoveIdle ends the sessions without calls in flight, so that other instances continue
	// them. It returns the number of sessions that were here.
	MoveIdle() (left int)
	// Room returns a principal's share of Options.MaxBytes; the empty name stands for
	// no particular principal.
	Room(principal string) limits.Room
	// OffersModern reports whether the address of that server offers 2026-07-28; an
	// empty name means the aggregate, or the only server. Where it does not, the caller
	// treats a stateless request like one before initialize.
	OffersModern(server string) bool
	// Drain refuses new calls, and waits for the calls in flight or the end of ctx.
	Drain(ctx context.Context) error
	// Draining reports whether Drain or Close was called.
	Draining() bool
	// Activity returns the number of calls in flight, and of all calls so far.
	Activity() (now int, all uint64)
	// Close ends all sessions and connections, and returns when all their goroutines have
	// ended. When ctx ends, Close forces connections to close at once. Two seconds later
	// Close returns, even if an adapter ignores that.
	Close(ctx context.Context)
	// Initialize starts a session for the initialize request m, and returns it with the answer. If the handshake
	// fails, the session ends and the answer is the error.
	Initialize(ctx context.Context, m *jsonrpc.Message, s SessionOptions) (Session, *jsonrpc.Message, error)
	// NewLog returns the event log of a stream to a client of that principal, within
	// Options.MaxBytes. keeps: the client may resume the stream.
	NewLog(principal string, l replay.Limits, keeps bool) *replay.Log
	// Call answers the request m of a stateless client, with the client's id. For a failed
	// call the answer is an error message, and the error the reason. The end of ctx cancels
	// the request; then there is no answer.
	//
	// A subscription lasts until ctx or the bridge ends it; its answer is the closing one
	// (2026-07-28, subscriptions).
	Call(ctx context.Context, m *jsonrpc.Message, stateless Stateless) (*jsonrpc.Message, error)
	// Status returns the state of each server, in the order of Options.
	Status() []Status
	// Sample returns the sample of the server of that name. ok is false for an unknown name.
	Sample(server string) (sample Sample, ok bool)
	// Totals returns the counts of all servers together.
	Totals() Totals
	// Dropped is the counter of notifications that full queues dropped. Adapters add
	// their own.
	Dropped() *atomic.Uint64
	// Sessions returns the state of the sessions whose principal whose accepts.
	Sessions(whose func(principal string) bool) []SessionStatus
	// EndSession ends the principal's session of that SessionStatus.ID. It reports whether
	// there is one.
	EndSession(id, principal string) bool
	// Operated returns the parts of a server that operators control. All are nil for an unknown
	// name; breaker and cache are nil when they are off.
	Operated(server string) (*breaker.Breaker, *cache.Cache, *health.Connections, *drain.Server)
	// Try tries a failing server in the background, unless another attempt runs. It reports false if it cannot: the
	// server gets headers or claims of callers, so only they can try it.
	Try(server string) bool
	// Probe opens and closes a connection to the server of that name on behalf of a principal,
	// even if the circuit is open.
	Probe(ctx context.Context, server, principal string) error
	// Servers returns the names of the servers, in the order of Options.
	Servers() []string
	// StartAhead starts the servers that may start before the first client.
	StartAhead()
	// Forwards returns the client headers that some server forwards.
	Forwards() []string
	// Apply replaces the servers. A server that c does not name gets no new calls. Its sessions end
	// when its calls in flight have ended, or after Drain. Sessions at a changed server keep its former
	// Adapter and settings, unless Renew is set. Other sessions are not affected. Clients of the
	// aggregate get notifications of changed lists.
	//
	// Apply sees the calls in flight only with Options.Watch. A stopping gateway changes nothing and
	// returns ErrShutdown.
	Apply(c Change) error
}

// SessionOptions describe a new session.
type SessionOptions struct {
	// Server is the name of the server; empty means the aggregate, or the only server.
	Server string
	// ID names the session to its client. It must not be guessable.
	ID string
	// Principal owns the session; empty without access rules.
	Principal string
	// Envelope is that of the request; nil on stdio.
	Envelope *Envelope
	// Portable means that another instance may continue the session by Adopt: its client depends on no stream of
	// this instance.
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
	// Principal returns the owner of the session. No other principal may use the session, or detect
	// that it exists.
	Principal() string
	// Revision returns the revision agreed with the client.
	Revision() string
	// Call is Enter and Do.
	Call(m *jsonrpc.Message, e *Envelope, back bridge.Stream) (*jsonrpc.Message, error)
	// Enter registers the client's request m, so that a later cancellation finds it. e is its
	// envelope, or nil. back takes messages of the server before the answer. Then the caller
	// calls either Do or Go, once.
	Enter(m *jsonrpc.Message, e *Envelope, back bridge.Stream) Call
	// Notify handles a notification of the client.
	Notify(m *jsonrpc.Message, e *Envelope)
	// Attach adds a standing stream until detach is called. The stream carries messages that
	// belong to no call. Pending events and questions go to the stream at once.
	Attach(st bridge.Stream) (detach func())
	// Answer delivers the client's answer to a question. An answer to no open question, perhaps
	// a late one, is errNobodyWaits.
	Answer(m *jsonrpc.Message) error
}

// Call is one request of the client, in flight or refused.
type Call interface {
	// Go calls Do in a goroutine of the session, and done with its results. It reports false
	// when the session ended; then Do returns the reason.
	Go(done func(*jsonrpc.Message, error)) bool
	// Do makes the call and returns the answer with the client's id. For a failed call the
	// answer is an error message, and err the reason. There is no answer only if the client
	// cancelled the call.
	Do() (m *jsonrpc.Message, err error)
}

// Joined is the use of a shared connection by another instance's session.
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
