package gateway

import (
	"strconv"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// A client that does not read gets no more calls when `unread` messages of the largest
// size are queued for it. Answers to calls in flight come on top: at most mostCalls.
const (
	unread    = 4
	mostCalls = 128
)

// ReplayLimits returns the limits of the queue of a client with a single stream.
// maxMessage is the size of the largest message in bytes.
func ReplayLimits(maxMessage int) replay.Limits {
	return replay.Limits{
		Events: 256,
		Bytes:  4 << 20,
		Hard:   (unread + mostCalls) * maxMessage,
	}
}

// Unread reports whether the queue of a client is too long to accept further calls.
func Unread(out *replay.Log, maxMessage int) bool { return out.Bytes() > unread*maxMessage }

// Calls counts the calls in flight.
type Calls struct {
	mu   sync.Mutex // guards the rest
	n    int
	none chan struct{} // closed when n falls to 0; nil while no caller waits
}

// Add adds n to the count; -1 ends a call.
func (c *Calls) Add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// None returns a channel that closes when no call is in flight. No call may begin after it.
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

// TooEarly is the error text for a message before its session.
const TooEarly = "initialize first, and wait for its answer"

// Early answers a request before the session: ping works, others fail.
func Early(m *jsonrpc.Message) *jsonrpc.Message {
	if m.Method == "ping" {
		return jsonrpc.NewResult(m.ID, []byte("{}"))
	}
	return jsonrpc.NewError(m.ID, jsonrpc.CodeInvalidRequest, TooEarly, nil)
}

// MaxBatch limits the messages of one batch (2025-03-26).
const MaxBatch = 100

// BatchSize returns why a batch cannot have n messages, or an empty string.
func BatchSize(n int) string {
	if n == 0 || n > MaxBatch {
		return "a batch has 1 to " + strconv.Itoa(MaxBatch) + " messages"
	}
	return ""
}

// NoBatches returns the error text for a batch in a revision without batches. each names the place
// of a single message.
func NoBatches(revision, each string) string {
	return "batches do not exist in revision " + revision + ": send one message " + each
}

// Batch checks the messages of one batch, in order. It holds the ids so far.
type Batch map[string]bool

// Fault returns why a message cannot be part of the batch, or an empty string.
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
