package gateway

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
		{"session ended, connection closed", bridge.ErrEnded, failure(bridge.ErrLost), nothing},
		{"cancelled while it could not be sent", bridge.ErrCancelled, failure(bridge.ErrUnavailable), nothing},
		{"cancelled for a reason of the caller's own", errors.New("enough"), failure(bridge.ErrTimeout), nothing},
		{"a deadline of the bridge's own", failure(bridge.ErrTimeout), failure(bridge.ErrTimeout), fails},
		{"such a deadline, and no answer", failure(bridge.ErrTimeout), errors.New("unexpected EOF"), fails},
		{"a handshake's deadline", failure(bridge.ErrUnavailable), context.DeadlineExceeded, fails},
		{"answered all the same", bridge.ErrCancelled, nil, works},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(test.cause)
		if got := judge(ctx, test.err); got != test.want {
			t.Errorf("%s: judge(%v) = %d, want %d", test.name, test.err, got, test.want)
		}
	}
}
