package streamable

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
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

// stream is the response to one POST or GET. It belongs to the session. An HTTP handler only reads it,
// and another handler may continue to read it (2025-11-25, resumability).
//
// A stream begins without a log. If the answer comes at once, with no other message before, the
// response is plain JSON.
type stream struct {
	p     *peer
	id    string        // first part of the ids of its events
	batch bool          // the answers are sent as an array
	as    forms         // the allowed forms of the answer to a POST
	wake  chan struct{} // wakes the handler of a POST that waits for the answer
	open  [][]byte      // raw ids of the requests that the stream answers; only if it is copied

	mu            sync.Mutex // guards the fields below
	log           *replay.Log
	answers       []answered // those that came before there was a log
	bytes         int        // of all answers so far
	left          int        // answers that have not come yet
	closed        bool       // the stream ended without a log: as JSON, or because the client disconnected
	reader        *reader    // writes the stream to the client; nil if none does
	ended         time.Time  // when the last answer came, or the reader of a GET left
	read          bool       // a client has read the stream to its end
	expectsReader bool       // the handler of the POST has not begun to read the stream
	dropped       bool       // the stream cannot be resumed
}

// reader is the HTTP handler that writes a stream to the client.
type reader struct {
	wake chan struct{} // signals that events were added
	kick chan struct{} // closed when another reader takes over

	abort func() // closes the connection; nil if the HTTP server does that; stream.mu guards it
}

var _ bridge.Stream = (*stream)(nil)

// answered is an answer. If the bridge made the answer, err is the reason.
type answered struct {
	m   *jsonrpc.Message
	err error
}

// The prefix of a stream's id shows whether the stream belongs to a GET or a POST, even after the
// stream was dropped.
const (
	getPrefix  = "g"
	postPrefix = "p"
)

// historyBytes bounds the events that a stream keeps for resumption, in bytes: see historyLimits.
const historyBytes = 4 << 20

// historyLimits bound the history of one stream. With questions, it may exceed historyBytes, up to
// most. The limits do not bound answers, since there is only one for each request.
var historyLimits = replay.Limits{
	Events: 256,
	Bytes:  historyBytes,
	Hard:   math.MaxInt,
}

// most bounds the events of a stream with its questions, and the answers to a batch, in bytes.
func (s *stream) most() int { return 4*s.p.d.o.MaxMessage + historyBytes }

func newStream(p *peer, prefix string, answers int) *stream {
	return &stream{
		p:             p,
		id:            prefix,
		as:            forms{true, true},
		left:          answers,
		expectsReader: prefix == postPrefix,
		wake:          make(chan struct{}, 1),
	}
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

// begin creates the log, unless there is one. The response will then be a stream of events. The
// caller holds s.mu.
func (s *stream) begin() {
	if s.log != nil {
		return
	}
	s.id += rand.Text()[:12]
	s.log = s.p.d.g.NewLog(s.p.whose, historyLimits, true)
	s.copies()
	for _, a := range s.answers {
		s.keep(a)
	}
	s.answers = nil
	s.p.enter(s)
	s.finish()
	s.signal()
}

// finish ends the log if it has all answers. The caller holds s.mu.
func (s *stream) finish() {
	if s.log != nil && s.left == 0 && !s.isGet() {
		s.ended = time.Now()
		s.log.Finish()
	}
}

// signal wakes the reader. The caller holds s.mu.
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

// keep appends an answer to the log. The caller holds s.mu.
func (s *stream) keep(a answered) {
	_ = s.log.Append(gateway.AnswerEvent(a.m)) // fails if the stream was dropped
}

// answer adds an answer. The stream ends with the last answer.
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

// cancelled records that the client has cancelled a request, which then gets no answer (A10). But a
// client that has event ids would resume the stream for the answer, and the Go SDK ends its session if
// no answer comes. So such a client gets an error as the answer.
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

// complete returns the answers if all have come and there is no log. The stream is then closed, and
// Send refuses later messages.
func (s *stream) complete() (answers []answered, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil || s.left > 0 {
		return nil, false
	}
	answers, s.answers, s.closed = s.answers, nil, true
	return answers, true
}

// beginStream makes the response a stream of events, because the answer takes long.
func (s *stream) beginStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// isStreaming reports whether the stream has a log.
func (s *stream) isStreaming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log != nil
}

// disconnected records that the client disconnected. A stream without a log is closed, since the client
// has no event id with which to resume it.
func (s *stream) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil { // created since the handler last looked
		s.unread()
		return
	}
	s.closed = true
	for _, a := range s.answers {
		a.m.Release()
	}
	s.answers = nil
}

// attach returns a new reader, which becomes the stream's only one, for the events after seq. It ends
// an earlier reader, whose connection is probably dead.
func (s *stream) attach(seq int64) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kick()
	s.reader, s.expectsReader = &reader{wake: make(chan struct{}, 1), kick: make(chan struct{})}, false
	s.log.Attend(seq)
	if s.isGet() {
		s.ended, s.read = time.Time{}, false // in use again
	}
	return s.reader
}

// detach records that the reader has left, unless another reader has taken over. The stream may be
// resumed.
func (s *stream) detach(me *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == me {
		s.unread()
	}
}

// unread records that the stream has no reader. The caller holds s.mu.
func (s *stream) unread() {
	s.reader, s.expectsReader = nil, false
	if s.isGet() {
		s.ended, s.read = time.Now(), true
	}
	if s.log.Leave(); s.dropped {
		s.log.Close()
	}
}

// drop records that the stream cannot be resumed any more. The log is closed when there is no reader.
func (s *stream) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	if !s.used() {
		s.log.Close()
	}
}

// Attended reports whether a handler reads the stream, or is about to.
func (s *stream) Attended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used()
}

// used reports whether the stream has a reader or expects one. The caller holds s.mu.
func (s *stream) used() bool { return s.reader != nil || s.expectsReader }

// lost reports whether the stream has ended, and an answer or a question after the event at seq was
// dropped.
func (s *stream) lost(seq int64) bool { return s.log.Finished() && s.log.Gone(seq) }

// wrote records that the reader has written the events up to seq. If the history is longer than
// historyBytes, wrote drops the oldest written events, including questions, which the log does not
// drop by itself. The answers to a batch stay.
func (s *stream) wrote(me *reader, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != me {
		return // another reader may have begun before
	}
	s.log.Written(seq)
	if !s.batch && s.log.Bytes() > historyBytes {
		s.log.Trim(seq, historyBytes/2)
	}
}

// dismiss ends the reader.
func (s *stream) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kick()
}

// kick is dismiss for a caller that holds s.mu.
func (s *stream) kick() {
	if s.reader != nil {
		close(s.reader.kick)
		s.unread()
	}
}

// breakable sets how to close the reader's connection.
func (s *stream) breakable(me *reader, abort func()) {
	s.mu.Lock()
	me.abort = abort
	s.mu.Unlock()
	select {
	case <-s.p.Done(): // breakOff may have run before abort was set
		time.AfterFunc(breakAfter, abort)
	default:
	}
}

// breakOff closes the reader's connection.
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

// isGet reports whether the stream is for messages that belong to no call.
func (s *stream) isGet() bool { return s.id[:1] == getPrefix }

// reading holds the options of a reader.
type reading struct {
	after int64           // the Seq of the last event that the client has
	prime bool            // the first event has only an id
	begin func()          // called after the response has begun
	done  <-chan struct{} // when closed, ends the reading; may be nil
}

// respond writes the stream as the response to a request. It reports whether the stream ended while
// the client was connected.
func (s *stream) respond(w http.ResponseWriter, r *http.Request, how reading) (whole bool) {
	me := s.attach(how.after)
	defer s.detach(me)
	ew, err := httpio.OpenWriter(w, r)
	if err != nil {
		return false // the connection cannot stream; the client may resume
	}
	defer ew.Close()
	return s.serve(r.Context(), ew, me, how)
}

// serve writes events until the stream or ctx ends. It reports whether the stream ended while the
// client was connected.
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
	err := w.Serve(ctx, httpio.Serving{
		Heartbeat: s.p.d.o.Heartbeat,
		Wake:      me.wake,
		Stop:      me.kick,
		Done:      how.done,
	}, func() (err error) {
		finished := s.log.Finished()
		there := ctx.Err() == nil // read before the last write, after which the client may disconnect
		if seq, err = s.write(w, me, seq); err == nil && finished {
			whole, err = there, io.EOF
		}
		return err
	})
	switch err {
	case io.EOF:
		s.mu.Lock()
		s.read = whole
		s.mu.Unlock()
	case httpio.ErrStopped:
		s.endForResume(w)
	}
	return whole
}

// resumeAfter is how long a client waits before it resumes a stream that the bridge closes.
const resumeAfter = time.Second

// endForResume ends a response whose stream may continue. It sends resumeAfter to clients that can
// resume.
func (s *stream) endForResume(w *httpio.Writer) {
	if s.p.primes() && w.Send(httpio.Event{Retry: resumeAfter}) == nil {
		_ = w.Flush() // fails if the client has disconnected
	}
}

// write writes the events after seq, and returns the seq of the last one.
func (s *stream) write(w *httpio.Writer, me *reader, seq int64) (int64, error) {
	for {
		events := s.log.Next(seq) // there are gaps where events were dropped
		if len(events) == 0 {
			return seq, nil
		}
		for _, e := range events {
			if err := w.Send(httpio.Event{
				ID:   replay.ID(s.id, e.Seq),
				Type: "message",
				Data: e.Data,
			}); err != nil {
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
