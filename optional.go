package bridge

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

// Attributing is an Upstream that may say with each question of the server's
// which call it is about, as Streamable HTTP does: such a question goes to the
// Client of that call. Calls of different clients share its connection.
type Attributing interface{ Attributes() bool }

// Roomy is a Client that bounds what servers say to it, and all others, in bytes.
type Roomy interface{ Room() Room }

// Room is what messages take bytes from, before they grow. It never waits, and is
// comparable. Its methods may be called concurrently.
type Room interface {
	Reserve(n int) bool // reports false when there is too little
	Return(n int)
}
