package gateway

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"

	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// receiver is a session as its server's connection sees it, which is part of way.
type receiver struct {
	s   *Session
	way *binding[*server]
}

var (
	_ bridge.Client = receiver{}
	_ bridge.Client = (*Call)(nil)
)

// Notify passes on what the server says outside of progress. A log message
// goes with the call under way when there is only one that it can be about.
func (r receiver) Notify(n *jsonrpc.Message) {
	s := r.s
	if what := subscribe.Changed(n); what != "" {
		s.changes.Notify(what, n)
		return
	}
	s.b.calls.Passed(s.server, s.shown(), s.caller, false, nil, n)
	e := NotificationEvent(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return
	}
	if n.Method == "notifications/message" {
		if c := s.only(); c != nil && c.back != nil && c.back.Send(e) {
			return
		}
	}
	s.put(e)
}

// tell tells the client that something has changed.
func (s *Session) tell(n *jsonrpc.Message) {
	s.b.calls.Passed(s.server, s.shown(), s.caller, false, nil, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.put(NotificationEvent(n))
	}
}

// Ask passes on a question. It goes with the call under way when there is only
// one that it can be about.
func (r receiver) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	r.s.mu.Lock()
	c := r.s.only()
	r.s.mu.Unlock()
	return r.s.ask(q, reply, c)
}

// Gone ends the session: its server has ended and will not be replaced.
func (r receiver) Gone(err error) {
	if r.way.Counts() { // otherwise the session goes on with another connection
		r.s.End(err)
	}
}

// ask numbers a question and puts it to the client: on the stream of the call that it is
// about when that is known, on a standing stream, or on that of another call.
func (s *Session) ask(q *jsonrpc.Message, reply func(*jsonrpc.Message), about *Call) (withdraw func(why string)) {
	mine := s.caller.Revision // where the server's is another one, the lift has made the question fit
	params, no := era.Question(q.Method, q.Params, mine, mine, s.caller.Capabilities, uuid.NewString)
	if no != nil {
		reply(no.Answer())
		return nil
	}
	q = q.WithParams(params)
	if about == nil || about.span == nil {
		return s.pose(q, reply, about)
	}
	q, reply, ended := s.b.tracing.Question(about.span, q, reply)
	back := s.pose(q, reply, about)
	if back == nil {
		return nil
	}
	return func(why string) {
		back(why)
		ended()
	}
}

// pose puts the question, which is such as the client understands it.
func (s *Session) pose(q *jsonrpc.Message, reply func(*jsonrpc.Message), about *Call) (withdraw func(why string)) {
	s.mu.Lock()
	if s.ending || len(s.questions) >= bridge.MaxQuestions {
		s.mu.Unlock()
		reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the client is gone or has too many unanswered questions", nil))
		return nil
	}
	s.asked++
	id := strconv.AppendInt(nil, s.asked, 10)
	w := &question{reply: reply}
	if token := q.Token(); token != nil {
		w.token = append([]byte(nil), token...)
	}
	if s.questions == nil {
		s.questions = map[string]*question{}
	}
	s.questions[string(id)] = w
	s.b.calls.Passed(s.server, s.shown(), s.caller, false, id, q)
	e := replay.Event{Data: q.Append(make([]byte, 0, q.Len()), id, id), Must: true}
	ttl := questionTTL
	switch {
	case about != nil && about.back != nil && about.back.Send(e):
		w.to = about.back
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
			reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, "too much waits for the client already", nil))
			return nil
		}
		if s.placed(w, to); to == nil {
			ttl = streamTTL
		}
	}
	w.timer = time.AfterFunc(ttl, func() { s.expire(string(id), w) })
	s.mu.Unlock()
	return func(why string) {
		s.withdraw(string(id), w, cmp.Or(why, "the server does not want the answer any more"))
	}
}

// take removes the question of that id, so that exactly one party settles it.
func (s *Session) take(id string, w *question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.questions[id] != w {
		return false
	}
	delete(s.questions, id)
	w.timer.Stop()
	return true
}

// withdraw takes a question back from the client. It reports whether there
// was no answer yet.
func (s *Session) withdraw(id string, w *question, why string) bool {
	if !s.take(id, w) {
		return false
	}
	e := replay.Event{Data: jsonrpc.NewCancelled([]byte(id), why).Append(nil, nil, nil), Must: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.to != nil && w.to.Send(e):
	case w.to != nil:
		e.Must = false // a courtesy: it must not fill the queue of a client that has no stream
		s.put(e)
	case s.pending != nil:
		s.pending.Remove(w.place) // the client has not seen it
	}
	return true
}

// expire gives up a question.
func (s *Session) expire(id string, w *question) {
	s.mu.Lock()
	unsent := w.to == nil
	s.mu.Unlock()
	if !s.withdraw(id, w, "the answer took too long") {
		return
	}
	why := "the client did not answer in time"
	if unsent {
		why = "the client has no stream open on which it can be asked: it sends no GET, or its Accept lacks text/event-stream"
	}
	w.reply(jsonrpc.NewError(nil, jsonrpc.CodeInternal, why, nil))
}

// Answer takes the client's answer to a question. It reports an answer that
// nobody waits for, which is no fault: it may be late.
func (s *Session) Answer(m *jsonrpc.Message) error {
	s.Seen()
	s.b.calls.Passed(s.server, s.shown(), s.caller, true, m.ID, m)
	id := string(jsonrpc.Unquoted(m.ID)) // there are clients that give numbers back as text
	s.mu.Lock()
	w := s.questions[id]
	s.mu.Unlock()
	if w == nil || !s.take(id, w) {
		return errNobodyWaits
	}
	w.reply(m)
	return nil
}

var errNobodyWaits = errors.New("nobody waits for this answer")
