package lane

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Options are what all lanes to one server have in common. All are needed but for
// those that say what their zero value means.
type Options struct {
	Name    string
	Adapter bridge.Adapter
	Log     *slog.Logger
	Tracing *tracing.Tracing // may be nil
	Forward []bridge.Forward // headers of clients that the server gets
	// Shared says that lanes are shared by different principals.
	Shared bool
	// Ahead says that the server may be started before the first connection is opened:
	// nothing of a client's decides how.
	Ahead     bool
	Idle      time.Duration // after which a connection is closed that nobody uses; 0 means never
	Handshake time.Duration // how long opening a connection may take
	Settings  *atomic.Pointer[Settings]
	Budget    *Budget
	Health    Health
	// Room bounds what the server says for that principal, in bytes; the empty name is
	// nobody's in particular.
	Room    func(principal string) bridge.Room
	Dropped *atomic.Uint64 // counts notifications that were dropped
	// Tap returns what is told of the messages of a connection that is opened on behalf of
	// that principal; nil if nobody ever looks.
	Tap func(principal string) bridge.Tap
}

// Settings are those of lanes that others may take the place of while connections are open.
type Settings struct {
	// EndWithServer has the loss of a connection end all that its clients do.
	EndWithServer bool
	// Ping is how long a connection may be silent before it is asked for a sign of life; 0
	// means for ever. One that is open when that begins is asked after its next call.
	Ping     time.Duration
	Restarts int           // how often a connection is opened again within a minute
	MaxPause time.Duration // between attempts to open a connection
}

// Set has other settings count from now on.
func (o *Options) Set(s Settings) { o.Settings.Store(&s) }

// Health is told the state of a server.
type Health interface {
	// Fared is told how each call went. headers says that the client has sent headers
	// that are forwarded, and with them perhaps who it is.
	Fared(err error, headers bool)
	// Failed says that a connection could not be opened, or was lost at once.
	Failed(err error)
	// Lacked says that the bridge itself had no room for a connection.
	Lacked(err error)
	// Lost says that a connection has ended by itself.
	Lost(err error)
	// Learned is told what a handshake on behalf of a principal said.
	Learned(principal string, s *bridge.Greeting)
	// Opened says that a connection was opened that can be used, and Restarted that
	// one is about to be opened after another one has failed or was lost.
	Opened()
	Restarted()
}

// Ends are those between whom one lane stands, but for the adapter.
type Ends struct {
	// Client gets what the server says and asks by itself, from the connection that
	// is open. Gone tells it that there will be no other one, or none that is like
	// the one before.
	Client   bridge.Client
	Observer Observer
	Gate     Gate // nil lets everything pass
	// GivenUp is called when a connection that is kept could not be opened again for
	// some minutes, and each time after that. nil means that nobody wants to know.
	GivenUp func()
	// Stay is the session that has the connection to itself, if another instance of the
	// bridge may go on with both; nil otherwise.
	Stay bridge.Stay
	// Level is what the server is told in logging/setLevel at first, as params; nil
	// for nothing.
	Level []byte
}

// Observer is told what happens to a lane's connections, in that order, and before
// the lane's Client hears of it. It must not block, nor call the lane.
type Observer interface {
	// Opened says that a connection is open. The one before may not be closed yet.
	Opened()
	// Closed says that a connection is closed.
	Closed()
	// Reopened says that the connection is not the first one. lost says that the
	// one before had ended by itself, and was not closed for want of use.
	Reopened(lost bool)
	// Replaced says that the server came back as another: see bridge.ErrReplaced.
	Replaced()
	// Deaf says that the connection does not hear for now what the server says by
	// itself.
	Deaf()
	// Heard is told what the server says by itself.
	Heard(n *jsonrpc.Message)
	// Ended says that the lane opens no connection any more.
	Ended()
}

// Gate is asked whether connections may be opened, and knows their state.
type Gate interface {
	// Pass returns the error that no connection must be opened, if that is so. It may
	// wait until that is known.
	Pass(ctx context.Context, from *bridge.Caller) error
	// Opening is Pass without waiting, just before a connection is opened; ctx ends
	// when nobody wants it any more. opened is told what came of it, and returns what
	// calls go through. Pings, and what a fresh connection is told again, do not.
	Opening(ctx context.Context, from *bridge.Caller) (opened func(c Conn, up bridge.Upstream, err error) bridge.Upstream, err error)
	// Left returns for how much longer there is no use in asking.
	Left() time.Duration
}

// Conn is an open connection as a Gate may use it beside its calls.
type Conn interface {
	// Idle reports whether the connection is the lane's still, and whether no call is
	// under way.
	Idle() (open, idle bool)
	// Load returns how many calls are under way.
	Load() int
	// Ping asks the server for a sign of life, which it has to give within that time.
	// An error that is an answer is one, too.
	Ping(ctx context.Context, within time.Duration) error
	// Asked returns how many questions the server has asked that name no call.
	Asked() int64
	// Gone says that the connection is of no use any more.
	Gone(err error)
	// GoneIdle is Gone if no call is under way, and none can begin in between. It reports
	// whether that is so.
	GoneIdle(err error) bool
}

// ungated is a Gate that is always open.
type ungated struct{}

func (ungated) Pass(context.Context, *bridge.Caller) error { return nil }
func (ungated) Left() time.Duration                        { return 0 }
func (ungated) Opening(context.Context, *bridge.Caller) (func(Conn, bridge.Upstream, error) bridge.Upstream, error) {
	return func(_ Conn, up bridge.Upstream, _ error) bridge.Upstream { return up }, nil
}

// State says whether a lane's connection is open, and why not.
type State int

// The states of a lane.
const (
	Asleep State = iota // there is no connection: nobody has needed one, or not for long
	Open
	Deaf  // it is open, and does not hear for now what the server says by itself
	Lost  // it has ended by itself, or could not be opened, and no other one is open
	Ended // the lane was closed
)

// errNoRoom: the bridge itself has no room for another connection.
var errNoRoom = fmt.Errorf("%w: %w", bridge.ErrUnavailable, bridge.ErrOverloaded)
