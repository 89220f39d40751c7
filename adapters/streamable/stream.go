package streamable

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/eventstream"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
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
	wake  chan struct{}

	mu        sync.Mutex // guards the rest
	log       *replay.Log
	answers   []answered // that came while there was no log
	left      int        // answers still to come
	abandoned bool       // the client went before anything was said
	kick      chan struct{}
	ended     time.Time // when the last answer came
	read      bool      // the last answer was written to a client
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

// logLimits bound the history of one stream; what must be kept may exceed it.
func logLimits(maxMessage int) replay.Limits {
	return replay.Limits{Events: 256, Bytes: 4 << 20, Hard: 4*maxMessage + 4<<20}
}

func newStream(p *peer, prefix string, answers int) *stream {
	return &stream{p: p, id: prefix, left: answers, wake: make(chan struct{}, 1)}
}

// Send implements bridge.Stream.
func (s *stream) Send(e replay.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.abandoned {
		return false
	}
	s.begin()
	return s.log.Append(e)
}

// begin makes the log, and with it decides for SSE. The caller holds s.mu.
func (s *stream) begin() {
	if s.log != nil {
		return
	}
	s.id += rand.Text()[:12]
	s.log = replay.New(logLimits(s.p.d.o.MaxMessage))
	for _, a := range s.answers {
		s.keep(a)
	}
	s.answers = nil
	s.p.enter(s)
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep puts an answer into the log. The caller holds s.mu.
func (s *stream) keep(a answered) {
	m := a.m
	s.log.Append(replay.Event{Data: m.Append(make([]byte, 0, m.Len()), m.ID, nil), Must: true})
	m.Release()
}

// answer takes one of the answers. The stream ends with the last.
func (s *stream) answer(m *jsonrpc.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	switch {
	case s.log != nil && m != nil:
		s.keep(answered{m, err})
	case s.abandoned:
		m.Release()
	case m != nil:
		s.answers = append(s.answers, answered{m, err})
	}
	if s.left > 0 {
		return
	}
	if s.log != nil {
		s.ended = time.Now()
		s.log.Finish()
	}
	s.signal()
}

// complete takes the answers, if all are there and there is nothing else.
func (s *stream) complete() (answers []answered, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil || s.left > 0 {
		return nil, false
	}
	return s.answers, true
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
	if s.log != nil {
		return
	}
	s.abandoned = true
	for _, a := range s.answers {
		a.m.Release()
	}
	s.answers = nil
}

// attach makes the caller the stream's only reader: one that was there before
// is sent away. (Its connection is probably dead.)
func (s *stream) attach() (kicked <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kick != nil {
		close(s.kick)
	}
	s.kick = make(chan struct{})
	return s.kick
}

// isGet reports whether the stream is for what belongs to no call.
func (s *stream) isGet() bool { return s.id[:1] == getPrefix }

// pause says that nobody reads the stream of a GET any more. It may be resumed.
func (s *stream) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.read = time.Now(), true
}

// resume takes pause back.
func (s *stream) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.read = time.Time{}, false
}

// reading says how a stream is read.
type reading struct {
	after int64           // the Seq of the event before the first
	prime bool            // send an event that has only an id first
	begin func()          // called when the response has begun
	done  <-chan struct{} // ends the reading; nil never does
}

// serve writes what follows to the client, until the stream ends or the client
// goes.
func (s *stream) serve(w http.ResponseWriter, r *http.Request, how reading) {
	kicked := s.attach()
	ew, err := eventstream.Open(w, r)
	if err != nil {
		return // the connection cannot stream; nothing was lost, it may be resumed
	}
	defer ew.Close()
	seq := how.after
	if how.prime {
		if ew.Send(eventstream.Event{ID: replay.ID(s.id, seq), Prime: true}) != nil || ew.Flush() != nil {
			return
		}
	}
	if how.begin != nil {
		how.begin()
	}
	beat := time.NewTicker(s.p.d.o.Heartbeat)
	defer beat.Stop()
	for {
		finished := s.log.Finished()
		events, _ := s.log.After(seq) // what is missing was dropped for good
		for _, e := range events {
			if ew.Send(eventstream.Event{ID: replay.ID(s.id, e.Seq), Type: "message", Data: e.Data}) != nil {
				return
			}
			seq = e.Seq
		}
		if len(events) > 0 && ew.Flush() != nil {
			return
		}
		if finished {
			s.mu.Lock()
			s.read = r.Context().Err() == nil
			s.mu.Unlock()
			return
		}
		select {
		case <-s.log.Wake():
		case <-beat.C:
			if ew.Beat() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-kicked:
			return
		case <-how.done:
			return
		}
	}
}
