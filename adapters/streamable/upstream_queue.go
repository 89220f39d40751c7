package streamable

import (
	"context"
	"net/http"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/deadline"
)

// queue holds messages without an answer: notifications, and answers to the server's questions. One
// POST after the other sends them, so that they arrive in order. The queue's goroutine runs while
// the queue is not empty. link.mu guards the queue.
type queue struct {
	notes   []note
	wait    conn.Backlog
	busy    bool // the goroutine runs
	dropped bool // the server did not accept a message before, so that there is no further warning
}

// note is one message of the queue.
type note struct {
	conn.Outgoing
	about *exchange // of the call that the message cancels; nil if there is none, or it has ended
}

// drop discards a note. If the note cancels a call, the server does not get the cancellation, but the
// exchange of the call ends.
func (n note) drop() {
	n.Line.Free()
	if n.about != nil {
		n.about.stop()
	}
}

// noteRoom is the memory of a note without its text, in bytes.
const noteRoom = 256

func (n note) size() int { return len(n.Line.B) + noteRoom }

// enqueue adds a message without an answer to the queue. If the queue is full, an urgent message
// ends the connection, and any other waits for room until ctx ends.
func (w *wire) enqueue(ctx context.Context, o conn.Outgoing) error {
	n := note{Outgoing: o}
	if o.Cancels != 0 {
		// The exchange may have ended, for example because a broken stream is not resumed after the caller
		// left. The server still gets the cancellation.
		n.about = w.exchange(o.Cancels)
	}
	for {
		w.mu.Lock()
		err := w.unusable()
		if err == nil && w.wait.Overflows(o.Urgent) {
			w.mu.Unlock()
			o.Line.Free()
			w.abandon("it sends requests and does not accept the answers", conn.ErrFull)
			return conn.ErrFull
		}
		if err != nil {
			w.mu.Unlock()
			n.drop()
			return err
		}
		if w.wait.Add(o.Urgent, n.size()) {
			w.notes = append(w.notes, n)
			if !w.busy {
				w.busy = true
				w.wg.Go(w.sendQueued)
			}
			w.mu.Unlock()
			return nil
		}
		if err := w.wait.Await(ctx, &w.mu); err != nil {
			o.Line.Free()
			return err
		}
	}
}

// clearQueue drops the messages in the queue. The caller holds w.mu.
func (w *wire) clearQueue() {
	for _, n := range w.notes {
		w.wait.Remove(n.size())
		n.drop()
	}
	w.notes = nil
	w.wait.Wake()
}

// sendQueued sends messages until the queue is empty.
func (w *wire) sendQueued() {
	for {
		w.mu.Lock()
		if len(w.notes) == 0 {
			w.notes, w.busy = nil, false
			w.mu.Unlock()
			return
		}
		n := w.notes[0]
		w.notes[0] = note{}
		w.notes = w.notes[1:]
		w.wait.Remove(n.size())
		w.mu.Unlock()
		w.sendNote(n)
	}
}

// sendNote sends one message. A cancellation must not overtake its request, so sendNote first waits
// until the request is written. If that takes longer than noteLimit, sendNote drops the
// cancellation. Afterwards it ends the exchange of the request, since servers do not answer a
// cancelled request, and some leave its stream open for ever.
func (w *wire) sendNote(n note) {
	if n.about != nil {
		defer n.about.stop()
		within, cancel := deadline.WithTimeout(w.ctx, noteLimit, nil)
		sent := n.about.awaitSent(within)
		cancel()
		if !sent {
			n.Line.Free()
			return
		}
	}
	err := w.confirm(w.ctx, n.Outgoing)
	if err != nil && w.ctx.Err() == nil && !w.clientNotified.Load() {
		w.a.o.Log.Debug("a message was not accepted", "method", n.Method, "err", err)
		w.mu.Lock()
		first := !w.dropped
		w.dropped = true
		w.mu.Unlock()
		if first && n.Method == "" { // the server may wait for the answer
			w.a.o.Log.Warn("the server did not accept the answer to its request", "err", err)
		}
	}
}

// noteLimit is how long a server may take to accept a message without an answer.
const noteLimit = 30 * time.Second

// confirm sends a message without an answer and waits until the server accepts it. It repeats a
// message that cannot have reached the server. It leaves the message to the garbage collector,
// since the HTTP client may still read the message after the response.
func (w *wire) confirm(ctx context.Context, o conn.Outgoing) error {
	under, cancel := deadline.WithTimeout(w.ctx, noteLimit, nil)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := w.a.reach(under, w.a.do, o.Method, func() *http.Request { return w.request(under, http.MethodPost, o.Header, o.Identity, o.Line.B) }, func() bool { return true })
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return remote.Failure(w.a.name, err)
	}
	if res.StatusCode/100 == 2 { // mostly 202; some servers send 200 or 204
		discard(res)
		return nil
	}
	return w.verdict(w.a.readRefusal(res))
}
