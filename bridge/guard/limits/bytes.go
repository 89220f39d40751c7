package limits

import (
	"fmt"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// Bytes bounds the memory that messages hold together. These are the received parts of requests,
// large answers, and events that wait or are stored for clients. Stored events go first when there
// is no room.
type Bytes struct {
	most    int64
	used    atomic.Int64
	shares  *Shares // the part of the bytes for each principal
	history replay.History
	refused atomic.Uint64
}

// forRequests is the divisor for the part of the bytes that only requests get. Clients that do not
// read their answers must not keep others from asking.
const forRequests = 8

// NewBytes returns a bound of most bytes, which principals share.
func NewBytes(most int64, principals int) *Bytes {
	return &Bytes{most: most, shares: NewShares(most, principals)}
}

// Set changes the number of principals.
func (b *Bytes) Set(principals int) { b.shares.Set(principals) }

// Used returns how many bytes are held, and Most how many may be. Refused returns how many requests
// and answers found no room.
func (b *Bytes) Used() int64     { return b.used.Load() }
func (b *Bytes) Most() int64     { return b.most }
func (b *Bytes) Refused() uint64 { return b.refused.Load() }

// History returns the bound of events that are stored for clients that come back.
func (b *Bytes) History() *replay.History { return &b.history }

// Room returns the room of a principal. The empty name stands for no principal.
func (b *Bytes) Room(principal string) Room { return Room{b, principal} }

// Incoming returns the room of a principal for messages of servers.
func (b *Bytes) Incoming(principal string) bridge.Room { return b.Room(principal).Incoming() }

// Room is the part of the bytes that one principal may use. Its methods may be called concurrently.
type Room struct {
	b         *Bytes
	principal string
}

// Reserve takes n bytes for a request. It reports false if too many bytes are held, by this
// principal or by all: the request must be refused. Every successful Reserve needs a Return.
func (r Room) Reserve(n int) bool {
	if r.take(n, r.b.most) {
		return true
	}
	r.b.refused.Add(1)
	return false
}

// Return gives n bytes back.
func (r Room) Return(n int) {
	r.b.used.Add(int64(-n))
	r.disown(n)
}

// Outgoing returns the room for messages to the principal's clients.
func (r Room) Outgoing() replay.Room { return outgoing{r} }

// Incoming returns the room for messages of servers to the principal.
func (r Room) Incoming() bridge.Room { return incoming{r} }

// adopt adds n held bytes to the principal's share. If the bytes do not fit, adopt drops events
// stored for the principal's clients. It reports false if the bytes do not fit even so.
func (r Room) adopt(n int) bool {
	for !r.b.shares.Take(r.principal, int64(n)) {
		if !r.b.history.DropOf(outgoing{r}) {
			return false
		}
	}
	return true
}

// disown removes n bytes from the principal's share. They stay held.
func (r Room) disown(n int) { r.b.shares.Return(r.principal, int64(n)) }

// take takes n bytes. It reports false if more than most bytes would be held, or more than the
// principal's share. It drops stored events to make room.
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

type outgoing struct{ Room }

func (o outgoing) Reserve(n int) bool { return o.take(n, o.b.most-o.b.most/forRequests) }

func (o outgoing) Force(n int) {
	o.b.used.Add(int64(n))
	o.b.shares.Force(o.principal, int64(n))
}

type incoming struct{ Room }

func (i incoming) Reserve(n int) bool {
	if (outgoing(i)).Reserve(n) {
		return true
	}
	i.b.refused.Add(1)
	return false
}

// lightAnswer is the size up to which answers are not counted: the limit of calls in flight bounds
// them.
const lightAnswer = 64 << 10

// Weigh counts an answer among the held bytes until its release. Bytes that its reader took move to
// the caller's share. An answer without room is released and refused. The call was executed, so the
// refusal does not ask for a repetition.
func (b *Bytes) Weigh(server string, from *bridge.Caller, m *jsonrpc.Message) error {
	n := m.Len()
	was, held := m.Held()
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
		m.Hold(room, held)
		return nil
	case held == 0 && room.Reserve(n):
		m.Hold(room, n)
		return nil
	}
	m.Release()
	return conn.NoRoom(server, fmt.Sprintf("the answer of %d bytes", n))
}
