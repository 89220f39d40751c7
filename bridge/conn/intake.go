package conn

import (
	"fmt"
	"math/bits"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Intake reserves memory for the message that one reader of a connection receives, as far as it has
// arrived. So a server that writes much, or never ends a message, cannot use more memory than there
// is. Messages up to 64 KiB need no reservation. An Intake is for one goroutine.
type Intake struct {
	room    bridge.Room // nil means no bound
	n       int         // reserved bytes
	refused bool
}

// Intake returns the Intake of one reader of the connection.
func (c *Conn) Intake() Intake {
	if r, ok := c.rest.(bridge.Roomy); ok {
		return Intake{room: r.Room()}
	}
	return Intake{}
}

// light is the size up to which messages need no reservation: the number of calls in flight bounds
// these.
const light = 64 << 10

// Size reserves memory for a message of which so many bytes have arrived. It reports false if there
// is none: then the message must not be kept. It never waits. 0 returns the reservation.
func (i *Intake) Size(size int) bool {
	switch {
	case size == 0:
		i.back(i.n)
	case size <= i.n, size <= light, i.room == nil:
	default:
		more := 1<<bits.Len(uint(size-1)) - i.n // the buffer doubles too
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

// Give transfers the reservation to the message, and returns the excess.
func (i *Intake) Give(m *jsonrpc.Message) {
	if i.n == 0 {
		return
	}
	i.back(max(0, i.n-m.Len()))
	m.Hold(i.room, i.n)
	i.n = 0
}

// Drop returns the reservation that was not transferred. The next message begins.
func (i *Intake) Drop() {
	i.back(i.n)
	i.refused = false
}

// Why returns why a message was not kept: no memory, or larger than limit.
func (i *Intake) Why(limit int) string {
	if i.refused {
		return "it does not fit into max_bytes_in_flight"
	}
	return fmt.Sprintf("it is larger than the limit of %d bytes", limit)
}

// AnswerNotKept settles the call of that raw id with an error. The answer was discarded, because in had no memory for
// it or it was larger than limit. AnswerNotKept ignores an id of no call.
func (c *Conn) AnswerNotKept(in *Intake, id []byte, limit int) {
	if !in.refused {
		c.Unanswerable(id, fmt.Sprintf("its answer is larger than the limit of %d bytes", limit))
		return
	}
	if n, err := number(id); err == nil {
		c.Abort(n, NoRoom(c.server, "the answer"))
	}
}

// NoRoom returns the error of a call whose answer does not fit into memory. The call was executed,
// so the client should not repeat it.
func NoRoom(server, answer string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrTooLarge,
		Public: answer + " does not fit into max_bytes_in_flight; the call was executed"}
}
