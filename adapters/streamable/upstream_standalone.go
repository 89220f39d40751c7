package streamable

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// standalone is the stream for messages of the server that belong to no call. A server need not have
// one.
type standalone struct {
	w      *wire
	last   string        // the id of the last event
	retry  time.Duration // how long the server wants a client to wait before it opens the stream again
	early  bool          // the server has not accepted notifications/initialized yet
	opened bool          // the stream was open before
	fails  int           // failures in a row
}

// greeting orders the end of the handshake. The first attempt to open the standalone stream comes
// before notifications/initialized, since some servers announce changes at once, such as tools that
// depend on the client, and drop them if no stream is open. Before initialized, the specification
// forbids only requests (2025-11-25, Lifecycle, Initialization).
type greeting struct {
	tried   chan struct{} // closed when the first attempt has ended
	inTime  bool          // tried was closed within listenPatience
	taken   chan struct{} // closed when the server has accepted notifications/initialized
	retried chan struct{} // closed when the attempt after taken has ended, or none is needed
}

// listenPatience bounds how long Open waits for an attempt to open the stream. Some servers send the
// head of their response only with the first event.
const listenPatience = 250 * time.Millisecond

const (
	// If a stream lives for stableAfter, its end does not count as a failure.
	stableAfter   = 10 * time.Second
	maxStandalone = time.Minute // between attempts, unless the server wants more
	// maxHasty replaces maxStandalone if the server is another instance of the bridge. That instance
	// drops messages for a client that has had no stream for half a minute (S-053).
	maxHasty = 5 * time.Second
)

// finishHandshake opens the standalone stream, and then sends o, which ends the handshake. It returns
// after the server has accepted o, so that no other message overtakes o.
func (w *wire) finishHandshake(ctx context.Context, o conn.Outgoing) error {
	w.mu.Lock()
	err := w.unusable()
	if err == nil {
		w.wg.Go(w.listen)
	}
	w.mu.Unlock()
	if err != nil {
		o.Line.Free()
		return err
	}
	w.inTime = w.waitBriefly(ctx, w.tried)
	return w.confirm(ctx, o)
}

// waitBriefly waits for done, at most listenPatience. It reports whether done was closed.
func (w *wire) waitBriefly(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(listenPatience):
	case <-ctx.Done():
	}
	return false
}

// listen keeps the standalone stream open while the connection lives. There is never more than one
// attempt at a time, even if an attempt hangs.
func (w *wire) listen() {
	defer w.stopListening()
	s := &standalone{w: w, early: true}
	began := time.Now()
	res, again := s.attempt(w.listening)
	close(w.tried)
	s.early = false
	if res == nil && again { // the attempt may have been too early for this server
		select {
		case <-w.taken:
		case <-w.listening.Done():
		}
		s.fails = 0
		began = time.Now()
		res, again = s.attempt(w.listening)
	}
	close(w.retried)
	for {
		if res != nil {
			s.follow(res, began)
		}
		if !again || backoff.For(w.listening, s.pause()) != nil {
			return
		}
		began = time.Now()
		res, again = s.attempt(w.listening)
	}
}

// pause returns how long to wait before the next attempt: at least a second, since some servers close
// each stream at once.
func (s *standalone) pause() time.Duration {
	most := maxStandalone
	if s.w.a.o.FailFast {
		most = maxHasty
	}
	d := max(backoff.Grown(time.Second, most, s.fails+1), s.retry)
	return d + rand.N(d/4)
}

// attempt opens the stream. If that fails, res is nil. again reports whether to try again after the
// failure, or after the end of the stream.
func (s *standalone) attempt(ctx context.Context) (res *http.Response, again bool) {
	r := s.w.request(ctx, http.MethodGet, nil, nil, nil)
	if s.last != "" {
		r.Header["Last-Event-Id"] = []string{s.last}
	}
	res, err := s.open(r)
	switch {
	case err != nil:
		s.fails++
		return nil, true
	case res.StatusCode/100 != 2 || httpio.Kind(res.Header) != httpio.Events:
		return nil, s.refused(res)
	}
	s.opened = true
	return res, true
}

// follow reads a stream to its end. began is when the attempt to open the stream began.
func (s *standalone) follow(res *http.Response, began time.Time) {
	news := s.read(res)
	if s.fails++; news || time.Since(began) >= stableAfter {
		s.fails = 0
	}
}

// open sends the request in another goroutine, since connecting takes a deep stack, which the
// goroutine that waits for events would keep.
func (s *standalone) open(r *http.Request) (res *http.Response, err error) {
	done := make(chan struct{})
	s.w.wg.Go(func() {
		defer close(done)
		res, err = s.w.a.stream(r)
	})
	<-done
	return res, err
}

// refused handles a response that is no stream, and reports whether to try again.
func (s *standalone) refused(res *http.Response) (again bool) {
	w := s.w
	refusal := w.a.readRefusal(res)
	session, _ := w.identity()
	s.fails++
	switch {
	case refusal.status == http.StatusMethodNotAllowed, refusal.status == http.StatusNotImplemented:
		return false
	case refusal.status == http.StatusBadRequest && s.last != "":
		s.last = "" // the server cannot resume the stream; messages sent meanwhile are lost
		return true
	case s.opened && session != "" && refusal.forgets():
		w.forget(refusal.String())
		return false
	case refusal.status == http.StatusBadRequest, refusal.status == http.StatusNotFound, refusal.status/100 == 2:
		return s.opened || s.early // many servers without this stream answer so, instead of with 405
	}
	w.a.o.Log.Debug("the server refused the standalone stream", "err", refusal.String())
	return true
}

// read reads events until the stream ends. It reports whether there was a new message. An idle
// connection waits here, so the work is in event, which keeps the waiting stack small.
func (s *standalone) read(res *http.Response) (news bool) {
	defer res.Body.Close()
	from := s.last
	in := s.w.Intake()
	defer in.Drop()
	r := httpio.NewReader(res.Body, s.w.a.limit)
	r.Room = in.Size
	for ; ; in.Drop() {
		ev, err := r.Next()
		if err != nil {
			if ev.Oversized != nil {
				s.event(&ev, &in) // records the id, so that the stream is not resumed before this event
			}
			return news
		}
		if s.event(&ev, &in) && s.last != from {
			news = true
		}
	}
}

// event handles one event. It reports whether the event was a message.
func (s *standalone) event(ev *httpio.Received, in *conn.Intake) bool {
	w := s.w
	if ev.HasRetry {
		s.retry = ev.Retry
	}
	if ev.HasID {
		s.last = eventID(ev.ID)
	}
	switch {
	case ev.Oversized != nil:
		w.a.o.Log.Warn("message dropped", "why", in.Why(w.a.o.MaxMessage))
		w.AnswerNotKept(in, ev.Oversized.ID(), w.a.o.MaxMessage)
	case ev.Data != nil && ev.Type == "message":
		w.messages(ev.Data, in, s.deliver)
		return true
	default:
		ev.Data.Free()
	}
	return false
}

// deliver handles a message from the standalone stream, and releases or passes on the message. An
// answer on this stream is against the specification, but some servers have only one stream. The
// response to the call's POST is then no longer needed.
func (s *standalone) deliver(m *jsonrpc.Message) {
	switch {
	case !m.IsResponse():
		s.w.receive(0, m)
		return
	case m.ID == nil: // an error that belongs to no call: each call has its own response
		s.w.a.o.Unclaimed(m)
		return
	}
	call, err := strconv.ParseInt(string(m.ID), 10, 64)
	s.w.Deliver(m)
	if err != nil {
		return
	}
	if e := s.w.exchange(call); e != nil {
		e.answeredElsewhere()
	}
}
