package gateway

import (
	"sync"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// A client that does not read is not served any more when unread messages of the
// largest size wait for it. The answers to the calls under way come on top, of
// which a session may have mostCalls.
const (
	unread    = 4
	mostCalls = 128
)

// ReplayLimits bound what waits for a client all of whose messages go the same way.
// maxMessage is the largest message, in bytes.
func ReplayLimits(maxMessage int) replay.Limits {
	return replay.Limits{Events: 256, Bytes: 4 << 20, Hard: (unread + mostCalls) * maxMessage}
}

// Unread reports whether too much waits for the client: no more calls are to be
// taken from it.
func Unread(out *replay.Log, maxMessage int) bool { return out.Bytes() > unread*maxMessage }

// Calls counts the calls under way.
type Calls struct {
	mu   sync.Mutex // guards the rest
	n    int
	none chan struct{} // to be closed when n falls to 0; nil while nobody waits
}

// Add counts n calls, or the end of one with -1.
func (c *Calls) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// None returns a channel that is closed when no call is under way. It is asked for
// when no more calls can begin.
func (c *Calls) None() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	none := c.none
	if none == nil {
		none = make(chan struct{})
		if c.n == 0 {
			close(none)
		} else {
			c.none = none
		}
	}
	return none
}

// TooEarly is what a client is told whose message comes before its session.
const TooEarly = "initialize first, and wait for its answer"

// Early answers a request that comes before the session.
func Early(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Method == "ping" {
		return jsonrpc.NewResult(m.ID, []byte("{}"))
	}
	return jsonrpc.NewError(m.ID, jsonrpc.CodeInvalidRequest, TooEarly, nil)
}

// MaxBatch bounds the messages in one array (2025-03-26).
const MaxBatch = 100

// NoBatches is what a client of that revision is told that sends an array. each is
// where a single message is to stand.
func NoBatches(revision, each string) string {
	return "batches do not exist in revision " + revision + ": send one message " + each
}

// Batch looks at the messages of one array, in their order.
type Batch map[string]bool

// Fault says why a message cannot be part of the batch; empty means that it can.
func (b Batch) Fault(m *jsonrpc.Message) string {
	switch {
	case !m.IsRequest():
		return ""
	case b[string(m.ID)]:
		return "this id stands twice in the batch"
	case m.Method == "initialize":
		return "initialize cannot be part of a batch"
	}
	b[string(m.ID)] = true
	return ""
}
