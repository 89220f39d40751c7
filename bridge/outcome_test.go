package bridge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// An answer that is no error is a failure only if a tool says so.
func TestOutcomeOfAnswer(t *testing.T) {
	failed := jsonrpc.NewResult(nil, []byte(`{"content":[],"isError":true}`))
	for _, test := range []struct {
		method string
		answer *jsonrpc.Message
		want   bridge.Outcome
	}{
		{"tools/call", failed, bridge.ToolFailed},
		{"tasks/result", failed, bridge.ToolFailed},
		{"resources/read", failed, bridge.Answered},
		{"tools/call", jsonrpc.NewResult(nil, []byte(`{"content":[]}`)), bridge.Answered},
		{"tools/call", jsonrpc.InvalidParams("no"), bridge.ErrorAnswer},
	} {
		if got := bridge.OutcomeOfAnswer(test.method, test.answer); got != test.want {
			t.Errorf("OutcomeOfAnswer(%s, %s %s) = %v, want %v", test.method, test.answer.Result, test.answer.Error, got, test.want)
		}
	}
}

// The kinds of errors are distinguished even if one is the reason of another.
func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bridge.Outcome
	}{
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded}, bridge.Overloaded},
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOpen}, bridge.CircuitOpen},
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: context.Canceled}, bridge.Unavailable},
		{&bridge.Error{Kind: bridge.ErrUnsent}, bridge.Unavailable},
		{&bridge.Error{Kind: bridge.ErrDrained}, bridge.Drained},
		{&bridge.Error{Kind: bridge.ErrLimited}, bridge.Limited},
		{bridge.ErrDenied, bridge.Denied},
		{context.Canceled, bridge.Cancelled},
		{bridge.ErrShutdown, bridge.Failed},
		{bridge.ErrIdle, bridge.Failed},
		{errors.New("x"), bridge.Failed},
	} {
		if got := bridge.OutcomeOf(test.err); got != test.want {
			t.Errorf("OutcomeOf(%v) = %v, want %v", test.err, got, test.want)
		}
	}
}
