package bridge

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An Adapter, an Upstream or a Client may also implement the interfaces below. The bridge checks each value for them
// once, when it gets the value.

// AnnouncesChanges is an Adapter that notices changes of its server's lists without a connection.
type AnnouncesChanges interface {
	// AnnounceChanges calls changed with the method of the notification for each change, until stop is called. It does
	// so before any connection sends the notification. changed must not block.
	AnnounceChanges(changed func(method string)) (stop func())
}

// BoundsOpenings is an Adapter that limits how many connections open at once. The method returns how long an opening
// may wait for that, in addition to the time for the handshake.
type BoundsOpenings interface{ BoundsOpenings() time.Duration }

// StartsAhead is an Adapter that can start its server before the first connection.
type StartsAhead interface {
	// StartAhead starts the server, and waits. It returns nil when a connection uses the server, as the next connection
	// that can does. It returns an error if the server ends. When ctx ends, StartAhead stops the server; if force has
	// ended, it kills the server.
	StartAhead(ctx, force context.Context) error
}

// OffersSearch is an Adapter whose list of tools may be too long for models. If search is true, models find the tools
// by search. Until the list is known, decided is false.
type OffersSearch interface {
	OffersSearch() (search, decided bool)
}

// Attributing is an Upstream that may know which call a question of the server is about, as Streamable HTTP does. It
// passes the question to the Client of that call, so calls of different clients may share the connection.
type Attributing interface{ Attributes() bool }

// TakesEdits is an Upstream that writes requests with Append or reads them with Whole, so that it sees edits of their
// Params. Other Upstreams get a copy of an edited request.
type TakesEdits interface{ TakesEdits() }

// Roomy is a Client that bounds the memory for messages of servers.
type Roomy interface{ Room() Room }

// Tapped is a Client with a tap on the messages of its connection.
type Tapped interface{ Tap() Tap }

// Tap observes the messages of a connection. Its methods may be called concurrently, and must not block.
type Tap interface {
	// On reports whether anybody observes the messages. If not, Passed need not be called.
	On() bool
	// Passed reports a message to or from the server. id is the id on the connection; nil for a notification. m is
	// valid until Passed returns.
	Passed(toServer bool, id []byte, m *jsonrpc.Message)
}

// Room is a budget of bytes for messages, which reserve bytes before they grow. Its values are comparable. Its methods
// never block, and may be called concurrently.
type Room interface {
	Reserve(n int) bool // reports false if too few bytes are left
	Return(n int)
}

// Handover is a session that another instance may resume, as the code that reaches servers sees it. Its methods may be
// called concurrently, and only Confirm may block.
type Handover interface {
	// Confirm returns nil if this instance still owns the session, so that a request may be sent. It may wait until
	// that is known. It is called last before each request.
	Confirm(ctx context.Context) error
	// SaveResume stores the ResumeData of the session's connection to a server, with which another instance can resume
	// the connection. A nil carry means that no instance can.
	SaveResume(server string, carry []byte)
	// TakeResume returns the data that another instance stored with SaveResume, and removes it. New request ids must be
	// larger than above.
	TakeResume(server string) (carry []byte, above int64)
	// HandedOver reports whether another instance may resume the session, which has ended here.
	HandedOver() bool
}

// Resumable is an Upstream whose connection another process can resume.
type Resumable interface {
	// ResumeData returns the carry of Resumer.Resume, or nil if no process can resume the connection.
	ResumeData() []byte
	// Detach makes Close keep the server's side of the connection open, for the process that resumes it.
	Detach()
}

// Resumer is an Adapter that can resume a connection of another process.
type Resumer interface {
	// Resume is Open without a handshake. carry is the ResumeData of the connection. Request ids must be larger than
	// above, because the server may have got lower ones.
	Resume(ctx context.Context, from *Caller, rest Client, carry []byte, above int64) (Upstream, error)
}
