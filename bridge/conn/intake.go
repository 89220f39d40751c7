package conn

import (
	"fmt"
	"math/bits"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Intake reserves memory for the message that one reader of a connection receives, in step with the bytes that arrive.
// So a server that sends large messages, or a message without end, cannot use more memory than there is. Messages up to
// 64 KiB need no reservation. An Intake is for one goroutine.
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

// light is the size up to which messages need no reservation. The limit of calls in flight bounds their memory.
const light = 64 << 10

// Size reserves memory for a message of which size bytes have arrived. If there is none, Size reports false, and the
// caller must discard the message. Size never waits. Size 0 gives the reservation back.
func (i *Intake) Size(size int) bool {
	switch {
	case size == 0:
		i.back(i.n)
	case size <= i.n, size <= light, i.room == nil:
	default:
		more := 1<<bits.Len(uint(size-1)) - i.n // the buffer doubles its size, too
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

// Give transfers the reservation to m, and gives back what m does not need.
func (i *Intake) Give(m *jsonrpc.Message) {
	if i.n == 0 {
		return
	}
	i.back(max(0, i.n-m.Len()))
	m.Hold(i.room, i.n)
	i.n = 0
}

// Drop gives back the reservation, so that the next message can begin.
func (i *Intake) Drop() {
	i.back(i.n)
	i.refused = false
}

// Why returns why a message was discarded: there was no memory, or it was larger than limit.
func (i *Intake) Why(limit int) string {
	if i.refused {
		return "it does not fit into max_bytes_in_flight"
	}
	return fmt.Sprintf("it is larger than the limit of %d bytes", limit)
}

// AnswerNotKept settles the call of that raw id with an error, because its answer was discarded: in had no memory, or
// the answer was larger than limit. It ignores an id of no call.
func (c *Conn) AnswerNotKept(in *Intake, id []byte, limit int) {
	if !in.refused {
		c.Unanswerable(id, fmt.Sprintf("its answer is larger than the limit of %d bytes", limit))
		return
	}
	if n, err := number(id); err == nil {
		c.Abort(n, NoRoom(c.server, "the answer"))
	}
}

// NoRoom returns the error of a call whose answer does not fit into memory. It says that the call was executed, so that
// the client does not repeat the call.
func NoRoom(server, answer string) error {
	return &bridge.Error{Server: server, Kind: bridge.ErrTooLarge,
		Public: answer + " does not fit into max_bytes_in_flight; the call was executed"}
}
