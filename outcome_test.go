package bridge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge"
)

// The kinds of errors are told apart also where one is another's reason.
func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bridge.Outcome
	}{
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded}, bridge.Overloaded},
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOpen}, bridge.CircuitOpen},
		{&bridge.Error{Kind: bridge.ErrUnavailable, Err: context.Canceled}, bridge.Unavailable},
		{&bridge.Error{Kind: bridge.ErrUnsent}, bridge.Unavailable},
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
