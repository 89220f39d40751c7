package streamable

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/adapters/eventstream"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// standing is the stream on which the server says what belongs to no call.
// Servers may do without.
type standing struct {
	w      *wire
	last   string        // the id of the last event
	retry  time.Duration // what the server wants us to wait
	opened bool          // it has been open before
	fails  int           // in a row
	tried  func()        // called when an attempt has had an answer, or none
}

// listenPatience is how long the opening of a connection waits until the server
// has heard that we listen: there are servers that drop what they say before,
// their questions about the very first call among it. Others send the head of
// their answer only with the first event.
const listenPatience = 250 * time.Millisecond

const (
	// stableAfter is how long a stream must have lived for the next attempt not
	// to count as one more failure.
	stableAfter = 10 * time.Second
	maxStanding = time.Minute // between attempts, unless the server wants more
)

// listen keeps the standing stream open for as long as the connection lives.
// tried is called when the first attempt has had an answer, or none.
func (w *wire) listen(tried func()) {
	defer w.deafen()
	s := &standing{w: w, tried: tried}
	for s.once(w.heed) && sleep(w.heed, s.pause()) {
	}
}

// mute notes that there is no standing stream, until it is open again. The end of
// the connection is none of that: others may hear of the same changes.
func (w *wire) mute() {
	if w.heed.Err() != nil {
		return
	}
	w.muted.Store(true)
	if h, ok := w.rest.(bridge.Hearer); ok {
		h.Unheard()
	}
}

// pause is how long to wait before the next attempt. Never less than a second:
// there are servers that close each stream at once (field-notes H).
func (s *standing) pause() time.Duration {
	d := max(min(time.Second<<min(s.fails, 10), maxStanding), s.retry)
	return d + rand.N(d/4)
}

// once opens the stream and reads it to its end. It reports whether it shall
// be opened again.
func (s *standing) once(ctx context.Context) (again bool) {
	w := s.w
	defer w.mute()
	began := time.Now()
	r := w.request(ctx, http.MethodGet, nil, nil)
	if s.last != "" {
		r.Header["Last-Event-Id"] = []string{s.last}
	}
	res, err := s.open(r)
	s.tried()
	switch {
	case err != nil:
		s.fails++
		return true
	case res.StatusCode/100 != 2 || kindOf(res) != kindEvents:
		return s.refused(res)
	}
	s.opened = true
	w.muted.Store(false)
	news := s.read(res)
	if s.fails++; news || time.Since(began) >= stableAfter {
		s.fails = 0
	}
	return true
}

// open sends the request in a goroutine of its own: to connect takes a deep
// stack, and the one that waits for events would keep it.
func (s *standing) open(r *http.Request) (res *http.Response, err error) {
	done := make(chan struct{})
	s.w.wg.Go(func() {
		defer close(done)
		res, err = s.w.a.stream(r)
	})
	<-done
	return res, err
}

// refused takes a response that is no stream.
func (s *standing) refused(res *http.Response) (again bool) {
	w := s.w
	refusal := readRefusal(res)
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
		return s.opened // many servers say so what 405 means
	}
	w.a.o.Log.Debug("the server does not let us listen", "err", refusal.String())
	return true
}

// read takes events until the stream ends. It reports whether there was a
// message that is not a repetition. Here is where an idle connection waits: what
// it does with an event is elsewhere, which keeps its stack small.
func (s *standing) read(res *http.Response) (news bool) {
	defer res.Body.Close()
	from := s.last
	r := eventstream.NewReader(res.Body, s.w.a.limit)
	for {
		ev, err := r.Next()
		if err != nil {
			return news
		}
		if s.event(&ev) && s.last != from {
			news = true
		}
	}
}

// event takes one event. It reports whether it was a message.
func (s *standing) event(ev *eventstream.Received) bool {
	w := s.w
	if ev.HasRetry {
		s.retry = ev.Retry
	}
	if ev.HasID {
		s.last = eventID(ev.ID)
	}
	switch {
	case ev.Over != nil:
		w.a.o.Log.Warn("message dropped: larger than the limit", "limit", w.a.o.MaxMessage)
		w.Unanswerable(ev.Over.ID(), w.a.tooLarge())
	case ev.Data != nil && ev.Type == "message":
		w.messages(ev.Data, s.deliver)
		return true
	default:
		ev.Data.Free()
	}
	return false
}

// deliver takes a message from the standing stream. Answers have no place here
// but for servers that know only one stream; then the call's own response has
// nothing more to say. It owns m.
func (s *standing) deliver(m *jsonrpc.Message) {
	if !m.IsResponse() {
		s.w.hear(0, m)
		return
	}
	call, err := strconv.ParseInt(string(m.ID), 10, 64)
	s.w.Deliver(m)
	if err != nil {
		return
	}
	if p := s.w.posting(call); p != nil {
		p.stop()
	}
}
