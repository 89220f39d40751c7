package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/adapters/eventstream"
)

// connection is one to a reader, which may break.
type connection struct {
	*httptest.ResponseRecorder
	left int // how many bytes can be written
}

func (c *connection) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		return 0, errors.New("it is broken")
	}
	return c.ResponseRecorder.Write(p)
}

func (c *connection) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// What waits when the connection breaks is sent to the reader who comes back, or told as
// missed.
func TestPassBroken(t *testing.T) {
	for _, tc := range []struct{ events, again int }{{20, 1}, {maxAgain + 50, 0}} {
		open := func(left int) (*eventstream.Writer, *connection) {
			c := &connection{httptest.NewRecorder(), left}
			out, err := eventstream.Open(c, httptest.NewRequest(http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			return out, c
		}
		s := &stream{key: "key", looker: &Looker{Feed: NewFeed()}, wants: wanted{topics: "traffic"}}
		s.out, _ = open(200)
		for n := range tc.events {
			s.looker.Put(Event{Type: "message", Data: n})
		}
		if err := s.pass(); err == nil {
			t.Fatal("all was written")
		}
		if s.number != tc.events {
			t.Errorf("of %d events %d have a number", tc.events, s.number)
		}
		out, c := open(1 << 20)
		s.out = out
		if err := s.again(1); err != nil {
			t.Fatal(err)
		}
		text := c.Body.String()
		if got := strings.Count(text, "event: message"); got != tc.again*(tc.events-1) || strings.Contains(text, `"missed":0`) != (tc.again == 1) {
			t.Errorf("of %d events that were not written, the reader gets %d:\n%.300s", tc.events-1, got, text)
		}
	}
}
