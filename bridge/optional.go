package bridge

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What follows are interfaces that an Adapter, an Upstream or a Client may have
// besides. They are asked for once, of what an adapter returned or was given.

// AnnouncesChanges is an Adapter that knows by itself when what its server lists
// has changed, also while nobody is connected.
type AnnouncesChanges interface {
	// AnnounceChanges has changed called before any connection says the same, with
	// the method of the notification, until stop is called. changed does not block.
	AnnounceChanges(changed func(method string)) (stop func())
}

// ListensToChanges is an Upstream that may be open and yet not hear what the server
// says by itself, such as changes of its lists: it reports false then.
type ListensToChanges interface{ ListensToChanges() bool }

// MissesChanges is a Client that wants to know when an open connection ceases to
// hear what the server says by itself. A ListensToChanges calls it then, after it
// has begun to report false.
type MissesChanges interface{ MissesChanges() }

// BoundsOpenings is an Adapter that bounds by itself how many connections are being opened
// at once. It returns how long an opening may wait for that before it begins: the time for
// the handshake comes on top.
type BoundsOpenings interface{ BoundsOpenings() time.Duration }

// StartsAhead is an Adapter that can start its server before anybody connects.
type StartsAhead interface {
	// StartAhead starts the server and waits. It returns nil when a connection uses it, as
	// the next one does that can, and an error when the server has ended by itself. When
	// ctx ends first, it ends the server, at once if force has ended.
	StartAhead(ctx, force context.Context) error
}

// Attributing is an Upstream that may say with each question of the server's
// which call it is about, as Streamable HTTP does: such a question goes to the
// Client of that call. Calls of different clients share its connection.
type Attributing interface{ Attributes() bool }

// TakesEdits is an Upstream that writes requests by their Append, or reads them by their
// Whole: their Params goes on showing what a client sent. Any other one gets copies whose
// Params, and all that is read of it, is what the server is to get.
type TakesEdits interface{ TakesEdits() }

// Roomy is a Client that bounds what servers say to it, and all others, in bytes.
type Roomy interface{ Room() Room }

// Tapped is a Client whose connection tells of each message on its wire, while somebody
// looks.
type Tapped interface{ Tap() Tap }

// Tap is told of the messages of a connection. Its methods may be called concurrently, and
// do not block.
type Tap interface {
	// On reports whether somebody looks.
	On() bool
	// Passed tells of a message to or from the server. id is the one that it has on the
	// wire; nil for a notification. m is valid during the call.
	Passed(toServer bool, id []byte, m *jsonrpc.Message)
}

// Room is what messages take bytes from, before they grow. It never waits, and is
// comparable. Its methods may be called concurrently.
type Room interface {
	Reserve(n int) bool // reports false when there is too little
	Return(n int)
}

// Stay is a session that may go on at another instance of the bridge, as those see it who
// reach servers for it. Its methods may be called concurrently; but for Sure they do not
// block.
type Stay interface {
	// Sure returns nil when a request of the session may be sent: no other instance has
	// the session by now. It may wait until that is known, and is asked last before each.
	Sure(ctx context.Context) error
	// Carried takes what another instance needs to go on with the session's connection to
	// a server, as Portable has it. nil means that there is none to go on with.
	Carried(server string, carry []byte)
	// Carry returns what another instance has noted by Carried, once, and above which
	// number requests are to begin.
	Carry(server string) (carry []byte, above int64)
	// Moves reports whether another instance goes on with the session, which has ended
	// here.
	Moves() bool
}

// Portable is an Upstream with which another process can go on.
type Portable interface {
	// Carry returns what that needs; nil means that it cannot.
	Carry() []byte
	// Leave has Close leave to the other one what the server has of the connection.
	Leave()
}

// Resumer is an Adapter that can go on with a connection of another process.
type Resumer interface {
	// Resume is Open without a handshake. carry is what Portable has returned. The ids of
	// requests are above that number: the server may know lower ones.
	Resume(ctx context.Context, from *Caller, rest Client, carry []byte, above int64) (Upstream, error)
}
