package httpio

import (
	"fmt"
	"net/http"
	"time"
	"unsafe"

	"github.com/tmaxmax/go-sse"

	"github.com/mcp-bridge/bridge/bridge/replay"
)

// A client may leave what was written unread for writeLimit, and as long again
// as the bytes take on a slow line, before its connection is given up.
const (
	writeLimit = 30 * time.Second
	slowLine   = 64 << 10 // bytes per second
)

// Deadline bounds the time in which the next n bytes of a response have to be
// on their way.
func Deadline(c Deadliner, n int) {
	_ = c.SetWriteDeadline(time.Now().Add(writeLimit + time.Duration(n)*time.Second/slowLine)) // what cannot have one has none
}

// Deadliner is a connection, or what stands for one.
type Deadliner interface{ SetWriteDeadline(time.Time) error }

// Writer writes one response as a stream of events. It is for one goroutine.
type Writer struct {
	s sink
	c Deadliner
}

// sink is where events go: an *sse.Session, or a connection of our own.
type sink interface {
	Send(*sse.Message) error
	Flush() error
}

// OpenWriter begins the response. Headers that the caller has set are sent too.
// Close ends it.
func OpenWriter(w http.ResponseWriter, r *http.Request) (*Writer, error) {
	setHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	Deadline(rc, 0)
	if f, ok := w.(http.Flusher); ok {
		f.Flush() // a wrapper learns that the header is written
	}
	s, err := sse.Upgrade(innermost(w), r)
	if err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	return &Writer{s: s, c: rc}, nil
}

func setHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
}

// innermost returns the response writer below all wrappers: there, flushing
// reports errors.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// Event is one server-sent event; empty parts are left out.
type Event struct {
	ID    string
	Type  string
	Data  []byte        // one line; it must not change while the event is written
	Prime bool          // send the id with empty data
	Retry time.Duration // tell the client how long to wait before it comes back; 0 leaves it out
}

// Send writes an event. Flush brings it on its way.
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
	} else if len(e.Data) > 0 {
		m.AppendData(unsafe.String(unsafe.SliceData(e.Data), len(e.Data)))
	}
	return w.s.Send(&m)
}

// Beat writes a comment, so that nobody in between takes the connection for
// dead, and flushes it.
func (w *Writer) Beat() error {
	Deadline(w.c, 0)
	var m sse.Message
	m.AppendComment("ping")
	if err := w.s.Send(&m); err != nil {
		return err
	}
	return w.s.Flush()
}

// Drain writes the messages that wait in log, and has it forget them bit by bit: its
// bytes are what is left.
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
		log.Forget(events[len(events)-1].Seq) // but for a few KiB they are on their way
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// Flush sends what was written, within the time that Send gave it.
func (w *Writer) Flush() error { return w.s.Flush() }

// Close leaves the connection as it was found: usable for the next request.
func (w *Writer) Close() { _ = w.c.SetWriteDeadline(time.Time{}) }
