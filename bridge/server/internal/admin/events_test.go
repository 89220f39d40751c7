package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/httpio"
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
	for _, tc := range []struct{ events, again int }{{20, 1}, {maxResend + 50, 0}} {
		open := func(left int) (*httpio.Writer, *connection) {
			c := &connection{httptest.NewRecorder(), left}
			out, err := httpio.OpenWriter(c, httptest.NewRequest(http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			return out, c
		}
		s := &stream{key: "key", viewer: &Viewer{Feed: NewFeed()}, query: streamQuery{topics: "traffic"}}
		s.out, _ = open(200)
		for n := range tc.events {
			s.viewer.Put(Event{Type: "message", Data: n})
		}
		if _, err := s.flush(); err == nil {
			t.Fatal("all was written")
		}
		if s.number != tc.events {
			t.Errorf("of %d events %d have a number", tc.events, s.number)
		}
		out, c := open(1 << 20)
		s.out = out
		if err := s.resume(1); err != nil {
			t.Fatal(err)
		}
		text := c.Body.String()
		if got := strings.Count(text, "event: message"); got != tc.again*(tc.events-1) || strings.Contains(text, `"missed":0`) != (tc.again == 1) {
			t.Errorf("of %d events that were not written, the reader gets %d:\n%.300s", tc.events-1, got, text)
		}
	}
}

// bounds is a bridge with a limit of streams.
type bounds struct {
	States
	keyed   bool
	streams int
}

func (b bounds) Keyed() bool            { return b.keyed }
func (b bounds) Config() *config.Config { return &config.Config{ConsoleStreams: b.streams} }

// A caller's streams without a reader take places from each other, and not from those of
// others.
func TestLost(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const streams = 16
			e := &Events{Operator: &Operator{States: bounds{keyed: !alone, streams: streams}}}
			ended := map[string]bool{}
			lose := func(principal string, n int) {
				time.Sleep(time.Millisecond)
				key := fmt.Sprint(principal, n)
				e.detach(&stream{e: e, key: key, c: &Caller{Principal: principal}, ends: []func(){func() { ended[key] = true }}})
			}
			lose("other", 0)
			most := streams / 2
			if alone {
				most = streams - 1
			}
			for n := range 2 * streams {
				lose("own", n)
				e.mu.Lock() // a timer changes it, too
				if oldest := fmt.Sprint("own", n-most); len(e.detached) != min(n+1, most)+1 || n >= most && !ended[oldest] || len(ended) != max(0, n+1-most) || ended["other0"] {
					t.Errorf("alone %t: with %d lost, %d are kept, and %d have ended", alone, n+1, len(e.detached), len(ended))
				}
				e.mu.Unlock()
			}
			for n := range 3 * streams {
				lose(fmt.Sprint("one of many ", n), 0)
			}
			e.mu.Lock()
			if ended["other0"] || len(e.detached) != streams {
				t.Errorf("many callers: %d are kept", len(e.detached))
			}
			e.mu.Unlock()
			time.Sleep(detachedFor)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			if len(e.detached) != 0 || !ended["other0"] {
				t.Errorf("%d are kept after their time", len(e.detached))
			}
		})
	}
}
