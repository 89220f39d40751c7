package gateway

import (
	"cmp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// question is a request of the server that waits for the answer of the client.
type question struct {
	token []byte // the server's raw progress token
	reply func(*jsonrpc.Message)
	to    bridge.Stream // stream that carries it; nil while it is in sitting.pending
	seq   int64         // number of its event in pending; 0 if the event was dropped
	timer *time.Timer
}

// questionTTL and streamTTL limit how long a question waits.
const (
	questionTTL = 10 * time.Minute // for the answer, once a stream carries the question
	streamTTL   = 30 * time.Second // for a stream that can carry the question (D3)
)

// ask sends a question to the client on the stream of the call that it is about. If that stream takes no more, ask uses
// a standing stream, then the stream of another call, and at last queues the question for a later stream.
func (s *sitting) ask(m *jsonrpc.Message, reply func(*jsonrpc.Message), about *call) (withdraw func(why string)) {
	mine := s.caller.Revision // lift has already translated the questions of a modern server
	params, no := era.Question(m.Method, m.Params, mine, mine, s.caller.Capabilities, uuid.NewString)
	if no != nil {
		reply(no.Answer())
		return nil
	}
	m = m.WithParams(params)
	if about == nil || about.span == nil {
		return s.send(m, reply, about)
	}
	m, reply, ended := s.g.tracing.Question(about.span, about.with.Header, mine, s.shortID(), m, reply)
	back := s.send(m, reply, about)
	if back == nil {
		return nil
	}
	return func(why string) {
		back(why)
		ended()
	}
}

// send sends m, which fits the client's revision. It returns nil if it answered m with an error at once.
func (s *sitting) send(m *jsonrpc.Message, reply func(*jsonrpc.Message), about *call) (withdraw func(why string)) {
	s.mu.Lock()
	if s.ending || len(s.questions) >= bridge.MaxQuestions {
		s.mu.Unlock()
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client is gone or has too many unanswered questions", nil))
		return nil
	}
	s.asked++
	id := strconv.AppendInt(nil, s.asked, 10)
	q := &question{reply: reply}
	if token := m.Token(); token != nil {
		q.token = append([]byte(nil), token...)
	}
	if s.questions == nil {
		s.questions = map[string]*question{}
	}
	s.questions[string(id)] = q
	s.g.calls.Passed(s.server, s.shortID(), s.caller, false, id, m)
	e := replay.Event{Data: m.Append(make([]byte, 0, m.Len()), id, id), Must: true}
	ttl := questionTTL
	switch {
	case about != nil && about.back != nil && about.back.Send(e):
		q.to = about.back
	default:
		to, ok := s.standing(e), true
		if to == nil {
			to = s.ofCall(e)
		}
		if to == nil {
			to, ok = s.put(e)
		}
		if !ok {
			delete(s.questions, string(id))
			s.mu.Unlock()
			reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client's queue is full", nil))
			return nil
		}
		if s.placed(q, to); to == nil {
			ttl = streamTTL
		}
	}
	q.timer = time.AfterFunc(ttl, func() { s.expire(string(id), q) })
	s.mu.Unlock()
	return func(why string) {
		s.withdraw(string(id), q, cmp.Or(why, "the server withdrew the request"))
	}
}

// take removes the question of that id, and reports whether the question was open. So exactly one party answers or
// withdraws it.
func (s *sitting) take(id string, q *question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions[id] != q {
		return false
	}
	delete(s.questions, id)
	q.timer.Stop()
	return true
}

// withdraw cancels a question at the client, and reports whether the question was open.
func (s *sitting) withdraw(id string, q *question, why string) bool {
	if !s.take(id, q) {
		return false
	}
	e := replay.Event{Data: jsonrpc.NewCancelled([]byte(id), why).Append(nil, nil, nil), Must: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case q.to != nil && q.to.Send(e):
	case q.to != nil:
		e.Must = false // a withdrawal may be lost, and must not fill the queue of a client without a stream
		s.put(e)
	case s.pending != nil:
		s.pending.Remove(q.seq) // the client has not seen it
	}
	return true
}

// expire withdraws a question when its time is over, and answers the server with an error.
func (s *sitting) expire(id string, q *question) {
	s.mu.Lock()
	unsent := q.to == nil
	s.mu.Unlock()
	if !s.withdraw(id, q, "the answer took too long") {
		return
	}
	why := "the client did not answer in time"
	if unsent {
		why = "the client has no stream open on which it can be asked: it sends no GET, or its Accept lacks text/event-stream"
	}
	q.reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, why, nil))
}

func (s *sitting) Answer(m *jsonrpc.Message) error {
	s.Seen()
	s.g.calls.Passed(s.server, s.shortID(), s.caller, true, m.ID, m)
	id := string(jsonrpc.Integer(m.ID)) // some clients return numbers as strings
	s.mu.Lock()
	q := s.questions[id]
	s.mu.Unlock()
	if q == nil || !s.take(id, q) {
		return errNobodyWaits
	}
	q.reply(m)
	return nil
}
