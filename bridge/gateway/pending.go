package gateway

import (
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// pendingLimits bound the queue of events that wait for a standing stream.
var pendingLimits = replay.Limits{
	Events: 256,
	Bytes:  4 << 20,
	Hard:   32 << 20,
}

func (s *sitting) Attach(st bridge.Stream) (detach func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &attachment{st}
	s.streams = append(s.streams, a)
	s.flush()
	if b := s.bindings.Current(); !b.Handover.Done() && len(s.held.Subs)+len(s.held.Carry) > 0 && !s.ending {
		s.wg.Go(func() { s.restore(b) })
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(o *attachment) bool { return o == a })
		s.touch()
		s.left.Store(len(s.streams) == 0)
	}
}

// attachment is the stream of one call of Attach. A stream can be attached twice, so the pointer tells them apart.
type attachment struct{ bridge.Stream }

// begin marks the client as ready, and sends the pending events. The caller holds s.mu.
func (s *sitting) begin() {
	if !s.ready {
		s.ready = true
		s.flush()
	}
}

// flush moves pending events to the streams. The caller holds s.mu.
func (s *sitting) flush() {
	if !s.ready || s.pending == nil || len(s.streams) == 0 {
		return
	}
	events, _ := s.pending.After(0)
	if n := s.pending.Drops(); n > 0 {
		s.log.Warn("notifications dropped: the client had no stream open", "count", n)
	}
	s.pending.Close() // frees its bytes, so that the streams can use them
	s.pending = nil
	waiting := map[int64]*question{}
	for _, q := range s.questions {
		if q.to == nil {
			waiting[q.seq] = q
		}
	}
	for _, e := range events {
		to, ok := s.put(e) // ok is false if another client took the freed bytes
		switch q := waiting[e.Seq]; {
		case q == nil:
		case ok:
			s.placed(q, to)
		default:
			q.seq = 0 // the event was dropped: expire answers the question
		}
	}
}

// placed records that a question went to a stream, or to the end of pending if to is nil.
// The caller holds s.mu.
func (s *sitting) placed(q *question, to bridge.Stream) {
	q.to = to
	if to == nil {
		q.seq = s.pending.Last()
	} else if q.timer != nil {
		q.timer.Reset(questionTTL)
	}
}

// standing sends e on the newest standing stream that takes it, and returns the stream. It returns nil if no stream
// takes e, or the client is not ready. The caller holds s.mu.
func (s *sitting) standing(e replay.Event) bridge.Stream {
	if s.ready {
		for _, st := range slices.Backward(s.streams) {
			if st.Send(e) {
				return st.Stream
			}
		}
	}
	return nil
}

// attended is a bridge.Stream that knows whether its client reads it.
type attended interface{ Attended() bool }

// ofCall sends a question on the stream of the newest call whose client reads it, and returns the stream, or nil if
// there is none. The question need not be about that call. The caller holds s.mu.
func (s *sitting) ofCall(e replay.Event) bridge.Stream {
	for c := s.calls; c != nil; c = c.next {
		if a, ok := c.back.(attended); ok && a.Attended() && c.back.Send(e) {
			return c.back
		}
	}
	return nil
}

// put sends e on a standing stream, or adds e to pending and returns a nil stream. ok is false if pending is full. The
// caller holds s.mu.
func (s *sitting) put(e replay.Event) (to bridge.Stream, ok bool) {
	if to := s.standing(e); to != nil {
		return to, true
	}
	if s.pending == nil {
		s.pending = s.g.NewLog(s.caller.Principal, pendingLimits, false)
	}
	return nil, s.pending.Append(e) == nil
}

// onlyCall returns the call in flight if there is exactly one. The caller holds s.mu.
func (s *sitting) onlyCall() *call {
	if s.callCount != 1 {
		return nil
	}
	return s.calls
}

func (g *gateway) NewLog(principal string, l replay.Limits, keeps bool) *replay.Log {
	l.Dropped, l.Room = &g.dropped, g.bytes.Room(principal).Outgoing()
	if keeps {
		l.History = g.bytes.History()
	}
	return replay.New(l)
}
