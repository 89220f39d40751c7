package gateway

import (
	"fmt"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// budget bounds what messages hold together, in bytes: the bodies of requests as
// far as they have come, large answers, and what waits on event streams or is kept
// for clients that come back to them. What is kept goes first when there is no room.
type budget struct {
	most     int64
	used     atomic.Int64
	portions *portions // what each principal may have of it
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
	r.b.portions.leave(r.principal, int64(n))
}

// take takes n bytes if no more than most are in use then, and the principal has no
// more than its part. What is kept makes room: for a principal that has its part,
// only what is kept for its own clients.
func (r Room) take(n int, most int64) bool {
	for int64(n) <= most {
		if !r.b.portions.enter(r.principal, int64(n)) {
			if !r.b.history.DropOf(outgoing{r}) {
				return false
			}
			continue
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
	o.b.portions.force(o.principal, int64(n))
}

// Reserve takes room for a body of n bytes that is no principal's. It is as
// Room.Reserve.
func (b *Gateway) Reserve(n int) bool { return b.Room("").Reserve(n) }

// Return gives back what Reserve took.
func (b *Gateway) Return(n int) { b.Room("").Return(n) }

// lightAnswer is the size up to which answers are not counted: of these, the
// calls under way are the bound.
const lightAnswer = 64 << 10

// weigh counts an answer among the bytes under way until it is released. One that
// has no room is released and refused: what was called for has been done, so the
// client is not asked to do it again.
func (b *Gateway) weigh(server string, from *bridge.Caller, a *jsonrpc.Message) error {
	n := a.Len()
	if n <= lightAnswer {
		return nil
	}
	room := outgoing{b.Room("")}
	if from != nil {
		room.principal = from.Principal
	}
	if !room.Reserve(n) {
		b.bytes.refused.Add(1)
		a.Release()
		return &bridge.Error{Server: server, Kind: bridge.ErrTooLarge,
			Public: fmt.Sprintf("the answer of %d bytes has no room beside what is under way (max_bytes_in_flight); what was called has been done", n)}
	}
	a.OnRelease(func() { room.Return(n) })
	return nil
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
