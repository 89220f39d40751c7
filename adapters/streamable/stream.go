package streamable

import (
	"bytes"
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// stream is what the bridge has to say in return for one POST, or on one GET.
// It belongs to the session: the HTTP handler is only a reader of it, and
// another one may go on where it left off (2025-11-25, resumability).
//
// A stream begins without a log: a call that is answered at once, and about
// which there is nothing else to say, becomes a plain JSON response.
type stream struct {
	p     *peer
	id    string // first part of its event ids
	batch bool   // the answers are sent as an array
	as    forms  // of the answer to a POST
	wake  chan struct{}
	open  [][]byte // ids of the requests that it answers, raw; only where it is copied

	mu      sync.Mutex // guards the rest
	log     *replay.Log
	answers []answered // that came while there was no log
	bytes   int        // of all answers so far
	left    int        // answers still to come
	closed  bool       // it ended without a log: answered as JSON, or the client went before anything was said
	reader  *reader    // who writes it to the client now, or nil
	ended   time.Time  // when the last answer came, or the reader of a GET went
	read    bool       // the last answer was written to a client
	coming  bool       // the POST that it answers has still to read it
	dropped bool       // nobody can come back to it
}

// reader is the HTTP handler that writes a stream to the client.
type reader struct {
	wake chan struct{} // something was added
	kick chan struct{} // closed when another reader takes over

	abort func() // breaks its connection; nil when the HTTP server sees to that. Guarded by the stream's mu.
}

var _ bridge.Stream = (*stream)(nil)

// answered is an answer and why it is an error, if it is one of the bridge's.
type answered struct {
	m   *jsonrpc.Message
	err error
}

// Streams of a GET and of a POST are told apart by their ids, also when the
// stream itself is forgotten.
const (
	getPrefix  = "g"
	postPrefix = "p"
)

// historyBytes bounds what is kept of a stream for resumption, beside its answers.
const historyBytes = 4 << 20

// historyLimits bound the history of one stream. Questions may exceed historyBytes up
// to most, and answers that too: there is one for each request.
var historyLimits = replay.Limits{Events: 256, Bytes: historyBytes, Hard: math.MaxInt}

// most bounds the questions that wait on a stream, and the answers to a batch.
func (s *stream) most() int { return 4*s.p.d.o.MaxMessage + historyBytes }

func newStream(p *peer, prefix string, answers int) *stream {
	return &stream{p: p, id: prefix, as: forms{true, true}, left: answers, coming: prefix == postPrefix, wake: make(chan struct{}, 1)}
}

// Send implements bridge.Stream.
func (s *stream) Send(e replay.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.as.events && !s.isGet() {
		return false
	}
	s.begin()
	if s.log.Bytes()+len(e.Data) > s.most() || s.log.Append(e) != nil {
		return false
	}
	s.signal()
	return true
}

// begin makes the log, and with it decides for SSE. The caller holds s.mu.
func (s *stream) begin() {
	if s.log != nil {
		return
	}
	s.id += rand.Text()[:12]
	s.log = s.p.d.b.NewLog(s.p.whose, historyLimits, true)
	s.copies()
	for _, a := range s.answers {
		s.keep(a)
	}
	s.answers = nil
	s.p.enter(s)
	s.finish()
	s.signal()
}

// finish ends the log when all answers are in it. The caller holds s.mu.
func (s *stream) finish() {
	if s.log != nil && s.left == 0 && !s.isGet() {
		s.ended = time.Now()
		s.log.Finish()
	}
}

// signal wakes whoever waits for something to write. The caller holds s.mu.
func (s *stream) signal() {
	wake(s.wake)
	if s.reader != nil {
		wake(s.reader.wake)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep puts an answer into the log. The caller holds s.mu.
func (s *stream) keep(a answered) {
	_ = s.log.Append(gateway.AnswerEvent(a.m)) // the log of a stream that nobody can read any more takes none
}

// answer takes one of the answers. The stream ends with the last.
func (s *stream) answer(m *jsonrpc.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	if s.batch && s.bytes+m.Len() > s.most() {
		id := bytes.Clone(m.ID)
		m.Release()
		m = jsonrpc.NewError(id, jsonrpc.CodeInternal, "the answers to this batch are too large together: send one message in each POST", []byte(`{"bridge":"upstream_too_large"}`))
	}
	s.bytes += m.Len()
	switch {
	case s.closed:
		m.Release()
	case s.log != nil:
		s.keep(answered{m, err})
	default:
		s.answers = append(s.answers, answered{m, err})
	}
	s.finish()
	s.signal()
}

// cancelled says that a request was cancelled: it gets no answer (A10). Where the client
// has seen ids of events it would come back for one, and the Go SDK ends its session when
// there is none; so it is told that there will be none.
func (s *stream) cancelled(id []byte) {
	s.mu.Lock()
	quiet := s.log == nil || s.log.Last() == 0 && !s.p.primes()
	if quiet {
		s.left--
		s.finish()
		s.signal()
	}
	s.mu.Unlock()
	if !quiet {
		s.answer(jsonrpc.NewError(bytes.Clone(id), jsonrpc.CodeInternal, "the request was cancelled by the client", nil), nil)
	}
}

// complete takes the answers, if all are there and there is nothing else. The
// stream is closed then: what still comes finds another way.
func (s *stream) complete() (answers []answered, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil || s.left > 0 {
		return nil, false
	}
	answers, s.answers, s.closed = s.answers, nil, true
	return answers, true
}

// speak decides for SSE now: the answer takes long.
func (s *stream) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// speaking reports whether there is a log to read.
func (s *stream) speaking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log != nil
}

// abandon says that the client has gone. What was not begun is not kept: the
// client has no event id to ask for it by.
func (s *stream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil { // it has begun at this moment
		s.unread()
		return
	}
	s.closed = true
	for _, a := range s.answers {
		a.m.Release()
	}
	s.answers = nil
}

// attach makes the caller the stream's only reader, of what follows the event at
// seq: one that was there before is sent away. (Its connection is probably dead.)
func (s *stream) attach(seq int64) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kick()
	s.reader, s.coming = &reader{wake: make(chan struct{}, 1), kick: make(chan struct{})}, false
	s.log.Attend(seq)
	if s.isGet() {
		s.ended, s.read = time.Time{}, false // it is in use again
	}
	return s.reader
}

// detach says that the reader has gone. Nobody reads the stream now, unless
// another reader has taken over; it may be resumed.
func (s *stream) detach(me *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == me {
		s.unread()
	}
}

// unread says that nobody reads the stream. The caller holds s.mu.
func (s *stream) unread() {
	s.reader, s.coming = nil, false
	if s.isGet() {
		s.ended, s.read = time.Now(), true
	}
	if s.log.Leave(); s.dropped {
		s.log.Close()
	}
}

// drop says that nobody can come back to the stream: what it holds goes as soon as
// nobody reads it.
func (s *stream) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	if !s.used() {
		s.log.Close()
	}
}

// Attended reports whether the client reads the stream, or is about to.
func (s *stream) Attended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used()
}

// used reports whether somebody reads the stream, or is about to. The caller holds
// s.mu.
func (s *stream) used() bool { return s.reader != nil || s.coming }

// lost reports whether an answer, or a question, that follows the event at seq had
// to go before the client came back, and nothing else will come.
func (s *stream) lost(seq int64) bool { return s.log.Finished() && s.log.Gone(seq) }

// wrote says that the reader has written the events up to seq. The oldest of them
// go when there is more than a history has room for: questions, which the log
// itself never drops. The answers to a batch stay.
func (s *stream) wrote(me *reader, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != me {
		return // another one may have begun before that
	}
	s.log.Written(seq)
	if !s.batch && s.log.Bytes() > historyBytes {
		s.log.Trim(seq, historyBytes/2)
	}
}

// dismiss sends the reader away.
func (s *stream) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kick()
}

// kick sends the reader away. The caller holds s.mu.
func (s *stream) kick() {
	if s.reader != nil {
		close(s.reader.kick)
		s.unread()
	}
}

// breakable says how to break the reader's connection.
func (s *stream) breakable(me *reader, abort func()) {
	s.mu.Lock()
	me.abort = abort
	s.mu.Unlock()
	select {
	case <-s.p.Done(): // breakOff may have come too early for this one
		time.AfterFunc(breakAfter, abort)
	default:
	}
}

// breakOff breaks the reader's connection.
func (s *stream) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != nil && s.reader.abort != nil {
		s.reader.abort()
	}
}

func (s *stream) isRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil
}

// isGet reports whether the stream is for what belongs to no call.
func (s *stream) isGet() bool { return s.id[:1] == getPrefix }

// reading says how a stream is read.
type reading struct {
	after int64           // the Seq of the event before the first
	prime bool            // send an event that has only an id first
	begin func()          // called when the response has begun
	done  <-chan struct{} // ends the reading; nil never does
}

// respond writes the stream as the response to a request. It reports whether
// the stream ended with the client there.
func (s *stream) respond(w http.ResponseWriter, r *http.Request, how reading) (whole bool) {
	me := s.attach(how.after)
	defer s.detach(me)
	ew, err := httpio.OpenWriter(w, r)
	if err != nil {
		return false // the connection cannot stream; nothing was lost, it may be resumed
	}
	defer ew.Close()
	return s.serve(r.Context(), ew, me, how)
}

// serve writes what follows to the client, until the stream ends, or ctx does
// because the client goes. It reports whether the stream ended with the client
// there.
func (s *stream) serve(ctx context.Context, w *httpio.Writer, me *reader, how reading) (whole bool) {
	seq := how.after
	if how.prime {
		if w.Send(httpio.Event{ID: replay.ID(s.id, seq), Prime: true}) != nil || w.Flush() != nil {
			return false
		}
	}
	if how.begin != nil {
		how.begin()
	}
	beat := time.NewTicker(s.p.d.o.Heartbeat)
	defer beat.Stop()
	for {
		finished := s.log.Finished()
		there := ctx.Err() == nil // afterwards the client may go: it has all
		next, err := s.write(w, me, seq)
		if err != nil {
			return false
		}
		seq = next
		if finished {
			s.mu.Lock()
			s.read = there
			s.mu.Unlock()
			return there
		}
		select {
		case <-me.wake:
		case <-beat.C:
			if w.Beat() != nil {
				return false
			}
		case <-ctx.Done():
			return false
		case <-me.kick:
			s.leave(w)
			return false
		case <-how.done:
			s.leave(w)
			return false
		}
	}
}

// comeBack is when a client may come back whose stream the bridge closes.
const comeBack = time.Second

// leave is for a stream that is closed though more may follow on it: clients
// that know of it are told when to come back.
func (s *stream) leave(w *httpio.Writer) {
	if s.p.primes() && w.Send(httpio.Event{Retry: comeBack}) == nil {
		_ = w.Flush() // the client may have gone: that is what it was told to do
	}
}

// write writes what follows the event at seq, and returns where that ends.
func (s *stream) write(w *httpio.Writer, me *reader, seq int64) (int64, error) {
	for {
		events := s.log.Next(seq) // what is missing was dropped for good
		if len(events) == 0 {
			return seq, nil
		}
		for _, e := range events {
			if err := w.Send(httpio.Event{ID: replay.ID(s.id, e.Seq), Type: "message", Data: e.Data}); err != nil {
				return seq, err
			}
		}
		if err := w.Flush(); err != nil {
			return seq, err
		}
		seq = events[len(events)-1].Seq
		s.wrote(me, seq)
	}
}
