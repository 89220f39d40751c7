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
// the queue is not empty. The wire's lock guards the queue.
type queue struct {
	notes   []note
	wait    conn.Backlog
	busy    bool // the goroutine runs
	dropped bool // a warning was given
}

// note is one message of the queue.
type note struct {
	conn.Outgoing
	about *exchange // of the call that it cancels; nil if it cancels none, or the exchange has ended
}

// drop discards a note. If it cancels a call, the server is not informed, but the exchange of that
// call ends all the same.
func (n note) drop() {
	n.Line.Free()
	if n.about != nil {
		n.about.stop()
	}
}

// noteRoom is the memory of a note without its text.
const noteRoom = 256

func (n note) size() int { return len(n.Line.B) + noteRoom }

// enqueue adds a message without an answer to the queue.
func (w *wire) enqueue(ctx context.Context, o conn.Outgoing) error {
	n := note{Outgoing: o}
	if o.Cancels != 0 {
		// The exchange is nil if it has ended, as when a stream is not resumed because the caller left. The
		// server still gets the cancellation.
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

// sendNote sends one message. A cancellation must not overtake its request. The cancellation is not
// sent if the request was never sent, or is stuck: a server may accept connections and not read.
// The exchange of the request ends afterwards, because servers do not answer a cancelled request.
// Some leave its stream open for ever.
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
// message that cannot have reached the server. The garbage collector frees its memory: the HTTP
// client may still read it after the response.
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
	if res.StatusCode/100 == 2 { // 202; 200 and 204 do as well
		discard(res)
		return nil
	}
	return w.verdict(w.a.readRefusal(res))
}
