package streamable

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/httpio"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// standalone is the stream on which the server says what belongs to no call.
// Servers may do without.
type standalone struct {
	w      *wire
	last   string        // the id of the last event
	retry  time.Duration // what the server wants us to wait
	early  bool          // the server has not taken notifications/initialized yet
	opened bool          // it has been open before
	fails  int           // in a row
}

// greeting is how far the wire is in saying that the handshake is over. The first
// attempt to open the standalone stream comes before that: what a server announces
// at once, such as tools that depend on the client, it says to those who listen,
// and there are servers that drop it otherwise. The specification forbids only
// requests before it (2025-11-25, Lifecycle, Initialization).
type greeting struct {
	tried   chan struct{} // closed when the first attempt has had an answer, or none
	waited  bool          // for that; otherwise it took too long
	taken   chan struct{} // closed when the server has taken notifications/initialized
	retried chan struct{} // closed when there is no answer to wait for after that
}

// listenPatience is how long the opening of a connection waits for the answer to
// an attempt to listen. There are servers that send the head of their answer only
// with the first event.
const listenPatience = 250 * time.Millisecond

const (
	// stableAfter is how long a stream must have lived for the next attempt not
	// to count as one more failure.
	stableAfter   = 10 * time.Second
	maxStandalone = time.Minute // between attempts, unless the server wants more
	// maxHasty is the same where a server that is not listened to ends what it has for us
	// after half a minute: another instance of the bridge (S-053).
	maxHasty = 5 * time.Second
)

// greet says that the handshake is over, by m, and begins to listen before.
// Nothing may overtake m.
func (w *wire) greet(ctx context.Context, m conn.Outgoing) error {
	w.mu.Lock()
	err := w.unfit()
	if err == nil {
		w.wg.Go(w.listen)
	}
	w.mu.Unlock()
	if err != nil {
		m.Line.Free()
		return err
	}
	w.waited = w.patiently(ctx, w.tried)
	return w.confirm(ctx, m)
}

// patiently waits until done is closed, or there is no patience left. It reports
// whether done was closed.
func (w *wire) patiently(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(listenPatience):
	case <-ctx.Done():
	}
	return false
}

// listen keeps the standalone stream open for as long as the connection lives. An
// attempt that hangs is left to itself: there is never more than one stream.
func (w *wire) listen() {
	defer w.stopListening()
	s := &standalone{w: w, early: true}
	began := time.Now()
	res, again := s.attempt(w.listening)
	close(w.tried)
	s.early = false
	if res == nil && again { // it may have come too early for this server
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
		w.mute()
		if !again || backoff.For(w.listening, s.pause()) != nil {
			return
		}
		began = time.Now()
		res, again = s.attempt(w.listening)
	}
}

// mute notes that there is no standalone stream, until it is open again. The end of
// the connection is none of that: others may hear of the same changes.
func (w *wire) mute() {
	if w.listening.Err() != nil {
		return
	}
	w.muted.Store(true)
	if h, ok := w.rest.(bridge.MissesChanges); ok {
		h.MissesChanges()
	}
}

// pause is how long to wait before the next attempt. Never less than a second:
// there are servers that close each stream at once.
func (s *standalone) pause() time.Duration {
	most := maxStandalone
	if s.w.a.o.Hasty {
		most = maxHasty
	}
	d := max(backoff.Grown(time.Second, most, s.fails+1), s.retry)
	return d + rand.N(d/4)
}

// attempt opens the stream. It returns nil when the server does not, and reports
// whether to try again when that has failed, or the stream has ended.
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
	case res.StatusCode/100 != 2 || httpio.MediaType(res.Header) != httpio.Events:
		return nil, s.refused(res)
	}
	s.opened = true
	s.w.muted.Store(false)
	return res, true
}

// follow reads a stream to its end, which was asked for when it began.
func (s *standalone) follow(res *http.Response, began time.Time) {
	news := s.read(res)
	if s.fails++; news || time.Since(began) >= stableAfter {
		s.fails = 0
	}
}

// open sends the request in a goroutine of its own: to connect takes a deep
// stack, and the one that waits for events would keep it.
func (s *standalone) open(r *http.Request) (res *http.Response, err error) {
	done := make(chan struct{})
	s.w.wg.Go(func() {
		defer close(done)
		res, err = s.w.a.stream(r)
	})
	<-done
	return res, err
}

// refused takes a response that is no stream.
func (s *standalone) refused(res *http.Response) (again bool) {
	w := s.w
	refusal := w.a.readRefusal(res)
	session, _ := w.holds()
	s.fails++
	switch {
	case refusal.status == http.StatusMethodNotAllowed, refusal.status == http.StatusNotImplemented:
		return false
	case refusal.status == http.StatusBadRequest && s.last != "":
		s.last = "" // it does not resume; what was said meanwhile is lost
		return true
	case s.opened && session != "" && refusal.forgets():
		w.forget(refusal.String())
		return false
	case refusal.status == http.StatusBadRequest, refusal.status == http.StatusNotFound, refusal.status/100 == 2:
		return s.opened || s.early // many servers say so what 405 means
	}
	w.a.o.Log.Debug("the server does not let us listen", "err", refusal.String())
	return true
}

// read takes events until the stream ends. It reports whether there was a
// message that is not a repetition. Here is where an idle connection waits: what
// it does with an event is elsewhere, which keeps its stack small.
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
			if ev.Over != nil {
				s.event(&ev, &in) // so that the server does not begin with it again
			}
			return news
		}
		if s.event(&ev, &in) && s.last != from {
			news = true
		}
	}
}

// event takes one event. It reports whether it was a message.
func (s *standalone) event(ev *httpio.Received, in *conn.Intake) bool {
	w := s.w
	if ev.HasRetry {
		s.retry = ev.Retry
	}
	if ev.HasID {
		s.last = eventID(ev.ID)
	}
	switch {
	case ev.Over != nil:
		w.a.o.Log.Warn("message dropped", "why", in.Why(w.a.o.MaxMessage))
		w.Unkept(in, ev.Over.ID(), w.a.o.MaxMessage)
	case ev.Data != nil && ev.Type == "message":
		w.messages(ev.Data, in, s.deliver)
		return true
	default:
		ev.Data.Free()
	}
	return false
}

// deliver takes a message from the standalone stream. Answers have no place here
// but for servers that know only one stream; then the call's own response has
// nothing more to say. It owns m.
func (s *standalone) deliver(m *jsonrpc.Message) {
	if !m.IsResponse() {
		s.w.hear(0, m)
		return
	}
	call, err := strconv.ParseInt(string(m.ID), 10, 64)
	s.w.Deliver(m)
	if err != nil {
		return
	}
	if p := s.w.exchange(call); p != nil {
		p.stop()
	}
}
