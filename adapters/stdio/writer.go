package stdio

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

const (
	// writeLimit is how long a child may leave a write unread. Some servers read nothing while they
	// work on a call.
	writeLimit = 5 * time.Minute
	// gather is the size up to which lines are written together, in bytes.
	gather = 32 << 10
)

// writer writes to a child. It has a queue bounded in bytes, and a goroutine while the queue is not
// empty.
type writer struct {
	w io.Writer
	// fail is called once, with mu held, when nothing can be written any more. Senders get the
	// error that fail returns.
	fail func(error) error
	wg   sync.WaitGroup
	wide bool // the pipe was widened; only run uses it

	mu    sync.Mutex // guards the fields below
	queue []*jsonrpc.Buffer
	wait  conn.Backlog // bounds the queue
	busy  bool         // the goroutine, or a sender, writes
	err   error        // why nothing can be written any more
}

type deadliner interface{ SetWriteDeadline(time.Time) error }

// Send implements conn.Sender.
func (w *writer) Send(ctx context.Context, o conn.Outgoing) error {
	line := o.Line
	line.B = append(line.B, '\n')
	for {
		w.mu.Lock()
		if w.err == nil && w.wait.Overflows(o.Urgent) {
			w.refuse(w.fail(conn.ErrFull))
		}
		if w.err != nil {
			defer w.mu.Unlock()
			line.Free()
			return w.err
		}
		if !w.busy && len(line.B) <= atOnce {
			w.sendNow(line)
			w.mu.Unlock()
			return nil
		}
		if w.wait.Add(o.Urgent, len(line.B)) {
			w.queue = append(w.queue, line)
			if !w.busy {
				w.busy = true
				w.wg.Go(w.run)
			}
			w.mu.Unlock()
			return nil
		}
		if err := w.wait.Await(ctx, &w.mu); err != nil {
			line.Free()
			return err
		}
	}
}

// atOnce is the size, in bytes, up to which a sender writes a line itself if nobody else is writing,
// so that no other goroutine must wake up. On Linux, a pipe accepts so much whole or not at all
// (PIPE_BUF).
const atOnce = 4 << 10

// sendNow writes a line if the pipe has room for it, and otherwise leaves the line to the goroutine. The
// caller holds w.mu, which sendNow releases during the write.
func (w *writer) sendNow(line *jsonrpc.Buffer) {
	w.busy = true
	w.mu.Unlock()
	n := writeNow(w.w, line.B)
	w.mu.Lock()
	if n == len(line.B) {
		line.Free()
	} else { // after an error, the goroutine gets the same error and handles it
		line.B = append(line.B[:0], line.B[n:]...)
		w.queue = append([]*jsonrpc.Buffer{line}, w.queue...)
		w.wait.Add(true, len(line.B))
	}
	if w.busy = len(w.queue) > 0 && w.err == nil; w.busy {
		w.wg.Go(w.run)
	}
}

// run writes until the queue is empty.
func (w *writer) run() {
	var spare []*jsonrpc.Buffer
	for {
		w.mu.Lock()
		if len(w.queue) == 0 || w.err != nil {
			w.busy = false
			w.mu.Unlock()
			return
		}
		batch := w.queue
		w.queue = spare
		w.mu.Unlock()

		taken, err := w.write(batch)
		w.mu.Lock()
		if err != nil && w.err == nil {
			w.refuse(w.fail(err))
		}
		w.wait.Remove(taken)
		w.mu.Unlock()
		clear(batch)
		spare = batch[:0]
	}
}

// write writes the lines, small ones together, and frees them. It returns their bytes.
func (w *writer) write(batch []*jsonrpc.Buffer) (taken int, err error) {
	if d, ok := w.w.(deadliner); ok {
		_ = d.SetWriteDeadline(time.Now().Add(writeLimit)) // not every system has deadlines
	}
	for i := 0; i < len(batch); i++ {
		line := batch[i]
		if len(line.B) > readBuffer && !w.wide {
			w.wide = true
			widen(w.w)
		}
		for i+1 < len(batch) && len(line.B)+len(batch[i+1].B) <= gather {
			i++
			line.B = append(line.B, batch[i].B...)
			batch[i].Free()
		}
		taken += len(line.B)
		if err == nil {
			_, err = w.w.Write(line.B)
		}
		line.Free()
	}
	return taken, err
}

// stop makes all later sends fail with err.
func (w *writer) stop(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.refuse(err)
	}
}

// refuse makes all sends fail with err. The caller holds mu.
func (w *writer) refuse(err error) {
	w.err = err
	w.queue = nil
	w.wait.Wake()
}
