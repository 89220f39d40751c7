package bridge

import (
	"context"
	"errors"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Outcome says how a request ended.
type Outcome int

// The values of Outcome.
const (
	Answered    Outcome = iota // with a result
	ToolFailed                 // with a tool's result that has isError
	ErrorAnswer                // with a JSON-RPC error
	Cancelled                  // by the client, or because the client is gone
	TimedOut                   // ErrTimeout
	Unavailable                // ErrUnavailable, ErrUnsent
	CircuitOpen                // ErrOpen
	Drained                    // ErrDrained
	Lost                       // ErrLost
	Overloaded                 // ErrOverloaded
	Limited                    // ErrLimited
	Denied                     // ErrDenied
	TooLarge                   // ErrTooLarge
	Failed                     // for another reason: the bridge is stopping, or the session has ended
	outcomes
)

// Outcomes is the number of outcomes.
const Outcomes = int(outcomes)

// String returns the name of the outcome in metrics and logs.
func (o Outcome) String() string {
	return [Outcomes]string{
		"ok", "tool_error", "error", "cancelled", "timeout", "unavailable", "circuit_open", "drained", "lost", "overloaded", "rate_limited", "denied", "too_large", "other",
	}[o]
}

// OutcomeOfAnswer returns the outcome of a request with the answer m. A result of a tool answers tools/call, and
// tasks/result if the call ran as a task.
func OutcomeOfAnswer(method string, m *jsonrpc.Message) Outcome {
	switch {
	case m.Error != nil:
		return ErrorAnswer
	case (method == "tools/call" || method == "tasks/result") && m.IsError():
		return ToolFailed
	}
	return Answered
}

// OutcomeOf returns the outcome of a request that failed without an answer.
func OutcomeOf(err error) Outcome {
	for _, is := range [...]struct {
		kind error
		Outcome
	}{ // a kind precedes the kind that it belongs to
		{ErrLimited, Limited}, {ErrDenied, Denied}, {ErrOpen, CircuitOpen}, {ErrDrained, Drained}, {ErrOverloaded, Overloaded}, {ErrTimeout, TimedOut},
		{ErrTooLarge, TooLarge}, {ErrLost, Lost}, {ErrUnsent, Unavailable}, {ErrUnavailable, Unavailable},
		{ErrCancelled, Cancelled}, {ErrEnded, Cancelled}, {ErrShutdown, Failed}, {context.Canceled, Cancelled},
	} {
		if errors.Is(err, is.kind) {
			return is.Outcome
		}
	}
	return Failed
}
