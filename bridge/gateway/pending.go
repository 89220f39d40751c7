package gateway

import (
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// pendingLimits bound what waits for a stream.
var pendingLimits = replay.Limits{Events: 256, Bytes: 4 << 20, Hard: 32 << 20}

// Attach opens a stream for what belongs to no call, from now until detach.
// What has waited for one goes there at once, and so do questions.
func (s *Session) Attach(st bridge.Stream) (detach func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &attachment{st}
	s.streams = append(s.streams, a)
	s.flush()
	if w := s.ways.Now(); !w.Adopted.Done() && len(s.held.Subs)+len(s.held.Carry) > 0 && !s.ending {
		s.wg.Go(func() { s.restore(w) })
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(o *attachment) bool { return o == a })
		s.rest()
		s.left.Store(len(s.streams) == 0)
	}
}

// attachment is one opening of a stream, which may be opened again.
type attachment struct{ bridge.Stream }

// begin lets out what the server said before the client was ready for it. The
// caller holds s.mu.
func (s *Session) begin() {
	if !s.ready {
		s.ready = true
		s.flush()
	}
}

// flush moves what is pending to the streams. The caller holds s.mu.
func (s *Session) flush() {
	if !s.ready || s.pending == nil || len(s.streams) == 0 {
		return
	}
	events, _ := s.pending.After(0)
	if n := s.pending.Drops(); n > 0 {
		s.log.Warn("notifications dropped: the client had no stream open", "count", n)
	}
	s.pending.Close() // its room is needed for where they go
	s.pending = nil
	waiting := map[int64]*question{}
	for _, q := range s.questions {
		if q.to == nil {
			waiting[q.place] = q
		}
	}
	for _, e := range events {
		to, ok := s.put(e) // there was room for it before, which somebody else may have by now
		switch q := waiting[e.Seq]; {
		case q == nil:
		case ok:
			s.placed(q, to)
		default:
			q.place = 0 // nowhere: it expires
		}
	}
}

// placed notes where a question is: on a stream, or last among what is pending.
// The caller holds s.mu.
func (s *Session) placed(q *question, to bridge.Stream) {
	q.to = to
	if to == nil {
		q.place = s.pending.Last()
	} else if q.timer != nil {
		q.timer.Reset(questionTTL)
	}
}

// standing sends an event on the newest stream for what belongs to no call, and returns
// it; nil means that none takes it. The caller holds s.mu.
func (s *Session) standing(e replay.Event) bridge.Stream {
	if s.ready {
		for _, st := range slices.Backward(s.streams) {
			if st.Send(e) {
				return st.Stream
			}
		}
	}
	return nil
}

// attended is a stream that knows whether its client reads it.
type attended interface{ Attended() bool }

// ofCall sends a question on the stream of the newest call whose client reads it, and
// returns it; nil means that none takes it. All lead to the same client. The caller holds
// s.mu.
func (s *Session) ofCall(e replay.Event) bridge.Stream {
	for c := s.calls; c != nil; c = c.next {
		if a, ok := c.back.(attended); ok && a.Attended() && c.back.Send(e) {
			return c.back
		}
	}
	return nil
}

// put sends an event on the newest standing stream that takes it, or keeps it until
// there is one. It reports false when there is no room to keep it. The caller
// holds s.mu.
func (s *Session) put(e replay.Event) (to bridge.Stream, ok bool) {
	if to := s.standing(e); to != nil {
		return to, true
	}
	if s.pending == nil {
		s.pending = s.b.NewLog(s.caller.Principal, pendingLimits, false)
	}
	return nil, s.pending.Append(e) == nil
}

// only returns the one call under way, if there is exactly one. The caller
// holds s.mu.
func (s *Session) only() *Call {
	if s.callCount != 1 {
		return nil
	}
	return s.calls
}

// NewLog makes the log of a stream to a client of that principal, within what all
// of them may hold. keeps says that the client may come back for what was written
// to it.
func (b *Gateway) NewLog(principal string, l replay.Limits, keeps bool) *replay.Log {
	l.Dropped, l.Room = &b.dropped, b.bytes.Room(principal).Outgoing()
	if keeps {
		l.History = b.bytes.History()
	}
	return replay.New(l)
}
