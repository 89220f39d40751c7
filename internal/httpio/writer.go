package httpio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/mcp-bridge/bridge/bridge/replay"
)

// writeLimit and slowLine bound how long a write may wait for a client that does not read: for writeLimit, plus the
// time that the bytes take at slowLine. Then the write fails.
const (
	writeLimit = 30 * time.Second
	slowLine   = 64 << 10 // bytes per second
)

// Deadline sets the deadline for the next write of n bytes, by writeLimit and slowLine.
func Deadline(d Deadliner, n int) {
	_ = d.SetWriteDeadline(time.Now().Add(writeLimit + time.Duration(n)*time.Second/slowLine)) // a connection without support has no deadline
}

// Deadliner is a connection with write deadlines.
type Deadliner interface{ SetWriteDeadline(time.Time) error }

// Writer writes one response as a stream of events. It is for one goroutine.
type Writer struct {
	s    sink
	c    Deadliner
	head bytes.Buffer // what precedes the data of the event that Send writes
}

// sink buffers small writes until Flush.
type sink interface {
	io.Writer
	Flush() error
}

// OpenWriter begins the response, with the headers that the caller has set. The caller calls Close at the end.
func OpenWriter(w http.ResponseWriter, r *http.Request) (*Writer, error) {
	setHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	Deadline(rc, 0)
	if f, ok := w.(http.Flusher); ok {
		f.Flush() // wrappers note that the header is written
	}
	s, err := sse.Upgrade(innermost(w), r)
	if err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	return &Writer{s: s.Res, c: rc}, nil
}

func setHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream") // no charset: clients compare the whole value, and the text is always UTF-8
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
}

// innermost returns the response writer inside all wrappers. Its flush reports errors.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// MaxBytes is http.MaxBytesReader, which closes the connection after a body that is too large, but for wrapped writers,
// too.
func MaxBytes(w http.ResponseWriter, body io.ReadCloser, most int64) io.ReadCloser {
	return http.MaxBytesReader(innermost(w), body, most)
}

// Event is one server-sent event. Send leaves out its empty parts.
type Event struct {
	ID    string
	Type  string
	Data  []byte        // one line, which must not change while the event is written
	Prime bool          // the event has its id, and empty data
	Retry time.Duration // pause of the client before it resumes the stream; 0 leaves it out
}

// Send writes an event to the buffer. Flush sends it.
func (w *Writer) Send(e Event) error {
	Deadline(w.c, len(e.Data))
	m := sse.Message{Retry: e.Retry}
	if e.ID != "" {
		m.ID = sse.ID(e.ID)
	}
	if e.Type != "" {
		m.Type = sse.Type(e.Type)
	}
	if e.Prime {
		m.AppendData("\n")
	}
	if len(e.Data) == 0 || bytes.IndexByte(e.Data, '\n') >= 0 || bytes.IndexByte(e.Data, '\r') >= 0 {
		m.AppendData(string(e.Data))
		_, err := m.WriteTo(w.s)
		return err
	}
	// AppendData would look at each byte. For an answer of 1 MB, that takes a seventh of the time of the call.
	w.head.Reset()
	_, _ = m.WriteTo(&w.head) // a bytes.Buffer does not fail
	w.head.Truncate(max(w.head.Len()-len("\n"), 0))
	w.head.WriteString("data: ")
	for _, part := range [...][]byte{w.head.Bytes(), e.Data, []byte("\n\n")} {
		if _, err := w.s.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Beat sends a comment, so that no proxy takes the connection for dead.
func (w *Writer) Beat() error {
	Deadline(w.c, 0)
	var m sse.Message
	m.AppendComment("ping")
	if _, err := m.WriteTo(w.s); err != nil {
		return err
	}
	return w.s.Flush()
}

// ErrStopped means that Stop or Done of a Serving was closed.
var ErrStopped = errors.New("the stream was stopped")

// Serving configures Serve.
type Serving struct {
	Heartbeat  time.Duration   // interval of the comments
	Wake       <-chan struct{} // signals that there is something to write
	Stop, Done <-chan struct{} // each ends the stream when it is closed; a nil channel does not
}

// Serve calls write at once, and after each signal of Wake. It returns when write fails, with its error, and when the
// stream ends, with ErrStopped or the cause of ctx.
func (w *Writer) Serve(ctx context.Context, s Serving, write func() error) error {
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		if err := write(); err != nil {
			return err
		}
		select {
		case <-s.Wake:
		case <-beat.C:
			if err := w.Beat(); err != nil {
				return err
			}
		case <-s.Stop:
			return ErrStopped
		case <-s.Done:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Drain sends the messages of log, and removes what was sent. So the bytes of log are what is still to be sent.
func (w *Writer) Drain(log *replay.Log) error {
	for {
		events := log.Next(0)
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			if err := w.Send(Event{Type: "message", Data: e.Data}); err != nil {
				return err
			}
		}
		log.Forget(events[len(events)-1].Seq) // all but a few KiB of them were sent
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// Flush sends what was written, before the deadline that Send set.
func (w *Writer) Flush() error { return w.s.Flush() }

// Close removes the deadline, so that the connection can serve the next request.
func (w *Writer) Close() { _ = w.c.SetWriteDeadline(time.Time{}) }
