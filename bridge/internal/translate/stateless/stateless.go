// Package stateless serves clients of 2026-07-28, which have no sessions: it says
// which connection to the server each of their requests takes, and who translates
// for it. A legacy server is talked to by package lower. To a modern one requests
// go as they are, but for handles that one client must not give to another
// (protocol.md D1.2, D4).
//
// Requests share connections as far as the server cannot mix up their clients: see
// Pool. There are never more of them than Options say; the one that was not used
// for longest makes room, and a call waits in line for a while. What a modern
// server promises to tell lasts beyond the loss of a connection.
//
// The package opens no connection itself: it asks for a Line. It imports package
// lower, whose translators it holds, and no other wrapper.
package stateless

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Sharing says which requests use the same connections.
type Sharing int

// The ways of sharing.
const (
	Apart     Sharing = iota // those of clients that can do the same; a call about which one may be asked has one to itself
	Principal                // those of clients that can do the same
	Everybody                // all: there is one
	EachCall                 // none, where the server is a legacy one
)

// Options is what a Pool needs of the bridge.
type Options struct {
	// Legacy is what is needed where the server is a legacy one, and its name and log.
	// Who a client is, how connections are shared and the refusal, New puts there.
	Legacy  lower.Options
	Sharing Sharing
	Idle    time.Duration // how long a connection is kept that nobody uses; 0 means 10 minutes, a negative one for ever
	Lanes   func() int    // how many connections there may be
	Forward []bridge.Forward
	Queue   Queue
	Shares  Shares
	// Places says at which of several instances connections live, if the server is Homed;
	// nil means here. Process says that each has a process, so that also those to a modern
	// server are alike nowhere else.
	Places  bridge.Places
	Homed   bool
	Process bool
	// Open returns a connection on behalf of a caller, whose Client is to. It is
	// opened when it is needed.
	Open func(from *bridge.Caller, to bridge.Client) Line
	// Refuse answers a request that contradicts itself, or returns nil.
	Refuse func(*bridge.Request) *jsonrpc.Message
	// Heard is told what a modern server says on the stream of a call, and what may
	// have changed without word.
	Heard func(*jsonrpc.Message)
	// Leaving counts a connection that is closed in the background, until left is
	// called. The end of ctx is the end of all patience.
	Leaving func() (ctx context.Context, left func())
}

// Queue says how long calls wait for a connection of their own, and refuses those
// that do not get one.
type Queue interface {
	Wait() time.Duration
	Length() int
	Refusal(format string, args ...any) error
	Lapsed(format string, args ...any) error
}

// Shares says how many of the connections one principal may have.
type Shares interface {
	Most() int64 // 0 means that there is no bound
	Refusal(server string) error
}

// Line is a connection with its guards, as the Pool uses it.
type Line interface {
	lower.Line
	// Known returns what the handshake of the connection said, which is opened if
	// there is none, and whether its wire says which call a question is about.
	Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error)
	// Holds reports whether the answer to a server that has said so is kept, and may
	// be given: also in place of why, the error of Known. Then it is known to the
	// connection what the server has said, until it says it itself.
	Holds(r *bridge.Request, s *bridge.Greeting, why error) bool
}
