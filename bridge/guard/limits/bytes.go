package limits

import (
	"fmt"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// Bytes bounds the memory that all messages use: the received parts of requests, large answers, and events that wait or
// are stored for clients. If there is no room, stored events are dropped first.
type Bytes struct {
	most    int64
	used    atomic.Int64
	shares  *Shares // shares of the bytes by principal
	history replay.History
	refused atomic.Uint64
}

// forRequests is the divisor for the part of the bytes that only requests may use. So clients that do not read their
// answers cannot prevent requests of other clients.
const forRequests = 8

// NewBytes returns a bound of most bytes for that number of principals.
func NewBytes(most int64, principals int) *Bytes {
	return &Bytes{most: most, shares: NewShares(most, principals)}
}

// Set changes the number of principals.
func (b *Bytes) Set(principals int) { b.shares.Set(principals) }

// Used returns the bytes in use, Most the bound. Refused returns how many requests and answers found no room.
func (b *Bytes) Used() int64     { return b.used.Load() }
func (b *Bytes) Most() int64     { return b.most }
func (b *Bytes) Refused() uint64 { return b.refused.Load() }

// History returns the bound of the events that are stored so that clients can resume streams.
func (b *Bytes) History() *replay.History { return &b.history }

// Room returns the room of a principal. The empty name stands for requests without a principal.
func (b *Bytes) Room(principal string) Room { return Room{b, principal} }

// Incoming returns the room for messages of servers to a principal.
func (b *Bytes) Incoming(principal string) bridge.Room { return b.Room(principal).Incoming() }

// Room is the part of the bytes that one principal may use. Its methods may be called concurrently.
type Room struct {
	b         *Bytes
	principal string
}

// Reserve takes n bytes for a request. If this principal or all principals use too many bytes, it reports false, and
// the caller refuses the request. After a success the caller calls Return.
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

// Outgoing returns the room for messages to the principal's clients. A part of the bytes stays free for requests.
func (r Room) Outgoing() replay.Room { return outgoing{r} }

// Incoming returns the room for messages of servers to the principal. It counts refusals, unlike Outgoing.
func (r Room) Incoming() bridge.Room { return incoming{r} }

// adopt counts n bytes, which are in use already, for the principal. If they exceed its share, adopt drops events that
// are stored for the principal's clients. If that is not enough, adopt counts nothing and reports false.
func (r Room) adopt(n int) bool {
	for !r.b.shares.Take(r.principal, int64(n)) {
		if !r.b.history.DropOf(outgoing{r}) {
			return false
		}
	}
	return true
}

// disown ends the count of n bytes for the principal. The bytes stay in use.
func (r Room) disown(n int) { r.b.shares.Return(r.principal, int64(n)) }

// take takes n bytes for the principal. It drops stored events to make room. It reports false if more than most bytes
// would be in use, or more than the principal's share.
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

// lightAnswer is the size in bytes up to which answers are not counted. The limit of calls in flight bounds their
// memory.
const lightAnswer = 64 << 10

// Weigh counts an answer until its release. Bytes that a reader already counted for another principal move to the
// principal of from. If there is no room, Weigh releases the answer and returns an error. The server has executed the
// call, so the error does not invite a retry.
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
