package httpio

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// written returns what Writer makes of the events.
func written(t testing.TB, events ...Event) string {
	t.Helper()
	rec := httptest.NewRecorder()
	w, err := OpenWriter(rec, httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := w.Send(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return rec.Body.String()
}

func TestWriter(t *testing.T) {
	tests := []struct {
		name string
		e    Event
		want string
	}{
		{"all", Event{ID: "p1-1", Type: "message", Data: []byte(`{"a":1}`)}, "id: p1-1\nevent: message\ndata: {\"a\":1}\n\n"},
		{"endpoint", Event{Type: "endpoint", Data: []byte("/messages?sessionId=X")}, "event: endpoint\ndata: /messages?sessionId=X\n\n"},
		{"lines", Event{Type: "message", Data: []byte("a\nb\rc")}, "event: message\ndata: a\ndata: b\ndata: c\n\n"},
		{"priming (R-038)", Event{ID: "p1-0", Prime: true}, "id: p1-0\ndata: \n\n"},
	}
	for _, test := range tests {
		if got := written(t, test.e); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// The headers keep proxies from holding events back.
func TestHeaders(t *testing.T) {
	rec := httptest.NewRecorder()
	w, err := OpenWriter(rec, httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Beat(); err != nil {
		t.Fatal(err)
	}
	h := rec.Header()
	if rec.Code != 200 || !rec.Flushed || h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" ||
		!strings.Contains(h.Get("Cache-Control"), "no-transform") || rec.Body.String() != ": ping\n\n" {
		t.Errorf("%d %v %q", rec.Code, h, rec.Body)
	}
}

func TestNoStream(t *testing.T) {
	if _, err := OpenWriter(noFlush{httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil)); err == nil {
		t.Error("Open succeeded without a way to flush")
	}
}

// noFlush is a ResponseWriter that cannot stream.
type noFlush struct{ w *httptest.ResponseRecorder }

func (n noFlush) Header() http.Header         { return n.w.Header() }
func (n noFlush) Write(b []byte) (int, error) { return n.w.Write(b) }
func (n noFlush) WriteHeader(status int)      { n.w.WriteHeader(status) }

// timed notes the deadlines that it is given.
type timed struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (t *timed) SetWriteDeadline(at time.Time) error {
	t.last = at
	return nil
}

// A large event has the time that it needs on a slow line, and afterwards no deadline is left.
func TestDeadline(t *testing.T) {
	d := &timed{ResponseRecorder: httptest.NewRecorder()}
	w, err := OpenWriter(d, httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		size int
		want time.Duration
	}{{0, 30 * time.Second}, {64 << 10, 31 * time.Second}, {16 << 20, 286 * time.Second}} {
		if err := w.Send(Event{Data: make([]byte, test.size)}); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(d.last); got > test.want || got < test.want-5*time.Second {
			t.Errorf("%d bytes have %v, want %v", test.size, got, test.want)
		}
	}
	w.Close()
	if !d.last.IsZero() {
		t.Errorf("a deadline is left: %v", d.last)
	}
}

// What is sent is what another implementation reads: payloads with any text in them, of any size.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"", "plain", "a\r\nb\rc\nd", "\u2028\u2029\u0085", "data: x\n\nid: y", "\ufeff", "\x00", ": comment", "\xff\xfe", "🦆"} {
		f.Add(text, "{\n \"a\" : 1\r\n}", 1)
	}
	f.Add("x", "{}", 200_000)
	f.Fuzz(func(t *testing.T, text, params string, times int) {
		text = strings.Repeat(text, max(1, min(times, 1<<20/(len(text)+1))))
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"m","params":` + params + `}`))
		if err != nil {
			m = jsonrpc.NewNotification("m", nil)
		}
		sent := [][]byte{
			m.Append(nil, nil, nil),
			jsonrpc.NewError([]byte(`"1"`), 1, text, nil).Append(nil, []byte(`"1"`), nil),
			jsonrpc.NewCancelled([]byte("1"), text).Append(nil, nil, nil),
		}
		stream := written(t, Event{ID: "p-0", Prime: true}, Event{ID: "p-1", Type: "message", Data: sent[0]},
			Event{ID: "p-2", Type: "message", Data: sent[1]}, Event{Data: sent[2]})
		var got []sse.Event
		for e, err := range sse.Read(strings.NewReader(stream), &sse.ReadConfig{MaxEventSize: 64 << 20}) {
			if err != nil {
				t.Fatalf("Read = %v", err)
			}
			if e.Data != "" {
				got = append(got, e)
			}
		}
		if len(got) != len(sent) {
			t.Fatalf("sent %d events, read %d: %.300q", len(sent), len(got), stream)
		}
		for i, e := range got {
			if e.Data != string(sent[i]) {
				t.Errorf("event %d: read %.200q, sent %.200q", i, e.Data, sent[i])
			}
			if _, err := jsonrpc.Parse([]byte(e.Data)); err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if got[0].LastEventID != "p-1" || got[1].LastEventID != "p-2" || got[0].Type != "message" {
			t.Errorf("read %.300v", got)
		}
	})
}
