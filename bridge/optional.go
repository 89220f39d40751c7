package bridge

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An Adapter, an Upstream or a Client may implement the following interfaces as well. Each value is checked for
// them once.

// AnnouncesChanges is an Adapter that detects changes of its server's lists even without a connection.
type AnnouncesChanges interface {
	// AnnounceChanges calls changed with the method of the notification until stop is called. It does so before
	// any connection sends the notification. changed must not block.
	AnnounceChanges(changed func(method string)) (stop func())
}

// BoundsOpenings is an Adapter that limits concurrent openings itself. It returns the longest wait before an
// opening starts, in addition to the time for the handshake.
type BoundsOpenings interface{ BoundsOpenings() time.Duration }

// StartsAhead is an Adapter that can start its server before the first connection.
type StartsAhead interface {
	// StartAhead starts the server and waits. It returns nil when a connection uses the server, as the next
	// suitable one does. It returns an error if the server ends. When ctx ends, it stops the server, at once if
	// force has ended.
	StartAhead(ctx, force context.Context) error
}

// OffersSearch is an Adapter whose list of tools may be too long for models, who find tools by search then. decided is
// false until the list is known.
type OffersSearch interface {
	OffersSearch() (search, decided bool)
}

// Attributing is an Upstream that may attribute each question to a call, like Streamable HTTP. The Client of
// that call gets the question. Calls of different clients share such a connection.
type Attributing interface{ Attributes() bool }

// TakesEdits is an Upstream that writes requests with Append or reads them with Whole, because their Params lack
// the edits. Other Upstreams get copies whose Params have the edits.
type TakesEdits interface{ TakesEdits() }

// Roomy is a Client that limits the bytes of messages from servers.
type Roomy interface{ Room() Room }

// Tapped is a Client with a tap on the messages of its connection.
type Tapped interface{ Tap() Tap }

// Tap observes the messages of a connection. Its methods may be called concurrently, and must not block.
type Tap interface {
	// On reports whether an observer is active.
	On() bool
	// Passed reports a message to or from the server. id is its id on the wire; nil for a notification. m is
	// valid during the call.
	Passed(toServer bool, id []byte, m *jsonrpc.Message)
}

// Room is a budget of bytes for messages, which take from it before they grow. It never blocks, and is
// comparable. Its methods may be called concurrently.
type Room interface {
	Reserve(n int) bool // reports false if there is too little
	Return(n int)
}

// Handover is a session that another instance may resume, for the code that reaches servers. Its methods may be
// called concurrently, and only Confirm may block.
type Handover interface {
	// Confirm returns nil if a request of the session may be sent, because no other instance has resumed it. It may
	// wait for that knowledge, and is the last check before each request.
	Confirm(ctx context.Context) error
	// SaveResume stores ResumeData, with which another instance can resume the session's connection to a server. nil
	// means that resumption is impossible.
	SaveResume(server string, carry []byte)
	// TakeResume returns, once, the data that another instance stored with SaveResume. New request ids must be above
	// that number.
	TakeResume(server string) (carry []byte, above int64)
	// HandedOver reports whether another instance resumes the session, which has ended here.
	HandedOver() bool
}

// Resumable is an Upstream that another process can resume.
type Resumable interface {
	// ResumeData returns the data for Resume; nil means that resumption is impossible.
	ResumeData() []byte
	// Detach makes Close leave the server's side of the connection to the other process.
	Detach()
}

// Resumer is an Adapter that can resume a connection of another process.
type Resumer interface {
	// Resume is Open without a handshake. carry comes from ResumeData. Request ids are greater than above, because the
	// server may have got lower ones.
	Resume(ctx context.Context, from *Caller, rest Client, carry []byte, above int64) (Upstream, error)
}
