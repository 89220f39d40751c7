package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// slow is a pipe whose reader accepts a write only on request.
type slow struct {
	turn chan error // what the next write returns

	mu        sync.Mutex // guards the rest
	writes    []string
	deadlines []time.Time
}

func (s *slow) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.writes = append(s.writes, string(b))
	s.mu.Unlock()
	if err := <-s.turn; err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines = append(s.deadlines, t)
	return nil
}

func (s *slow) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func buffer(text string) conn.Outgoing {
	b := jsonrpc.NewBuffer(len(text))
	b.B = append(b.B, text...)
	return conn.Outgoing{Line: b}
}

// urgent is a message that is taken without room, too.
func urgent(text string) conn.Outgoing {
	o := buffer(text)
	o.Urgent = true
	return o
}

// failing is the error that senders get from a writer whose pipe is broken.
type failing struct{ err error }

func (f failing) Error() string { return "failed: " + f.err.Error() }

func newWriter(limit int) (*writer, *slow, *[]error) {
	s, told := &slow{turn: make(chan error)}, new([]error)
	return &writer{w: s, wait: conn.Backlog{Limit: limit}, fail: func(err error) error {
		*told = append(*told, err)
		return failing{err}
	}}, s, told
}

// What waits is written in order, small lines together.
func TestWriterKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, _ := newWriter(1 << 20)
		large := strings.Repeat("l", gather)
		var want strings.Builder
		for i := range 100 {
			text := fmt.Sprint(i)
			if i%40 == 20 {
				text = large
			}
			want.WriteString(text + "\n")
			if err := w.Send(t.Context(), buffer(text)); err != nil {
				t.Fatal(err)
			}
		}
		close(s.turn)
		w.wg.Wait()
		got := s.written()
		if len(got) > 10 {
			t.Errorf("%d writes for 97 small lines and 3 large ones", len(got))
		}
		if strings.Join(got, "") != want.String() {
			t.Errorf("written: %.200q", got)
		}
		for _, one := range got {
			if !strings.HasSuffix(one, "\n") {
				t.Errorf("a write ends within a line: %.100q", one)
			}
		}
		if w.wait.Bytes() != 0 || w.busy || len(w.queue) > 0 {
			t.Errorf("bytes = %d, busy = %v, queue = %d lines, want nothing", w.wait.Bytes(), w.busy, len(w.queue))
		}
		if d := s.deadlines[0]; !d.Equal(time.Now().Add(writeLimit)) {
			t.Errorf("deadline = %v, want %v from now", d, writeLimit)
		}
	})
}

// senders wait when the queue is full, but not those who must not, and
// a line larger than the queue passes alone.
func TestWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, told := newWriter(100)
		ten := strings.Repeat("x", 9) // and a line break
		send := func(ctx context.Context, o conn.Outgoing) chan error {
			ch := make(chan error, 1)
			go func() { ch <- w.Send(ctx, o) }()
			synctest.Wait()
			return ch
		}
		for range 10 {
			if err := <-send(t.Context(), buffer(ten)); err != nil {
				t.Fatal(err)
			}
		}
		why := errors.New("no patience")
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := send(ctx, buffer(ten)), send(t.Context(), buffer(ten))
		select {
		case err := <-first:
			t.Fatalf("Send = %v with a full queue, want it to wait", err)
		default:
		}
		if err := <-send(t.Context(), urgent(ten)); err != nil {
			t.Errorf("Send of what is urgent: %v", err)
		}
		cancel(why)
		if err := <-first; err != why {
			t.Errorf("Send = %v, want %v", err, why)
		}
		select {
		case err := <-second:
			t.Fatalf("Send = %v, want it to wait for room", err)
		default:
		}
		s.turn <- nil // the first line
		synctest.Wait()
		s.turn <- nil // all others
		if err := <-second; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.turn <- nil
		synctest.Wait()
		if err := <-send(t.Context(), buffer(strings.Repeat("y", 1000))); err != nil { // the queue is empty
			t.Error(err)
		}
		s.turn <- nil
		w.wg.Wait()
		if got := len(strings.Join(s.written(), "")); got != 12*10+1001 {
			t.Errorf("%d bytes written", got)
		}

		// Who must not wait may go beyond the bound, but not for ever.
		n := 0
		for ; n < 1000; n++ {
			if err := w.Send(t.Context(), urgent(ten)); err != nil {
				break
			}
			synctest.Wait() // the first one is being written
		}
		if n < 20 || n > 22 {
			t.Errorf("%d lines were taken, want about 20", n)
		}
		if len(*told) != 1 || (*told)[0] != conn.ErrFull {
			t.Errorf("fail was told %v, want %v once", *told, conn.ErrFull)
		}
		if err := w.Send(t.Context(), buffer(ten)); err != (failing{conn.ErrFull}) {
			t.Errorf("Send = %v, want what fail returned", err)
		}
		s.turn <- nil
		w.wg.Wait()
	})
}

// A failed write is reported once, and all waiting senders get the error that fail made of
// it; so do all later ones.
func TestWriterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, told := newWriter(10)
		if err := w.Send(t.Context(), buffer("in the queue")); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 5)
		for range cap(waiting) {
			go func() { waiting <- w.Send(t.Context(), buffer("waits")) }()
		}
		synctest.Wait()
		s.turn <- os.ErrDeadlineExceeded
		want := failing{os.ErrDeadlineExceeded}
		for range cap(waiting) {
			if err := <-waiting; err != want {
				t.Errorf("Send = %v, want %v", err, want)
			}
		}
		if err := w.Send(t.Context(), urgent("later")); err != want {
			t.Errorf("Send = %v, want %v", err, want)
		}
		w.wg.Wait()
		w.stop(errors.New("later"))
		if len(*told) != 1 || w.err != want {
			t.Errorf("fail was told %v, and the error is %v; want the first alone", *told, w.err)
		}
		if got := s.written(); len(got) != 1 {
			t.Errorf("written: %q, want nothing after the error", got)
		}
	})
}

// After stop nothing is written, and the error of a write that was in flight
// does not matter any more.
func TestWriterStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s, told := newWriter(10)
		for range 3 {
			_ = w.Send(t.Context(), urgent("x"))
		}
		waiting := make(chan error, 1)
		go func() { waiting <- w.Send(t.Context(), buffer("waits for room")) }()
		synctest.Wait()
		why := errors.New("closed")
		w.stop(why)
		if err := <-waiting; err != why {
			t.Errorf("Send = %v, want %v", err, why)
		}
		s.turn <- os.ErrClosed
		w.wg.Wait()
		if err := w.Send(t.Context(), buffer("later")); err != why {
			t.Errorf("Send = %v, want %v", err, why)
		}
		if len(*told) > 0 || len(s.written()) != 1 {
			t.Errorf("fail was told %v, written %q", *told, s.written())
		}
	})
}
