package lane

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Options holds the settings that all lanes to one server share. All fields are required, except fields that explain
// their zero value.
type Options struct {
	Name    string
	Adapter bridge.Adapter
	Log     *slog.Logger
	Tracing *tracing.Tracing // may be nil
	Address bridge.Address   // zero if unknown
	// Sent receives the outcome of each request on a connection. Sent must not block, and may be nil.
	Sent func(report.Report)
	// Closed receives the report of each closed connection to a legacy server. Closed must not block, and may be nil.
	Closed  func(report.Session)
	Forward []bridge.Forward // client headers that the server gets
	// Shared means that different principals share a lane.
	Shared bool
	// Ahead means that the server may start before its first connection, because nothing of a client affects the
	// start.
	Ahead     bool
	Idle      time.Duration // after which an unused connection is closed; 0 means never
	Handshake time.Duration // time limit for opening a connection
	Settings  *atomic.Pointer[Settings]
	Budget    *Budget
	Health    Health
	Bytes     Bytes
	Dropped   *atomic.Uint64 // counts dropped notifications
	Calls     *calls.Calls   // shows messages to observers; nil if there are never any
}

// Bytes bounds the memory of messages.
type Bytes interface {
	// Incoming returns the limit for messages to a principal. The empty name stands for messages to several
	// principals.
	Incoming(principal string) bridge.Room
}

// Settings holds the settings of lanes that may change while connections are open.
type Settings struct {
	// EndWithServer makes the loss of a connection end its clients' sessions.
	EndWithServer bool
	// Ping is how long a connection may be silent before the lane pings it; 0 means forever. If Ping changes from 0,
	// pings of an open connection start after its next call.
	Ping     time.Duration
	Restarts int           // the most often that a lane opens its connection again within a minute
	MaxPause time.Duration // the longest pause between attempts to open a connection
}

// Set replaces the settings.
func (o *Options) Set(s Settings) { o.Settings.Store(&s) }

// Health receives the events of a server's connections.
type Health interface {
	// CallDone reports a call's outcome. headers means that the call forwarded client headers, which may hold
	// credentials.
	CallDone(err error, headers bool)
	// Failed reports that a connection could not be opened, or was lost at once.
	Failed(err error)
	// NoRoom reports that the bridge itself had no room for a connection.
	NoRoom(err error)
	// Lost reports that a connection ended by itself.
	Lost(err error)
	// Greeted reports the greeting of a handshake on behalf of a principal.
	Greeted(principal string, g *bridge.Greeting)
	// Opened reports a usable connection. Restarted reports an attempt after a failure or a loss.
	Opened()
	Restarted()
}

// Ends holds the lane's partners other than the adapter.
type Ends struct {
	// Client gets the notifications and questions that belong to no call. Its Gone is called when the lane opens no
	// other connection, or when the server came back as another server.
	Client   bridge.Client
	Observer Observer
	Gate     Gate // nil lets everything pass
	// GivenUp is called when a connection that is needed without calls could not be opened again for 5 minutes, and
	// after each further failed attempt. GivenUp may be nil.
	GivenUp func()
	// Handover is the session that owns the connection, if another instance may resume both; nil otherwise.
	Handover bridge.Handover
	// Level holds the params of the first logging/setLevel; nil for none.
	Level []byte
}

// Observer receives the events of a lane's connections in order, before the lane's Client does. It must not
// block or call the lane.
type Observer interface {
	// Reopened reports an open connection that is not the first one. lost means that the connection before ended by
	// itself, and not because it was idle.
	Reopened(lost bool)
	// Replaced reports that the server came back as another server: see bridge.ErrReplaced.
	Replaced()
	// Notified reports a notification that belongs to no call.
	Notified(m *jsonrpc.Message)
	// Ended reports that the lane opens no more connections.
	Ended()
}

// Gate decides whether connections may be opened, and follows their state.
type Gate interface {
	// Pass returns nil if a connection may be opened, and otherwise the reason. Pass may wait for the decision.
	Pass(ctx context.Context, from *bridge.Caller) error
	// Opening is Pass without waiting, just before a connection is opened. ctx ends when the connection is not needed
	// any more. opened takes the outcome and returns the Upstream for calls. Pings and restored settings bypass that
	// Upstream.
	Opening(ctx context.Context, from *bridge.Caller) (opened func(c Conn, up bridge.Upstream, err error) bridge.Upstream, err error)
	// Left returns how long the gate stays shut; 0 if it is open.
	Left() time.Duration
}

// Conn has the methods of an open connection that a Gate uses, apart from calls.
type Conn interface {
	// Idle reports whether the lane still uses the connection, and whether no call is in flight.
	Idle() (open, idle bool)
	// Load returns the number of calls in flight.
	Load() int
	// Ping pings the server with a time limit. An answer that is an error counts as a sign of life.
	Ping(ctx context.Context, within time.Duration) error
	// Asked returns the number of questions that name no call.
	Asked() int64
	// Gone reports that the connection is unusable.
	Gone(err error)
	// GoneIdle is Gone, but only if no call is in flight. No call can begin in between. GoneIdle reports whether it
	// has ended the connection.
	GoneIdle(err error) bool
}

// ungated is a Gate that is always open.
type ungated struct{}

func (ungated) Pass(context.Context, *bridge.Caller) error { return nil }
func (ungated) Left() time.Duration                        { return 0 }
func (ungated) Opening(context.Context, *bridge.Caller) (func(Conn, bridge.Upstream, error) bridge.Upstream, error) {
	return func(_ Conn, up bridge.Upstream, _ error) bridge.Upstream { return up }, nil
}

// State is the state of a lane's connection.
type State int

// These are the states of a lane.
const (
	Idle State = iota // no connection: none was needed yet, or the last one was idle
	Open
	Lost  // no connection: the last one ended by itself or could not be opened
	Ended // the lane was closed
)

// errNoRoom means that the bridge itself has no room for another connection.
var errNoRoom = fmt.Errorf("%w: %w", bridge.ErrUnavailable, bridge.ErrOverloaded)
