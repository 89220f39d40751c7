package streamable

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// pour writes an event without end, until the reader has left, and returns
// how much that was.
func pour(w http.ResponseWriter, r *http.Request, begin string) (n int64) {
	_, _ = io.WriteString(w, begin)
	flush(w)
	for text := strings.Repeat("x", 32<<10); r.Context().Err() == nil; n += int64(len(text)) {
		if _, err := io.WriteString(w, text); err != nil {
			break
		}
	}
	return n
}

// An event without end on the stream of a call ends the call as too large, and the
// stream with it, whatever it is about. A subscription is lost with its stream.
func TestUpstreamEndless(t *testing.T) {
	const limit = 200 << 10
	for _, c := range []struct {
		name, begin, ask string
		modern           bool
		lost             bool
	}{
		{"an id first", `data: {"jsonrpc":"2.0","id":$id,"result":"`, ask, false, false},
		{"an id last", `data: {"jsonrpc":"2.0","result":"`, ask, false, false},
		{"an id of the event", "id: 5\ndata: {\"jsonrpc\":\"2.0\",\"result\":\"", ask, false, false},
		{"progress", `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$id,"message":"`, ask, false, false},
		{"no JSON", `data: `, ask, false, false},
		{"modern", `data: {"jsonrpc":"2.0","result":"`, ask, true, false},
		{"a subscription", `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":"`, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			poured := make(chan int64, 1)
			post := func(w http.ResponseWriter, r *http.Request, id string) {
				events(w)
				poured <- pour(w, r, strings.ReplaceAll(c.begin, "$id", id))
			}
			var up bridge.Upstream
			if o := (conn.Options{MaxMessage: limit}); c.modern {
				up, _ = newModern(t, post).visit(t, o)
			} else {
				up, _ = newScript(t, &script{session: "s", post: post}).connect(t, o)
			}
			o := adaptertest.Call(t.Context(), t, up, nil, c.ask)
			if c.lost {
				if !errors.Is(o.Err, bridge.ErrLost) {
					t.Errorf("%.200q, %v", o.Answer, o.Err)
				}
			} else if o.Err != nil || !strings.Contains(o.Answer, "upstream_too_large") || !strings.Contains(o.Answer, "larger than the limit of 204800 bytes") {
				t.Errorf("%.200q, %v", o.Answer, o.Err)
			}
			select {
			case n := <-poured:
				if most := int64(16 << 20); n > most { // what the kernel keeps is beyond what was read
					t.Errorf("%d bytes were taken, want %d at most", n, most)
				}
			case <-t.Context().Done():
				t.Fatal("the stream is read yet")
			}
		})
	}
}

// An event without end on the standalone stream has it opened again, behind that
// event; the connection lives.
func TestUpstreamStandingEndless(t *testing.T) {
	s := &script{session: "s"}
	var opened atomic.Int64
	var last atomic.Value
	s.get = func(w http.ResponseWriter, r *http.Request) {
		n := opened.Add(1)
		last.Store(r.Header.Get("Last-Event-Id"))
		events(w)
		if n == 1 {
			pour(w, r, "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":\"")
			return
		}
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"after\"}\n\n")
		flush(w)
		backoff.For(r.Context(), time.Hour)
	}
	s.post = func(w http.ResponseWriter, _ *http.Request, id string) { plainly(w, id, `{}`) }
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		u.o.MaxMessage, u.limit = 1<<20, 1<<20+conn.EnvelopeRoom
		up := open(t, u, rest)
		defer up.Close(context.Background())
		synctest.Wait()
		wiretest.Advance(5 * time.Second)
		synctest.Wait()
		if said := strings.Join(rest.Said(), " "); opened.Load() != 2 || last.Load() != "7" || !strings.Contains(said, "after") {
			t.Errorf("%d streams, the last one behind %q, on which came %q", opened.Load(), last.Load(), said)
		}
		adaptertest.Call(t.Context(), t, up, nil, ask).Result(t)
		if gone := rest.Gones(); len(gone) > 0 {
			t.Errorf("Gone(%v)", gone)
		}
	})
}
