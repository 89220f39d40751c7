package streamable

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
	"github.com/mcp-bridge/bridge/internal/deadline"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// bubble runs f with an adapter to a script in memory, where time is fake.
func bubble(t *testing.T, s *script, f func(t *testing.T, u *Upstream, rest *adaptertest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.more = make(chan struct{})
		s.revision = "2025-11-25"
		site := wiretest.NewSite(t, s)
		c := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }}}
		t.Cleanup(c.CloseIdleConnections)
		u := adapter(t, "http://server.test/mcp", nil, conn.Options{Timeouts: conn.Timeouts{Idle: 5 * time.Minute}})
		u.do, u.stream = c.Do, c.Do
		f(t, u, &adaptertest.Client{})
	})
}

// of returns how many requests of that line the script has seen.
func (s *script) of(line string) (n int) {
	for _, r := range s.requests() {
		if r.line() == line {
			n++
		}
	}
	return n
}

// open opens a connection. The test closes it.
func open(t *testing.T, u *Upstream, rest bridge.Client) bridge.Upstream {
	t.Helper()
	up, err := u.Open(t.Context(), adaptertest.Caller(""), rest)
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// a server that has no standalone stream is not asked again, whatever it
// says in place of 405, unless that was before the end of the handshake.
func TestUpstreamNoStandalone(t *testing.T) {
	for status, want := range map[int]int{405: 1, 501: 1, 404: 2, 400: 2, 200: 2} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := &script{session: "s", get: func(w http.ResponseWriter, r *http.Request) { respond(status, "no")(w, r, "") }}
			bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				up := open(t, u, rest)
				wiretest.Advance(time.Hour)
				synctest.Wait()
				if n := s.of("GET"); n != want {
					t.Errorf("%d GETs in an hour, want %d", n, want)
				}
				rest.NoGone(t)
				_ = up.Close(t.Context())
			})
		})
	}
}

// I-212: while a request waits for a person to sign in, neither the time for the handshake
// nor that of a call runs. Afterwards both do. A call that times out is taken back, and its POST is given up.
func TestUpstreamStandsStill(t *testing.T) {
	const signIn = time.Hour
	var signedIn atomic.Bool
	given := make(chan struct{}, 1)
	s := &script{session: "s", post: func(w http.ResponseWriter, r *http.Request, id string) {
		if signedIn.Load() {
			plainly(w, id, "{}")
			return
		}
		events(w)
		<-r.Context().Done()
		given <- struct{}{}
	}}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		do := u.do
		u.do = func(r *http.Request) (*http.Response, error) {
			if signedIn.Load() {
				return do(r)
			}
			end := deadline.Hold(r.Context())
			defer end()
			if err := backoff.For(r.Context(), signIn); err != nil {
				return nil, err
			}
			end()
			return do(r)
		}
		ctx, stop := deadline.WithTimeout(t.Context(), time.Minute, nil)
		defer stop()
		began := time.Now()
		up, err := u.Open(ctx, adaptertest.Caller(""), rest)
		if took := time.Since(began); err != nil || took < 2*signIn || took > 2*signIn+time.Second { // initialize, and that it is initialized
			t.Fatalf("Open = %v after %v", err, took)
		}
		began = time.Now()
		o := <-adaptertest.Go(t.Context(), t, up, nil, ask)
		if took := time.Since(began); !errors.Is(o.Err, bridge.ErrTimeout) || took != signIn+5*time.Minute {
			t.Errorf("the call ended after %v with %v, want a time-out after %v", took, o.Err, signIn+5*time.Minute)
		}
		wiretest.Advance(signIn) // for the cancellation
		synctest.Wait()
		if n := s.of("POST notifications/cancelled"); n != 1 || len(given) != 1 {
			t.Errorf("%d cancellations, and %d POSTs are given up, want 1", n, len(given))
		}
		signedIn.Store(true)
		adaptertest.Call(t.Context(), t, up, nil, ask).Result(t)
		_ = up.Close(t.Context())
	})
}

// A server whose clients poll learns of each cancelled call, even of a call that is cancelled just as its stream is
// resumed (D0.3).
func TestUpstreamPolledCancel(t *testing.T) {
	again := func(w http.ResponseWriter) {
		events(w)
		fmt.Fprint(w, "id: 1\ndata:\n\n")
	}
	s := &script{session: "s", post: func(w http.ResponseWriter, _ *http.Request, _ string) { again(w) }}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-Id") == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		again(w)
	}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		up := open(t, u, rest)
		const calls = 200
		for range calls {
			ctx, stop := context.WithTimeout(t.Context(), 3*defaultRetry)
			adaptertest.Call(ctx, t, up, nil, ask)
			stop()
			wiretest.Advance(time.Second)
		}
		if n := s.of("POST notifications/cancelled"); n != calls {
			t.Errorf("the server was told of %d of %d cancelled calls", n, calls)
		}
		_ = up.Close(t.Context())
	})
}

// Field-notes H: a standalone stream that ends at once, or fails, is opened again
// less and less often; one that lives is opened again soon.
func TestUpstreamStandingRate(t *testing.T) {
	for _, c := range []struct {
		name     string
		get      http.HandlerFunc
		min, max int // GETs in an hour
	}{
		{"ends at once", func(w http.ResponseWriter, _ *http.Request) { events(w) }, 45, 70},
		{"retry 0", func(w http.ResponseWriter, _ *http.Request) { events(w); fmt.Fprint(w, "retry: 0\nid: 1\n\n") }, 45, 70},
		{"repeats itself", func(w http.ResponseWriter, _ *http.Request) {
			events(w)
			fmt.Fprint(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n")
		}, 45, 75},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 45, 70},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 45, 70},
		{"wants more time (R-053)", func(w http.ResponseWriter, _ *http.Request) { events(w); fmt.Fprint(w, "retry: 600000\n\n") }, 5, 7},
		{"lives for a while", func(w http.ResponseWriter, r *http.Request) {
			events(w)
			backoff.For(r.Context(), 30*time.Second)
		}, 110, 120},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{session: "s", get: c.get}
			bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				up := open(t, u, rest)
				wiretest.Advance(time.Hour)
				synctest.Wait()
				if n := s.of("GET"); n < c.min || n > c.max {
					t.Errorf("%d GETs in an hour, want %d to %d", n, c.min, c.max)
				}
				_ = up.Close(t.Context())
			})
		})
	}
}

// R-054, A8: the standalone stream resumes behind its last event, also one
// without data; a server that cannot resume is asked without.
func TestUpstreamStandingResumes(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	s := &script{session: "s"}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		n := len(asked)
		mu.Unlock()
		switch n {
		case 1:
			events(w)
			fmt.Fprint(w, "id: a\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m/1\"}\n\nid: b\ndata:\n\n")
		case 2:
			w.WriteHeader(400)
		case 3:
			events(w)
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"m/2\"}\n\nevent: other\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m/3\"}\n\n")
		default:
			w.WriteHeader(404) // it was open before
		}
	}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		up := open(t, u, rest)
		wiretest.Advance(time.Hour)
		synctest.Wait()
		if got := strings.Join(asked, ","); got != ",b,," {
			t.Errorf("Last-Event-ID of the GETs: %q, want none, b, none, none", got)
		}
		if got := rest.Said(); len(got) != 2 || !strings.Contains(got[0], "m/1") || !strings.Contains(got[1], "m/2") {
			t.Errorf("said %q", got)
		}
		if gone := rest.Gones(); len(gone) != 1 || !errors.Is(gone[0], bridge.ErrUnsent) {
			t.Errorf("Gone %v, want once, ErrUnsent", gone)
		}
		_ = up.Close(t.Context())
		if n := s.of("DELETE"); n != 0 {
			t.Errorf("%d DELETEs of a forgotten session", n)
		}
	})
}

// the stream of a call is resumed after what retry says. A server that
// polls may close as often as it likes; one that fails has 10 attempts.
func TestUpstreamResumePace(t *testing.T) {
	for _, c := range []struct {
		name     string
		get      func(w http.ResponseWriter, id string, n int)
		revision string
		gets     int
		took     time.Duration
		kind     error
	}{
		{"polls without news for long", func(w http.ResponseWriter, id string, n int) {
			events(w)
			if n == 100 {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
			}
		}, "2025-11-25", 100, 200 * time.Second, nil},
		{"closes without news", func(w http.ResponseWriter, _ string, _ int) { events(w) }, "2025-06-18", 10, 0, bridge.ErrLost},
		{"fails", func(w http.ResponseWriter, _ string, _ int) { w.WriteHeader(502) }, "2025-11-25", 10, 0, bridge.ErrLost},
		{"cannot be reached", func(http.ResponseWriter, string, int) { panic(http.ErrAbortHandler) }, "2025-11-25", 0, 0, bridge.ErrLost},
		{"does not resume", func(w http.ResponseWriter, _ string, _ int) { w.WriteHeader(400) }, "2025-11-25", 1, 2 * time.Second, bridge.ErrLost},
		{"does not listen", func(w http.ResponseWriter, _ string, _ int) { w.WriteHeader(405) }, "2025-11-25", 1, 2 * time.Second, bridge.ErrLost},
		{"gives all at once", func(w http.ResponseWriter, id string, _ int) { plainly(w, id, "{}") }, "2025-11-25", 1, 2 * time.Second, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, gets := "", 0
			s := &script{session: "s", post: func(w http.ResponseWriter, _ *http.Request, n string) {
				id = n
				events(w)
				fmt.Fprint(w, "retry: 2000\nid: x\ndata:\n\n")
			}}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-ID") == "" {
					w.WriteHeader(405)
					return
				}
				gets++
				c.get(w, id, gets)
			}
			bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				s.revision = c.revision
				up := open(t, u, rest)
				began := time.Now()
				m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask)})
				synctest.Wait()
				if (c.kind == nil) != (err == nil) || !errors.Is(err, c.kind) {
					t.Errorf("the call ended with %s, %v, want %v", adaptertest.Text(m), err, c.kind)
				}
				if took := time.Since(began); c.took > 0 && took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if c.gets > 0 && gets != c.gets {
					t.Errorf("%d GETs, want %d", gets, c.gets)
				}
				if n := s.of("POST tools/call"); n != 1 {
					t.Errorf("%d POSTs, want 1", n)
				}
				_ = up.Close(t.Context())
			})
		})
	}
}

// A stream that stays open behind its answer is closed by us soon.
func TestUpstreamLingers(t *testing.T) {
	var open1, closed time.Time
	s := &script{session: "s"}
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		events(w)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":1}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":2}}\n\n", id, id)
		flush(w)
		open1 = time.Now()
		<-r.Context().Done()
		closed = time.Now()
	}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		up := open(t, u, rest)
		m, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask)})
		if err != nil || string(m.Result) != `{"n":1}` {
			t.Errorf("the call ended with %s, %v, want the first answer", adaptertest.Text(m), err)
		}
		wiretest.Advance(time.Minute)
		synctest.Wait()
		if d := closed.Sub(open1); d <= 0 || d > 2*linger {
			t.Errorf("the stream was open for %v after its answer, want about %v", d, linger)
		}
		_ = up.Close(t.Context())
	})
}

// An instance of the bridge ends what it has for one that does not listen after half a
// minute: a break is followed by many attempts in that time.
func TestHastyListens(t *testing.T) {
	for hasty, most := range map[bool]time.Duration{false: maxStandalone, true: maxHasty} {
		s := &standalone{w: &wire{link: link{a: &Upstream{o: conn.Options{FailFast: hasty}}}}, fails: 10}
		if d := s.pause(); d < most || d > most*5/4 {
			t.Errorf("hasty %v: the next attempt is made after %v, want %v", hasty, d, most)
		}
	}
}
