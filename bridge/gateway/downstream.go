package gateway

import (
	"strconv"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// When more than unread messages of the largest size are queued for a client that does not read, the adapter accepts no
// more calls of that client. The answers to its calls in flight, at most mostCalls, are added to the queue.
const (
	unread    = 4
	mostCalls = 128
)

// ReplayLimits returns the limits of the event queue of a client with a single stream. maxMessage is the size of the
// largest message in bytes.
func ReplayLimits(maxMessage int) replay.Limits {
	return replay.Limits{
		Events: 256,
		Bytes:  4 << 20,
		Hard:   (unread + mostCalls) * maxMessage,
	}
}

// Unread reports whether the queue of a client is too long to accept another call of the client.
func Unread(out *replay.Log, maxMessage int) bool { return out.Bytes() > unread*maxMessage }

// Calls counts calls in flight. Its zero value counts none.
type Calls struct {
	mu   sync.Mutex // guards the rest
	n    int
	none chan struct{} // closed and set to nil when n falls to 0; nil while no caller waits
}

// Add adds n to the count: 1 for a call that begins, -1 for a call that ends.
func (c *Calls) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// None returns a channel that closes when no call is in flight. After None, the caller must not add calls.
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

// TooEarly is the error text for a message that comes before the client's session.
const TooEarly = "initialize first, and wait for its answer"

// Early answers a request that comes before the client's session: ping succeeds, other requests fail.
func Early(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Method == "ping" {
		return jsonrpc.NewResult(m.ID, []byte("{}"))
	}
	return jsonrpc.NewError(m.ID, jsonrpc.CodeInvalidRequest, TooEarly, nil)
}

// MaxBatch limits the messages of one batch (2025-03-26).
const MaxBatch = 100

// BatchSize returns the error text for a batch of n messages, or an empty string if the size is allowed.
func BatchSize(n int) string {
	if n == 0 || n > MaxBatch {
		return "a batch has 1 to " + strconv.Itoa(MaxBatch) + " messages"
	}
	return ""
}

// NoBatches returns the error text for a batch in a revision without batches. each says where a single message goes,
// such as "for each POST".
func NoBatches(revision, each string) string {
	return "batches do not exist in revision " + revision + ": send one message " + each
}

// Batch checks the messages of one batch, in their order. It holds the ids of the requests so far.
type Batch map[string]bool

// Fault returns the reason why m cannot be part of the batch, or an empty string. It adds the id of m to the batch.
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
