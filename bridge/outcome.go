package bridge

import (
	"context"
	"errors"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Outcome is how a request ended.
type Outcome int

// The outcomes.
const (
	Answered    Outcome = iota // with a result
	ToolFailed                 // with a result of a tool that says isError
	ErrorAnswer                // with a JSON-RPC error
	Cancelled                  // by the client, or because it has gone
	TimedOut                   // ErrTimeout
	Unavailable                // ErrUnavailable, ErrUnsent
	CircuitOpen                // ErrOpen
	Lost                       // ErrLost
	Overloaded                 // ErrOverloaded
	Limited                    // ErrLimited
	Denied                     // ErrDenied
	TooLarge                   // ErrTooLarge
	Failed                     // for another reason: the bridge is stopping, the session has ended
	outcomes
)

// Outcomes is how many there are.
const Outcomes = int(outcomes)

// String returns the outcome as metrics and logs name it.
func (o Outcome) String() string {
	return [Outcomes]string{
		"ok", "tool_error", "error", "cancelled", "timeout", "unavailable", "circuit_open", "lost", "overloaded", "rate_limited", "denied", "too_large", "other",
	}[o]
}

// OutcomeOfAnswer returns how a request of that method ended that had an answer.
// Results of tools answer tools/call, and tasks/result for a call that ran as a task.
func OutcomeOfAnswer(method string, a *jsonrpc.Message) Outcome {
	switch {
	case a.Error != nil:
		return ErrorAnswer
	case (method == "tools/call" || method == "tasks/result") && a.IsError():
		return ToolFailed
	}
	return Answered
}

// OutcomeOf returns how a request ended that had no answer.
func OutcomeOf(err error) Outcome {
	for _, is := range [...]struct {
		kind error
		Outcome
	}{ // what is more particular comes first
		{ErrLimited, Limited}, {ErrDenied, Denied}, {ErrOpen, CircuitOpen}, {ErrOverloaded, Overloaded}, {ErrTimeout, TimedOut},
		{ErrTooLarge, TooLarge}, {ErrLost, Lost}, {ErrUnsent, Unavailable}, {ErrUnavailable, Unavailable},
		{ErrCancelled, Cancelled}, {ErrEnded, Cancelled}, {ErrShutdown, Failed}, {context.Canceled, Cancelled},
	} {
		if errors.Is(err, is.kind) {
			return is.Outcome
		}
	}
	return Failed
}
