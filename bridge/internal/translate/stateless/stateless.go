// Package stateless serves stateless clients of 2026-07-28. It chooses the connection and the translator for
// each request. Package lower translates for legacy servers. Requests to modern servers pass unchanged, except
// handles that belong to one client (protocol.md D1.2, D4).
//
// Requests share connections if the server cannot confuse their clients: see Pool. Options bounds the connections. At
// the bound, the least recently used connection is closed, or a call waits in a queue for a while. Subscriptions at a
// modern server survive the loss of a connection.
//
// The package opens no connection itself, but asks for a Line. It imports package lower, whose translators it
// holds, and no other wrapper.
package stateless

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Sharing says which requests use the same connection.
type Sharing int

// These are the ways to share connections.
const (
	Apart     Sharing = iota // clients with the same capabilities share; a call with possible questions has a connection of its own
	Principal                // clients with the same capabilities share
	Everybody                // all requests share one connection
	EachCall                 // each request has its own, at a legacy server
)

// Options holds the parts of the bridge that a Pool needs.
type Options struct {
	// Legacy configures package lower, and holds the server's name and log. New sets Lasting, Alone, Forward
	// and Queue.
	Legacy  lower.Options
	Sharing Sharing
	Idle    time.Duration // until an unused connection closes; 0 means 10 minutes, negative means never
	Forward []bridge.Forward
	Server  Server
	Queue   Queue
	Shares  Shares
	Budget  Budget
	Force   context.Context // ends when the time to close connections is over
	// Places finds the instance of a connection, if the server is Owned; nil means this instance. Process means that
	// each connection has a process, so that connections to a modern server have an owner, too.
	Places  bridge.Places
	Owned   bool
	Process bool
}

// Server gives a Pool access to its server.
type Server interface {
	// Line returns a connection on behalf of from. The connection opens on demand, and its Client is to.
	Line(from *bridge.Caller, to bridge.Client) Line
	// Misheaded returns the error of a request that contradicts itself, or nil.
	Misheaded(r *bridge.Request) *jsonrpc.Message
	// Heard passes a notification to the cache: one on a call's stream, or one of the bridge about changes that may
	// have been missed.
	Heard(m *jsonrpc.Message)
}

// Budget bounds the connections to the server.
type Budget interface {
	Most() int64
	// Closing counts a connection that closes in the background, until closed is called.
	Closing() (closed func())
}

// Queue configures the wait for exclusive connections, and makes the errors of calls that get none.
type Queue interface {
	Wait() time.Duration
	Length() int
	lower.Queue
	TimedOut(format string, args ...any) error
}

// Shares bounds the connections of one principal.
type Shares interface {
	Most() int64 // 0 means no limit
	Refusal(server string) error
}

// Line is a connection with its guards.
type Line interface {
	lower.Line
	// Known returns the greeting of the connection, which it opens if necessary. attributes reports whether its
	// wire attributes questions to calls.
	Known(ctx context.Context) (g *bridge.Greeting, attributes bool, err error)
	// Holds reports whether a cached answer to r may be served, given the greeting g. If Known failed, why is its
	// error, in whose place the answer would be served; otherwise nil. If Holds reports true, the connection presumes
	// g until its own handshake.
	Holds(r *bridge.Request, g *bridge.Greeting, why error) bool
}
