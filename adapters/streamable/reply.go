package streamable

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// refuse answers with an HTTP status and a JSON-RPC error.
func refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	w.Header()["Content-Type"] = jsonType
	begin(w, status, 0)
	send(w, jsonrpc.NewError(id, code, text, nil).Append(nil, id, nil))
}

// defaultRetryAfter is the time in Retry-After if begin is called without one.
const defaultRetryAfter = 5 * time.Second

// begin writes the status, and for 429 and 503 the header Retry-After with after, or
// defaultRetryAfter if after is 0.
func begin(w http.ResponseWriter, status int, after time.Duration) {
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		if after <= 0 {
			after = defaultRetryAfter
		}
		httpio.RetryAfter(w.Header(), after)
	}
	w.WriteHeader(status)
}

// send writes a body. The time for a client to read it is limited. send ignores errors, which mean
// that the client has disconnected or does not read.
func send(w http.ResponseWriter, parts ...[]byte) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size <= copied { // fits into the connection's buffers, so that no write waits
		for _, p := range parts {
			_, _ = w.Write(p)
		}
		return
	}
	rc := http.NewResponseController(w)
	httpio.Deadline(rc, size)
	for _, p := range parts {
		_, _ = w.Write(p)
	}
	_ = rc.Flush() // within the same deadline
	_ = rc.SetWriteDeadline(time.Time{})
}

// refuseHalf answers a client that has disconnected before the answer. A client that has closed
// only its own side of the connection still reads, and would take an empty 200 for an answer. HTTP
// cannot tell the two apart.
func refuseHalf(w http.ResponseWriter) {
	refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "the connection was closed on your side before the answer: keep it open until then")
}

func refuseBody(w http.ResponseWriter, err error) {
	if invalid, ok := errors.AsType[*jsonrpc.InvalidError](err); ok {
		refuse(w, http.StatusBadRequest, invalid.ID, invalid.Code(), invalid.Error())
		return
	}
	refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeParse, err.Error())
}

// reply writes the stream as the response to a POST: as JSON if it has only answers, or else as events.
// fresh is set for the POST that creates a session. reply reports whether the client was connected
// when the answer came.
func (s *stream) reply(w http.ResponseWriter, r *http.Request, fresh bool) bool {
	late := s.as.late()
	if !s.as.json {
		s.beginStream()
	}
	for !s.isStreaming() {
		if answers, ok := s.complete(); ok {
			if len(answers) == 0 { // all were cancelled
				w.WriteHeader(http.StatusAccepted)
				return r.Context().Err() == nil
			}
			if fresh && len(answers) == 1 && answers[0].err == nil {
				w.Header()[sessionHeader] = []string{s.p.id}
			}
			there := r.Context().Err() == nil // read before the write, after which the client may disconnect
			if status := refusedStatus(answers[0].err); fresh && status != http.StatusOK {
				writeAnswer(w, status, answers[0])
			} else {
				writeAnswers(w, answers, s.batch)
			}
			return there
		}
		select {
		case <-s.wake:
		case <-late:
			s.beginStream()
		case <-r.Context().Done():
			s.disconnected() // does not end the call
			refuseHalf(w)
			return false
		}
	}
	// If the session ends, its calls end with an error, which is the answer that ends this stream.
	if fresh {
		w.Header()[sessionHeader] = []string{s.p.id}
		return s.respond(w, r, reading{}) // without prime, since no revision is agreed yet
	}
	return s.respond(w, r, reading{prime: s.p.primes()})
}

// primes reports whether the client expects a first event with only an id. Older clients fail on such
// an event.
func (p *peer) primes() bool { return p.Revision() >= era.Rev20251125 }

// writeAnswers writes the answers as JSON: one, or an array for a batch.
func writeAnswers(w http.ResponseWriter, answers []answered, batch bool) {
	if !batch {
		writeAnswer(w, sessionStatus(answers[0].err), answers[0])
		return
	}
	parts := [][]byte{{'['}}
	for i, a := range answers {
		defer a.m.Release() // after the write, since parts shares the message's memory
		head := []byte(`{"jsonrpc":"2.0"`)
		if i > 0 {
			head = []byte(`,{"jsonrpc":"2.0"`)
		}
		if a.m.ID != nil {
			head = append(append(head, `,"id":`...), a.m.ID...)
		}
		at := len(parts)
		member, pieces := a.m.Payload(append(parts, nil))
		pieces[at] = append(append(append(head, `,"`...), member...), `":`...)
		parts = append(pieces, closing)
	}
	w.Header()["Content-Type"] = jsonType
	send(w, append(parts, []byte{']'})...)
}

// copied is the size, in bytes, up to which an answer is copied into one buffer before it is written.
// A larger answer is written in pieces.
const copied = 2 << 10

// refusedStatus returns the HTTP status for an answer that is a refusal of the bridge because of
// err (protocol.md F). For any other answer, including an error, it returns 200 (D7).
func refusedStatus(err error) int {
	switch {
	case err == nil:
	case errors.Is(err, bridge.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, bridge.ErrLimited):
		return http.StatusTooManyRequests
	case errors.Is(err, bridge.ErrOverloaded), errors.Is(err, bridge.ErrOpen), errors.Is(err, bridge.ErrDrained), errors.Is(err, bridge.ErrShutdown):
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// sessionStatus returns the HTTP status for an answer to a call of a session. For a temporary
// refusal it returns 200, so that the model gets the limit and the time of the next try. With 429
// or 503, the client of the Go SDK does not read the body, and the client of the TypeScript SDK (1.32
// and 2.4) shows it as raw text. It returns 503 if the bridge stops and 403 for a forbidden server,
// since these concern the client and not the model.
func sessionStatus(err error) int {
	status := refusedStatus(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && !errors.Is(err, bridge.ErrShutdown) {
		return http.StatusOK
	}
	return status
}

// writeAnswer writes one answer, and releases it.
func writeAnswer(w http.ResponseWriter, status int, a answered) {
	m := a.m
	defer m.Release()
	buf := jsonrpc.NewBuffer(0)
	defer buf.Free()
	var room [8][]byte
	member, pieces := m.Payload(room[:1]) // the first piece is for the part before the payload
	buf.B = append(buf.B, `{"jsonrpc":"2.0"`...)
	if m.ID != nil {
		buf.B = append(append(buf.B, `,"id":`...), m.ID...)
	}
	buf.B = append(append(append(buf.B, `,"`...), member...), `":`...)
	size := len(buf.B)
	for _, piece := range pieces {
		size += len(piece)
	}
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(size + len(closing))}
	if status != http.StatusOK {
		begin(w, status, bridge.RetryAfter(a.err))
	}
	if size <= copied {
		for _, piece := range pieces {
			buf.B = append(buf.B, piece...)
		}
		_, _ = w.Write(append(buf.B, closing...))
		return
	}
	pieces[0] = buf.B
	send(w, append(pieces, closing)...)
}
