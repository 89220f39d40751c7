package conn

import (
	"fmt"
	"math/bits"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Intake is the room of the message that one reader of a connection has in hand, as
// far as it has come: a server that writes much, or does not end what it has begun,
// takes no more memory than there is. Messages up to 64 KiB take none. It is for one
// goroutine.
type Intake struct {
	room    bridge.Room // nil means that there is always enough
	n       int         // bytes that are taken
	refused bool
}

// Intake returns what one reader of the connection takes the room of its messages
// with.
func (c *Conn) Intake() Intake {
	if r, ok := c.rest.(bridge.Roomy); ok {
		return Intake{room: r.Room()}
	}
	return Intake{}
}

// light is the size up to which messages take no room: of these, the calls under
// way are the bound.
const light = 64 << 10

// Size takes room for a message of which so many bytes have come. It reports false
// when there is none: the message is not to be kept. It never waits. 0 gives back
// what was taken.
func (i *Intake) Size(size int) bool {
	switch {
	case size == 0:
		i.back(i.n)
	case size <= i.n, size <= light, i.room == nil:
	default:
		more := 1<<bits.Len(uint(size-1)) - i.n // the memory doubles as it comes, too
		if !i.room.Reserve(more) {
			i.refused = true
			return false
		}
		i.n += more
	}
	return true
}

func (i *Intake) back(n int) {
	if n > 0 {
		i.room.Return(n)
		i.n -= n
	}
}

// Give has the message hold what was taken for it, and gives back what that is more
// than it needs.
func (i *Intake) Give(m *jsonrpc.Message) {
	if i.n == 0 {
		return
	}
	i.back(max(0, i.n-m.Len()))
	m.Hold(i.room, i.n)
	i.n = 0
}

// Drop gives back what was taken and not given on. The next message begins.
func (i *Intake) Drop() {
	i.back(i.n)
	i.refused = false
}

// Why says why a message was not kept, which was for want of room unless it was
// larger than limit.
func (i *Intake) Why(limit int) string {
	if i.refused {
		return "it has no room beside what is under way (max_bytes_in_flight)"
	}
	return fmt.Sprintf("it is larger than the limit of %d bytes", limit)
}

// Unkept settles the call of that raw id with an error: its answer was read away,
// since in had no room for it or it was larger than limit. An id of no call is
// ignored.
func (c *Conn) Unkept(in *Intake, id []byte, limit int) {
	if !in.refused {
		c.Unanswerable(id, fmt.Sprintf("its answer is larger than the limit of %d bytes", limit))
		return
	}
	if n, err := number(id); err == nil {
		c.Abort(n, NoRoom(c.server, "the answer"))
	}
}

// NoRoom is the error of a call whose answer has no room. What was called for has
// been done, so the client is not asked to do it again.
func NoRoom(server, answer string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrTooLarge,
		Public: answer + " has no room beside what is under way (max_bytes_in_flight); what was called has been done"}
}
