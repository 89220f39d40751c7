package breaker

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// What a call comes to whose caller is gone says nothing about the server: the
// end of a session closes its connection, and the call may meet either first.
func TestBreakerGone(t *testing.T) {
	for _, test := range []struct {
		name  string
		cause error // why the call's context has ended
		err   error
		want  judgement
	}{
		{"session ended", bridge.ErrEnded, bridge.ErrEnded, nothing},
		{"session ended, connection closed", bridge.ErrEnded, &bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "it failed"}, nothing},
		{"cancelled while it could not be sent", bridge.ErrCancelled, &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it failed"}, nothing},
		{"cancelled for a reason of the caller's own", errors.New("enough"), &bridge.Error{Server: "fake", Kind: bridge.ErrTimeout, Public: "it failed"}, nothing},
		{"a deadline of the bridge's own", &bridge.Error{Server: "fake", Kind: bridge.ErrTimeout, Public: "it failed"}, &bridge.Error{Server: "fake", Kind: bridge.ErrTimeout, Public: "it failed"}, fails},
		{"such a deadline, and no answer", &bridge.Error{Server: "fake", Kind: bridge.ErrTimeout, Public: "it failed"}, errors.New("unexpected EOF"), fails},
		{"a handshake's deadline", &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it failed"}, context.DeadlineExceeded, fails},
		{"answered all the same", bridge.ErrCancelled, nil, works},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(test.cause)
		if got := judge(ctx, test.err); got != test.want {
			t.Errorf("%s: judge(%v) = %d, want %d", test.name, test.err, got, test.want)
		}
	}
}

// An answer that is none is a failure: nobody knows what became of the call.
func TestInvalidFails(t *testing.T) {
	err := &bridge.Error{Server: "fake", Kind: bridge.ErrInvalid, Public: "no answer"}
	if got := judge(t.Context(), err); got != fails {
		t.Errorf("judge(%v) = %d, want %d", err, got, fails)
	}
}
