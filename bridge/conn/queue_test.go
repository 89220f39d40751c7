package conn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A sender waits while the queue is full, until there is room or its context
// ends. What may not wait is taken all the same (Sender).
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(100, func() { t.Error("overfull") })
		send := func(ctx context.Context, size int) error {
			line := jsonrpc.NewBuffer(size)
			line.B = append(line.B, strings.Repeat("x", size)...)
			return q.Send(ctx, Outgoing{Line: line})
		}
		take := func(want int) {
			t.Helper()
			if o, err := q.Take(); err != nil || len(o.Line.B) != want {
				t.Fatalf("Take() = %d bytes, %v, want %d", len(o.Line.B), err, want)
			}
		}
		if err := send(t.Context(), 150); err != nil { // what is larger than the limit passes alone
			t.Fatal(err)
		}
		why := errors.New("no patience")
		ctx, cancel := context.WithCancelCause(t.Context())
		gave, waited := make(chan error), make(chan error)
		go func() { gave <- send(ctx, 20) }()
		synctest.Wait()
		cancel(why)
		if err := <-gave; !errors.Is(err, why) {
			t.Errorf("Send = %v, want the context's cause", err)
		}
		go func() { waited <- send(t.Context(), 30) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("Send did not wait for room: %v", err)
		default:
		}
		urgent := Outgoing{Line: jsonrpc.NewBuffer(40), Urgent: true}
		urgent.Line.B = append(urgent.Line.B, strings.Repeat("x", 40)...)
		if err := q.Send(t.Context(), urgent); err != nil {
			t.Errorf("Send of what is urgent = %v", err)
		}
		take(150)
		if err := <-waited; err != nil {
			t.Errorf("Send = %v", err)
		}
		take(40)
		take(30)
		end := errors.New("stopped")
		go func() {
			_, err := q.Take()
			waited <- err
		}()
		synctest.Wait()
		q.Stop(errors.New("for senders"), end)
		q.Stop(errors.New("again"), errors.New("again"))
		if err := <-waited; !errors.Is(err, end) {
			t.Errorf("Take() = %v, want %v", err, end)
		}
		if err := send(t.Context(), 1); err == nil || err.Error() != "for senders" {
			t.Errorf("Send to a stopped queue = %v", err)
		}
	})
}
