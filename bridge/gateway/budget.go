package gateway

import (
	"fmt"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// budget bounds what messages hold together, in bytes: the bodies of requests as
// far as they have come, large answers, and what waits on event streams or is kept
// for clients that come back to them. What is kept goes first when there is no room.
type budget struct {
	most     int64
	used     atomic.Int64
	portions *limits.Shares // what each principal may have of it
	history  replay.History
	refused  atomic.Uint64 // requests and answers
}

// forRequests is the part of the budget that only requests get, as its divisor:
// clients that do not read their answers must not keep everybody from asking.
const forRequests = 8

// Room is the part of the bytes under way that one principal may use
// (Options.MaxBytes). Its methods may be called concurrently.
type Room struct {
	b         *budget
	principal string
}

// Room returns the room of a principal; the empty name is nobody's in particular.
func (b *Gateway) Room(principal string) Room { return Room{&b.bytes, principal} }

// Reserve takes n bytes for a request. It reports false when too much is under way
// already, of this principal or of all: the message must be refused. Every
// successful Reserve needs a Return.
func (r Room) Reserve(n int) bool {
	if r.take(n, r.b.most) {
		return true
	}
	r.b.refused.Add(1)
	return false
}

// Return gives back what was taken.
func (r Room) Return(n int) {
	r.b.used.Add(int64(-n))
	r.disown(n)
}

// adopt has n bytes be the principal's, if it has no more than its part then. What
// is kept for its own clients makes room.
func (r Room) adopt(n int) bool {
	for !r.b.portions.Enter(r.principal, int64(n)) {
		if !r.b.history.DropOf(outgoing{r}) {
			return false
		}
	}
	return true
}

// disown has n bytes be the principal's no more, which stay in use.
func (r Room) disown(n int) { r.b.portions.Leave(r.principal, int64(n)) }

// take takes n bytes if no more than most are in use then, and the principal has no
// more than its part. What is kept makes room.
func (r Room) take(n int, most int64) bool {
	for int64(n) <= most {
		if !r.adopt(n) {
			return false
		}
		if r.b.used.Add(int64(n)) <= most {
			return true
		}
		r.Return(n)
		if !r.b.history.Drop() {
			return false
		}
	}
	return false
}

// outgoing is a principal's room for what goes to its clients.
type outgoing struct{ Room }

var _ replay.Room = outgoing{}

// Reserve implements replay.Room.
func (o outgoing) Reserve(n int) bool { return o.take(n, o.b.most-o.b.most/forRequests) }

// Force implements replay.Room.
func (o outgoing) Force(n int) {
	o.b.used.Add(int64(n))
	o.b.portions.Force(o.principal, int64(n))
}

// incoming is a principal's room for what servers say to it.
type incoming struct{ Room }

var _ bridge.Room = incoming{}

// Reserve implements bridge.Room.
func (i incoming) Reserve(n int) bool {
	if (outgoing(i)).Reserve(n) {
		return true
	}
	i.b.refused.Add(1)
	return false
}

// Room implements bridge.Roomy: what a server says on the lane takes room of the
// principal that it is for, if that is one alone.
func (w *wire) Room() bridge.Room {
	principal := w.l.caller.Principal
	if w.l.route.share == ShareAll {
		principal = ""
	}
	return incoming{w.l.route.b.Room(principal)}
}

// Reserve takes room for a body of n bytes that is no principal's. It is as
// Room.Reserve.
func (b *Gateway) Reserve(n int) bool { return b.Room("").Reserve(n) }

// Return gives back what Reserve took.
func (b *Gateway) Return(n int) { b.Room("").Return(n) }

// lightAnswer is the size up to which answers are not counted: of these, the
// calls under way are the bound.
const lightAnswer = 64 << 10

// weigh counts an answer among the bytes under way until it is released. What its
// reader has taken for it becomes the caller's. An answer that has no room is
// released and refused: what was called for has been done, so the client is not
// asked to do it again.
func (b *Gateway) weigh(server string, from *bridge.Caller, a *jsonrpc.Message) error {
	n := a.Len()
	was, held := a.Held()
	if n <= lightAnswer && held == 0 {
		return nil
	}
	room := incoming{b.Room("")}
	if from != nil {
		room.principal = from.Principal
	}
	switch before, _ := was.(incoming); {
	case held > 0 && before == room:
		return nil
	case held > 0 && room.adopt(held):
		before.disown(held)
		a.Hold(room, held)
		return nil
	case held == 0 && room.Reserve(n):
		a.Hold(room, n)
		return nil
	}
	a.Release()
	return conn.NoRoom(server, fmt.Sprintf("the answer of %d bytes", n))
}

// NewLog makes the log of a stream to a client of that principal, within what all
// of them may hold. keeps says that the client may come back for what was written
// to it.
func (b *Gateway) NewLog(principal string, l replay.Limits, keeps bool) *replay.Log {
	l.Dropped, l.Room = &b.dropped, outgoing{b.Room(principal)}
	if keeps {
		l.History = &b.bytes.history
	}
	return replay.New(l)
}

// AnswerEvent makes an event of an answer, and releases it: its room is the
// event's now.
func AnswerEvent(a *jsonrpc.Message) replay.Event {
	e := replay.Event{Data: a.Append(make([]byte, 0, a.Len()), a.ID, nil), Must: true, Force: true}
	e.Free = a.TakeRelease()
	a.Release()
	return e
}
