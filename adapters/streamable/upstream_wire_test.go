package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// sticky makes each of the script's responses set a cookie.
func sticky(s *script) {
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "node", Value: "1", Path: "/"})
		s.ServeHTTP(w, r)
	})
}

func echo(w http.ResponseWriter, _ *http.Request, id string) { plainly(w, id, "{}") }

// what each request carries, by revision. The cookie by which a balancer pins a session to its
// node is in each request of the connection, and in none of another one.
func TestUpstreamHeaders(t *testing.T) {
	for _, c := range []struct{ revision, want string }{
		{"2024-11-05", ""}, {"2025-03-26", ""}, {"2025-06-18", "2025-06-18"}, {"2025-11-25", "2025-11-25"},
	} {
		t.Run(c.revision, func(t *testing.T) {
			s := newScript(t, &script{session: "s!~", revision: c.revision, post: echo})
			sticky(s)
			u := adapter(t, s.URL+"/mcp?key=v", map[string]string{"X-Own": "own", "X-Both": "own"}, conn.Options{})
			caller := adaptertest.Caller("")
			caller.Header = http.Header{"X-Both": {"first"}}
			up, err := u.Open(t.Context(), caller, &adaptertest.Client{})
			if err != nil {
				t.Fatal(err)
			}
			s.wait(t, 1, "GET")
			call := func(h http.Header) {
				m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask), Header: h})
				if err != nil {
					t.Fatal(err)
				}
				m.Release()
			}
			call(http.Header{"X-Both": {"second"}})
			call(nil)           // of the bridge's own: what came with initialize
			call(http.Header{}) // of this client nothing is forwarded
			if err := up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"note"}`), Header: http.Header{"X-Both": {"third"}}}); err != nil {
				t.Fatal(err)
			}
			s.wait(t, 1, "POST note")
			if err := up.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			another := len(s.requests())
			_ = adaptertest.Open(t, u, &adaptertest.Client{}).Close(t.Context())
			if cookie := s.requests()[another].header["Cookie"]; cookie != nil {
				t.Errorf("another connection begins with the cookie %q", cookie)
			}
			both := map[string][]string{}
			for i, r := range s.requests()[:another] {
				h := r.header
				both[r.line()] = append(both[r.line()], h.Get("X-Both"))
				session, revision, cookie := "s!~", c.want, "node=1"
				if i == 0 {
					session, revision, cookie = "", "", ""
				}
				if h.Get("Cookie") != cookie {
					t.Errorf("%s: Cookie %q", r.line(), h["Cookie"])
				}
				if h.Get("Mcp-Session-Id") != session || h.Get("Mcp-Protocol-Version") != revision || h.Get("X-Own") != "own" {
					t.Errorf("%s: headers %v, want session %q and revision %q", r.line(), h, session, revision)
				}
				if accept := h.Get("Accept"); r.http == "POST" && accept != "application/json, text/event-stream" || r.http == "GET" && accept != "text/event-stream" {
					t.Errorf("%s: Accept %q", r.line(), accept)
				}
				if r.http == "POST" && h.Get("Content-Type") != "application/json" {
					t.Errorf("%s: Content-Type %q", r.line(), h.Get("Content-Type"))
				}
			}
			both["DELETE"] = slices.Compact(both["DELETE"]) // it is sent again if its connection was lost meanwhile
			want := map[string]string{"POST initialize": "first", "POST notifications/initialized": "first", "GET": "first",
				"POST tools/call": "second first own", "POST note": "third", "DELETE": "first"}
			for line, values := range want {
				if got := strings.Join(both[line], " "); got != values {
					t.Errorf("%s: X-Both %q, want %q", line, got, values)
				}
			}
		})
	}
}

// no call goes out before the server has accepted that the handshake is
// over; R-059: 200 and 204 do as well as 202.
func TestUpstreamInitialized(t *testing.T) {
	for _, status := range []int{200, 202, 204} {
		released := make(chan struct{})
		s := newScript(t, &script{note: func(w http.ResponseWriter, _ *http.Request) { <-released; w.WriteHeader(status) }})
		opened := make(chan bridge.Upstream)
		go func() {
			up, err := adapter(t, s.URL, nil, conn.Options{}).Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
			if err != nil {
				t.Errorf("%d: %v", status, err)
			}
			opened <- up
		}()
		s.wait(t, 1, "POST notifications/initialized")
		select {
		case <-opened:
			t.Errorf("%d: Open did not wait", status)
		default:
		}
		close(released)
		if up := <-opened; up != nil {
			_ = up.Close(t.Context())
		}
	}
	s := newScript(t, &script{session: "s", note: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }})
	if _, err := adapter(t, s.URL, nil, conn.Options{}).Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{}); !errors.Is(err, bridge.ErrUnavailable) {
		t.Errorf("Open: %v, want ErrUnavailable", err)
	}
	s.wait(t, 1, "DELETE") // it had begun a session
}

// An answer above the limit fails its call and nothing else.
func TestUpstreamTooLarge(t *testing.T) {
	const limit = 100 << 10
	large := strings.Repeat("x", limit+conn.EnvelopeRoom)
	fits := strings.Repeat("x", limit)
	s := newScript(t, &script{session: "s"})
	var n atomic.Int32
	answers := []func(w http.ResponseWriter, id string){
		func(w http.ResponseWriter, id string) {
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"pad":%q}}`, id, large)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			fmt.Fprint(w, text)
		},
		func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			flush(w) // no length
			fmt.Fprintf(w, `{"jsonrpc":"2.0","result":{"pad":%q},"id":%s}`, large, id)
		},
		func(w http.ResponseWriter, id string) {
			events(w)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"result\":{\"pad\":%q},\"id\":%s}\n\n", large, id)
		},
		func(w http.ResponseWriter, id string) { plainly(w, id, fmt.Sprintf(`{"pad":%q}`, fits)) },
		func(w http.ResponseWriter, id string) {
			events(w)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"pad\":%q}}\n\n", large)
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"result\":{\"pad\":%q},\"id\":%s}\n\n", fits, id)
		},
	}
	s.post = func(w http.ResponseWriter, _ *http.Request, id string) { answers[n.Add(1)-1](w, id) }
	up, rest := s.connect(t, conn.Options{MaxMessage: limit})
	for i := range answers {
		o := adaptertest.Call(t.Context(), t, up, nil, ask)
		if tooLarge := strings.Contains(o.Answer, "upstream_too_large"); o.Err != nil || tooLarge != (i < 3) || !tooLarge && !strings.Contains(o.Answer, fits) {
			t.Errorf("answer %d: %.200q, %v", i, o.Answer, o.Err)
		}
	}
	if len(rest.Said())+len(rest.Gones()) > 0 {
		t.Errorf("said %.200q, gone %v", rest.Said(), rest.Gones())
	}
}

// D0.10, D0.3: what has no answer goes out in order, one after the other, and a
// cancellation not before its request.
func TestUpstreamOrder(t *testing.T) {
	var busy, most atomic.Int32
	s := newScript(t, &script{session: "s", note: func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		w.WriteHeader(202)
	}})
	s.post = func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }
	up, _ := s.connect(t, conn.Options{})
	const n = 200
	for i := range n {
		adaptertest.Notify(t, up, fmt.Sprintf(`{"jsonrpc":"2.0","method":"n/%d"}`, i))
	}
	s.wait(t, 1, fmt.Sprintf("POST n/%d", n-1))
	next := 0
	for _, r := range s.requests() {
		if strings.HasPrefix(r.method, "n/") {
			if r.method != fmt.Sprintf("n/%d", next) {
				t.Fatalf("%s arrived in place of n/%d", r.method, next)
			}
			next++
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			call := adaptertest.Go(ctx, t, up, nil, ask)
			cancel()
			if o := <-call; !errors.Is(o.Err, context.Canceled) {
				t.Errorf("a cancelled call ended with %q, %v", o.Answer, o.Err)
			}
		})
	}
	all.Wait()
	_ = up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"last"}`)})
	requests := s.wait(t, 1, "POST last")
	for i, r := range s.requests() {
		if r.method != "notifications/cancelled" {
			continue
		}
		_, id, _ := strings.Cut(r.body, `"requestId":`)
		id, _, _ = strings.Cut(strings.TrimSuffix(id, "}}"), ",")
		if !slices.ContainsFunc(s.requests()[:i], func(r recorded) bool {
			return r.method == "tools/call" && strings.Contains(r.body, `"id":`+id+`,`)
		}) {
			t.Errorf("%s arrived, but not its request before", r.body)
		}
	}
	if len(requests) != 1 {
		t.Errorf("%d times the last notification", len(requests))
	}
}

// A server that asks and does not accept the answers is given up before they fill
// the memory; a sender that may wait does.
func TestUpstreamFull(t *testing.T) {
	var hold atomic.Bool
	s := newScript(t, &script{session: "s", post: echo})
	s.note = func(w http.ResponseWriter, r *http.Request) {
		if hold.Load() {
			<-r.Context().Done()
		}
		w.WriteHeader(202)
	}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		events(w)
		for i := 0; r.Context().Err() == nil; i++ {
			if hold.Load() {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"%s%d\",\"method\":\"ping\"}\n\n", strings.Repeat("p", 1000), i)
			}
			flush(w)
		}
	}
	up, rest := s.connect(t, conn.Options{MaxMessage: 10 << 10})
	hold.Store(true)
	big := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":{"pad":%q}}`, strings.Repeat("x", 9<<10))
	for err := error(nil); err == nil; { // the queue has an end: then this waits, until it is over
		err = up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, big)})
	}
	if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || !strings.Contains(err.Error(), "does not accept the answers") {
		t.Errorf("Gone(%v), want ErrLost", err)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrLost) {
		t.Errorf("a later call: %q, %v", o.Answer, o.Err)
	}
}

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
		rest.NoGone(t)
	})
}
