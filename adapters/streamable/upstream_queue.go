package streamable

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mcp-bridge/bridge/bridge/conn"

	"github.com/mcp-bridge/bridge/internal/deadline"
)

// queue holds what has no answer: notifications, and answers to the server's
// questions. They are sent by one POST after the other, so that they arrive in their
// order. Its goroutine runs while there is something to send. The wire's lock guards
// it.
type queue struct {
	notes   []note
	bytes   int  // in the queue
	busy    bool // the goroutine runs
	room    conn.Signal
	dropped bool // a warning was given
}

// note is one message on its way.
type note struct {
	conn.Outgoing
	about *exchange // of the call that it takes back; nil means none
}

// drop gives a note up. The server does not learn that nobody waits for the call
// that it takes back: all the same there is nothing to read of that any more.
func (n note) drop() {
	n.Line.Free()
	if n.about != nil {
		n.about.stop()
	}
}

// noteRoom is what a note takes beside its text.
const noteRoom = 256

// errFull says that the server asks more than it takes answers.
var errFull = errors.New("too much waits to be taken by it")

// enqueue implements the part of bridge.Sender that is about messages without
// an answer.
func (w *wire) enqueue(ctx context.Context, m conn.Outgoing) error {
	n := note{Outgoing: m}
	if m.Cancels != 0 {
		if n.about = w.exchange(m.Cancels); n.about == nil {
			m.Line.Free()
			return nil // the call has just ended: there is nothing to take back
		}
	}
	size := len(m.Line.B) + noteRoom
	limit := 2 * w.a.o.MaxMessage
	for {
		w.mu.Lock()
		err := w.unfit()
		if err == nil && ctx == nil && w.bytes > 2*limit {
			w.mu.Unlock()
			m.Line.Free()
			// Answers as a rule, so they cannot be dropped (protocol.md D0.11).
			w.abandon("it asks and does not take the answers", errFull)
			return errFull
		}
		if err != nil {
			w.mu.Unlock()
			n.drop()
			return err
		}
		if ctx == nil || w.bytes == 0 || w.bytes+size <= limit {
			w.notes = append(w.notes, n)
			w.bytes += size
			if !w.busy {
				w.busy = true
				w.wg.Go(w.carry)
			}
			w.mu.Unlock()
			return nil
		}
		if err := w.room.Await(ctx, &w.mu); err != nil {
			m.Line.Free()
			return err
		}
	}
}

// dismiss drops what is in the queue. The caller holds w.mu.
func (w *wire) dismiss() {
	for _, n := range w.notes {
		n.drop()
	}
	w.notes, w.bytes = nil, 0
	w.room.Wake()
}

// carry sends until the queue is empty.
func (w *wire) carry() {
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
		w.bytes -= len(n.Line.B) + noteRoom
		w.room.Wake()
		w.mu.Unlock()
		w.pass(n)
	}
}

// pass sends one message. A cancellation must not overtake its request, and is
// not sent when the request never was, or does not get through: a server may
// accept connections and not read. Afterwards the request's own exchange is of no
// use: servers do not answer what was cancelled, and some leave its stream open
// for ever.
func (w *wire) pass(n note) {
	if n.about != nil {
		defer n.about.stop()
		within, cancel := deadline.WithTimeout(w.ctx, noteLimit, nil)
		sent := n.about.sent(within)
		cancel()
		if !sent {
			n.Line.Free()
			return
		}
	}
	err := w.confirm(w.ctx, n.Outgoing)
	if err != nil && w.ctx.Err() == nil && !w.over.Load() {
		w.a.o.Log.Debug("a message was not taken", "method", n.Method, "err", err)
		w.mu.Lock()
		first := !w.dropped
		w.dropped = true
		w.mu.Unlock()
		if first && n.Method == "" { // the server may wait for it
			w.a.o.Log.Warn("the server did not accept the answer to its request", "err", err)
		}
	}
}

// noteLimit is how long a server may take to take a message without an answer.
const noteLimit = 30 * time.Second

// confirm sends a message without an answer and waits until it is taken. What
// cannot have reached the server is tried again. The memory of the message is left
// to the garbage collector: the transport may read it after the response has come.
func (w *wire) confirm(ctx context.Context, m conn.Outgoing) error {
	under, cancel := deadline.WithTimeout(w.ctx, noteLimit, nil)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := w.a.reach(under, w.a.do, func() *http.Request { return w.request(under, http.MethodPost, m.Header, m.Identity, m.Line.B) }, func() bool { return true })
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return w.a.failure(res, err)
	}
	if res.StatusCode/100 == 2 { // 202; 200 and 204 do as well
		discard(res)
		return nil
	}
	return w.verdict(w.a.readRefusal(res))
}
