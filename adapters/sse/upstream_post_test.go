package sse

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
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
)

// The result of a call whose POST is refused says whether the server may have acted on it.
func TestUpstreamRefusedPost(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"session not found"}}`
	for _, test := range []struct {
		status     int
		body, kind string
		want       error // nil means that the call has an answer
		text       string
	}{
		{302, "", "", bridge.ErrUnavailable, "turns POST into GET"},
		{307, "elsewhere", "", bridge.ErrUnavailable, "it redirects to another origin"},
		{400, "bad", "", bridge.ErrUnavailable, "it refused the request (HTTP 400)"},
		{400, "Your session is fine, the id is not", "", bridge.ErrUnavailable, "it refused the request (HTTP 400)"},
		{400, "No transport found for sessionId " + secret, "", bridge.ErrUnsent, "it has forgotten the session (HTTP 400)"},
		{400, "session closed", "", bridge.ErrUnsent, "it has forgotten the session (HTTP 400)"},
		{400, "Invalid session ID", "", bridge.ErrUnsent, "it has forgotten the session (HTTP 400)"},
		{404, secret, "", bridge.ErrUnsent, "it has forgotten the session (HTTP 404)"},
		{410, "", "", bridge.ErrUnsent, "it has forgotten the session (HTTP 410)"},
		{401, answer, "application/json", bridge.ErrUnavailable, "it wants credentials (HTTP 401): configure headers"},
		{403, secret, "", bridge.ErrUnavailable, "it does not let this caller in (HTTP 403)"},
		{402, `{"error":"your plan has no calls left"}`, "application/json", bridge.ErrUnavailable, "it refused the request (HTTP 402): your plan has no calls left"},
		{403, `{"message":"your plan has no calls left"}`, "application/json", bridge.ErrUnavailable, "such as Authorization; it says: your plan has no calls left"},
		{500, `{"message":"` + secret + `"}`, "application/json", bridge.ErrLost, "it failed (HTTP 500)"},
		{413, "", "", bridge.ErrUnavailable, "too large"},
		{429, "", "", bridge.ErrUnavailable, "HTTP 429); try again in 3 s"},
		{503, "", "", bridge.ErrUnavailable, "HTTP 503); try again in 3 s"},
		{501, "", "", bridge.ErrUnavailable, "HTTP 501"},
		{500, secret, "text/html", bridge.ErrLost, "it failed (HTTP 500); whether it acted on the request is unknown"},
		{502, "", "", bridge.ErrLost, "HTTP 502"},
		{504, "", "", bridge.ErrLost, "HTTP 504"},
		{422, `{"jsonrpc":"2.0","id":$id,"error":{"code":-32602,"message":"no such tool"}}`, "application/json", nil, "no such tool"},
		{422, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no such tool"}}`, "application/json", nil, "no such tool"},
		{422, `{"jsonrpc":"2.0","id":77,"error":{"code":-32602,"message":"no such tool"}}`, "application/json", bridge.ErrUnavailable, "HTTP 422"},
		{422, strings.Repeat("x", 100_000), "application/json", bridge.ErrUnavailable, "HTTP 422"},
		{200, `{"jsonrpc":"2.0","id":$id,"result":{"n":1}}`, "application/json; charset=utf-8", nil, `"n":1`},
		{202, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}`, "application/json", nil, `what?`},
	} {
		t.Run(fmt.Sprint(test.status, " ", test.body[:min(30, len(test.body))]), func(t *testing.T) {
			f := &fakePeer{post: func(w http.ResponseWriter, _ *http.Request, _ *stream, body []byte) bool {
				if !strings.Contains(string(body), `"refuse"`) {
					return true
				}
				_, id, _ := strings.Cut(string(body), `"id":`)
				id, _, _ = strings.Cut(id, ",")
				w.Header()["Content-Type"] = []string{test.kind}
				w.Header().Set("Retry-After", "3")
				w.Header().Set("Location", map[bool]string{false: "/", true: "http://elsewhere.invalid/"}[test.body == "elsewhere"]+secret)
				w.WriteHeader(test.status)
				_, _ = fmt.Fprint(w, strings.ReplaceAll(test.body, "$id", id))
				return false
			}}
			u, _ := serve(t, f, remote.Config{}, conn.Options{})
			rest := &adaptertest.Client{}
			up := adaptertest.Open(t, u, rest)
			other := goCall(t.Context(), t, up, `{"await":"release","say":[{"jsonrpc":"2.0","method":"reached"}]}`)
			rest.WaitSaid(t, 1)
			o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"refuse"}`)
			if test.want == nil {
				if o.Err != nil || !strings.Contains(o.Answer, test.text) {
					t.Errorf("%q, %v, want %q", o.Answer, o.Err, test.text)
				}
			} else if e, ok := errors.AsType[*bridge.Error](o.Err); !ok || !errors.Is(e.Kind, test.want) || !strings.Contains(e.Public, test.text) || strings.Contains(o.Err.Error(), secret) {
				t.Errorf("%q, %v, want %v with %q", o.Answer, o.Err, test.want, test.text)
			}
			if test.want != bridge.ErrUnsent {
				notify(t, up, "release") // the connection lives on, and so do other calls
				(<-other).Result(t)
				return
			}
			e, ok := errors.AsType[*bridge.Error]((<-other).Err)
			if !ok || e.Kind != bridge.ErrLost { // it had reached the server: it must not be sent again (D0.8)
				t.Errorf("another call ended with %v, want ErrLost", e)
			}
			if e, ok := errors.AsType[*bridge.Error](rest.WaitGone(t)); !ok || e.Kind != bridge.ErrUnsent {
				t.Errorf("Gone(%v), want ErrUnsent", e)
			}
			if _, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`)}); !errors.Is(err, bridge.ErrUnsent) {
				t.Errorf("a later call ended with %v, want ErrUnsent", err)
			}
		})
	}
}

// inBubble opens a connection to f in a bubble and closes it when the test is done.
func inBubble(t *testing.T, f *fakePeer, test func(t *testing.T, u *Upstream, up bridge.Upstream, rest *adaptertest.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := inMemory(t, f, conn.Options{MaxMessage: 1 << 20})
		rest := &adaptertest.Client{}
		up, err := u.Open(t.Context(), adaptertest.Caller(""), rest)
		if err != nil {
			t.Fatal(err)
		}
		test(t, u, up, rest)
		_ = up.Close(t.Context())
	})
}

// The handshake is sent again when a kept connection ends under it. A call is not (D0.8): the server may have acted on it.
func TestUpstreamKeptEnds(t *testing.T) {
	type onConnection struct{}
	var seen []string // by POST, with "…" when there was no answer; POSTs come one after the other
	ends := false     // the server reads each request on a kept connection and ends the connection
	f := &fakePeer{post: func(_ http.ResponseWriter, r *http.Request, _ *stream, body []byte) bool {
		method := adaptertest.Parse(t, string(body)).Method
		if before := r.Context().Value(onConnection{}).(*atomic.Int32).Add(1) - 1; before > 0 && ends {
			seen = append(seen, method+"…")
			panic(http.ErrAbortHandler)
		}
		seen = append(seen, method)
		return true
	}}
	synctest.Test(t, func(t *testing.T) {
		u := inMemoryFrom(t, &http.Server{Handler: f, ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, onConnection{}, new(atomic.Int32))
		}}, conn.Options{})
		open := func() bridge.Upstream {
			up, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
			if err != nil {
				t.Fatalf("Open = %v; the server got %q", err, seen)
			}
			synctest.Wait() // initialized was sent
			return up
		}
		_ = open().Close(t.Context()) // its HTTP connection is kept
		seen, ends = nil, true
		up := open()
		if o := call(t, up, `{}`); !errors.Is(o.Err, bridge.ErrLost) || errors.Is(o.Err, bridge.ErrUnsent) {
			t.Errorf("the call ended with %q, %v, want ErrLost", o.Answer, o.Err)
		}
		_ = up.Close(t.Context())
		if got, want := strings.Join(seen, " "), "initialize… initialize notifications/initialized… notifications/initialized m…"; got != want {
			t.Errorf("the server got %s\nwant %s", got, want)
		}
	})
}

// A message that could not be sent is repeated for about four seconds, while it is needed.
func TestUpstreamUnsent(t *testing.T) {
	for _, test := range []struct {
		fails int
		patience,
		after time.Duration
		want error
	}{
		{1, time.Hour, 125 * time.Millisecond, nil},
		{5, time.Hour, 3875 * time.Millisecond, nil},
		{6, time.Hour, 3875 * time.Millisecond, bridge.ErrUnavailable},
		{6, time.Second, time.Second, context.DeadlineExceeded},
	} {
		inBubble(t, &fakePeer{}, func(t *testing.T, u *Upstream, up bridge.Upstream, _ *adaptertest.Client) {
			do, fails := u.do, 0
			synctest.Wait() // initialized is on its way
			u.do = func(r *http.Request) (*http.Response, error) {
				if fails++; fails <= test.fails {
					return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
				}
				return do(r)
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), test.patience)
			defer cancel()
			o := <-goCall(ctx, t, up, `{}`)
			if !errors.Is(o.Err, test.want) || time.Since(began) != test.after {
				t.Errorf("%d failures: %q, %v after %v, want %v after %v", test.fails, o.Answer, o.Err, time.Since(began), test.want, test.after)
			}
		})
	}
}

// I-212: while a request waits for a person to sign in, neither the time for the handshake
// nor that of a call runs, nor that for a message without an answer. Afterwards they do.
func TestUpstreamStandsStill(t *testing.T) {
	const signIn = time.Hour
	var mu sync.Mutex
	told := 0
	f := &fakePeer{post: func(_ http.ResponseWriter, _ *http.Request, _ *stream, body []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(string(body), "notifications/initialized") {
			told++
		}
		return true
	}}
	synctest.Test(t, func(t *testing.T) {
		u := inMemory(t, f, conn.Options{Timeouts: conn.Timeouts{Idle: time.Minute}})
		do := u.do
		u.do = func(r *http.Request) (*http.Response, error) {
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
		up, err := u.Open(ctx, adaptertest.Caller(""), &adaptertest.Client{})
		if took := time.Since(began); err != nil || took != signIn {
			t.Fatalf("Open = %v after %v", err, took)
		}
		time.Sleep(signIn + time.Second)
		mu.Lock()
		if told != 1 {
			t.Errorf("the server has heard %d times that it is initialized", told)
		}
		mu.Unlock()
		began = time.Now()
		o := <-goCall(t.Context(), t, up, `{"then":"hang"}`)
		if took := time.Since(began); !errors.Is(o.Err, bridge.ErrTimeout) || took != signIn+time.Minute {
			t.Errorf("the call ended after %v with %v", took, o.Err)
		}
		_ = up.Close(t.Context())
	})
}

// A call that was not sent when the stream is lost may be sent on the next connection; one that was, not.
func TestUpstreamLossOfUnsent(t *testing.T) {
	f := &fakePeer{}
	inBubble(t, f, func(t *testing.T, u *Upstream, up bridge.Upstream, rest *adaptertest.Client) {
		sent := goCall(t.Context(), t, up, `{"then":"hang"}`)
		synctest.Wait()
		u.do = func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		unsent := goCall(t.Context(), t, up, `{}`)
		synctest.Wait()
		notify(t, up, "x") // does not come to its turn, and neither does what follows
		queued := goCall(t.Context(), t, up, `{}`)
		synctest.Wait()
		f.the(t).die()
		for _, c := range []struct {
			call <-chan adaptertest.Outcome
			want error
		}{{sent, bridge.ErrLost}, {unsent, bridge.ErrUnsent}, {queued, bridge.ErrUnsent}} {
			if e, ok := errors.AsType[*bridge.Error]((<-c.call).Err); !ok || e.Kind != c.want {
				t.Errorf("a call ended with %v, want %v", e, c.want)
			}
		}
		if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || errors.Is(err, bridge.ErrUnsent) {
			t.Errorf("Gone(%v), want ErrLost", err)
		}
	})
}

// The same holds for a call that waits for room when the stream is lost.
func TestUpstreamLossOfWaiting(t *testing.T) {
	f := hanging("m")
	inBubble(t, f, func(t *testing.T, _ *Upstream, up bridge.Upstream, _ *adaptertest.Client) {
		var calls []<-chan adaptertest.Outcome
		for range 8 { // of which three find room
			calls = append(calls, goCall(t.Context(), t, up, `{"then":"hang","x":"`+strings.Repeat("x", 1<<20)+`"}`))
		}
		synctest.Wait()
		f.the(t).die()
		kinds := map[error]int{}
		for _, c := range calls {
			if e, ok := errors.AsType[*bridge.Error]((<-c).Err); ok {
				kinds[e.Kind]++
			}
		}
		if kinds[bridge.ErrLost] != 3 || kinds[bridge.ErrUnsent] != 5 {
			t.Errorf("the calls ended with %v, want 3 ErrLost, 5 ErrUnsent", kinds)
		}
	})
}

// Open is given up with its context, whatever it waits for.
func TestUpstreamOpenGivenUp(t *testing.T) {
	hang := func(r *http.Request) { <-r.Context().Done() }
	for name, f := range map[string]*fakePeer{
		"no answer to GET": {get: func(_ http.ResponseWriter, r *http.Request) bool { hang(r); return false }},
		"no endpoint": {get: func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, ": hello\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"early\"}\n\n")
			w.(http.Flusher).Flush()
			hang(r)
			return false
		}},
		"no answer to POST": {post: func(_ http.ResponseWriter, r *http.Request, _ *stream, _ []byte) bool { hang(r); return false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := inMemory(t, f, conn.Options{})
				why := errors.New("no patience")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
				defer cancel()
				rest := &adaptertest.Client{}
				began := time.Now()
				_, err := u.Open(ctx, adaptertest.Caller(""), rest)
				if !errors.Is(err, why) || time.Since(began) != time.Minute || len(rest.Gones())+len(rest.Said()) > 0 {
					t.Errorf("Open = %v after %v, Gone(%v)", err, time.Since(began), rest.Gones())
				}
			})
		})
	}
}

// hanging is a server that does not answer the POSTs of some methods, though it works on them.
func hanging(methods ...string) *fakePeer {
	return &fakePeer{post: func(_ http.ResponseWriter, r *http.Request, s *stream, body []byte) bool {
		for _, m := range methods {
			if strings.Contains(string(body), `"method":"`+m+`"`) {
				s.Receive(body)
				<-r.Context().Done()
				return false
			}
		}
		return true
	}}
}

// A POST without an answer delays neither its call, nor others, nor Close. It ends when its message
// is no longer needed.
func TestUpstreamHangingPost(t *testing.T) {
	inBubble(t, hanging("m"), func(t *testing.T, _ *Upstream, up bridge.Upstream, _ *adaptertest.Client) {
		under := up.(*connection).out
		call(t, up, `{}`).Result(t)
		why := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(t.Context())
		given := goCall(ctx, t, up, `{"then":"hang"}`)
		patient := goCall(t.Context(), t, up, `{"await":"release"}`)
		synctest.Wait()
		cancel(why)
		if o := <-given; !errors.Is(o.Err, why) {
			t.Errorf("%q, %v, want %v", o.Answer, o.Err, why)
		}
		<-time.After(2 * answerLimit)
		synctest.Wait()
		under.mu.Lock()
		if n := len(under.under); n != 1 { // patient's
			t.Errorf("%d POSTs are under way, want 1", n)
		}
		under.mu.Unlock()
		notify(t, up, "release")
		(<-patient).Result(t)
		goCall(t.Context(), t, up, `{"then":"hang"}`)
		synctest.Wait() // Close does not wait for that one
	})
}

// Messages without an answer are sent in order, after the calls before it and before those after it, and a server that
// answers late holds it up for a second.
func TestUpstreamOrder(t *testing.T) {
	var mu sync.Mutex
	var got []string
	var when []time.Duration
	began := time.Time{}
	f := &fakePeer{post: func(_ http.ResponseWriter, r *http.Request, _ *stream, body []byte) bool {
		m := adaptertest.Parse(t, string(body)).Method
		var wait time.Duration
		_, _ = fmt.Sscanf(m, "%d", &wait)
		mu.Lock()
		if !began.IsZero() {
			got = append(got, m)
			when = append(when, time.Since(began))
		}
		mu.Unlock()
		select {
		case <-time.After(wait * time.Millisecond):
		case <-r.Context().Done():
		}
		return true
	}}
	inBubble(t, f, func(t *testing.T, _ *Upstream, up bridge.Upstream, _ *adaptertest.Client) {
		synctest.Wait()
		mu.Lock()
		began = time.Now()
		mu.Unlock()
		var calls []<-chan adaptertest.Outcome
		for _, m := range []string{"100 call", "5000 call", "10 note", "20 note", "1 call", "2 call", "3000 note", "1 note", "3 call"} {
			if strings.HasSuffix(m, "note") {
				notify(t, up, m)
			} else {
				calls = append(calls, adaptertest.Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"`+m+`"}`))
			}
			synctest.Wait()
		}
		for _, c := range calls {
			(<-c).Result(t)
		}
		want := "[100 call 5000 call 10 note 20 note 1 call 2 call 3000 note 1 note 3 call] [0s 0s 1s 1.01s 1.03s 1.03s 1.032s 2.032s 2.033s]"
		mu.Lock()
		defer mu.Unlock()
		if s := fmt.Sprint(got, " ", when); s != want && s != strings.Replace(want, "1 call 2 call", "2 call 1 call", 1) {
			t.Errorf("the server got %s\nwant %s", s, want)
		}
	})
}

// the queue is bounded. A sender waits until its context ends; a message that must not wait ends the connection.
func TestUpstreamFull(t *testing.T) {
	inBubble(t, hanging("m"), func(t *testing.T, _ *Upstream, up bridge.Upstream, rest *adaptertest.Client) {
		big := `{"then":"hang","x":"` + strings.Repeat("x", 1<<20) + `"}`
		ctx, cancel := context.WithCancel(t.Context())
		var calls []<-chan adaptertest.Outcome
		for range 8 {
			calls = append(calls, goCall(ctx, t, up, big))
		}
		synctest.Wait()
		p := up.(*connection).out
		p.mu.Lock()
		if n := len(p.under) + len(p.queue); n != 3 || p.wait.Bytes() > p.wait.Limit {
			t.Errorf("%d POSTs of %d bytes in all, want 3 of less than %d", n, p.wait.Bytes(), p.wait.Limit)
		}
		p.mu.Unlock()
		cancel()
		for _, c := range calls {
			if got := <-c; !errors.Is(got.Err, context.Canceled) {
				t.Errorf("%q, %v", got.Answer, got.Err)
			}
		}
		<-time.After(2 * answerLimit)
		synctest.Wait()
		p.mu.Lock()
		if n := len(p.under) + len(p.queue); n != 0 || p.wait.Bytes() != 0 {
			t.Errorf("%d POSTs of %d bytes are left", n, p.wait.Bytes())
		}
		p.mu.Unlock()
		call(t, up, `{}`).Result(t)
		for range 2*maxPosts + 2 {
			if err := p.Send(t.Context(), conn.Outgoing{Urgent: true, Method: "m", Line: newLine(`{"jsonrpc":"2.0","method":"m"}`)}); err != nil {
				break
			}
		}
		if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || !strings.Contains(err.Error(), "it does not accept messages") {
			t.Errorf("Gone(%v)", err)
		}
	})
}

// A call that is given up before its turn has come is not sent any more.
func TestUpstreamGivenUpInQueue(t *testing.T) {
	f := &fakePeer{post: func(_ http.ResponseWriter, _ *http.Request, _ *stream, body []byte) bool {
		if strings.Contains(string(body), `"slow"`) {
			<-time.After(orderLimit / 2)
		}
		return true
	}}
	inBubble(t, f, func(t *testing.T, _ *Upstream, up bridge.Upstream, _ *adaptertest.Client) {
		notify(t, up, "slow")
		ctx, cancel := context.WithCancel(t.Context())
		given := goCall(ctx, t, up, `{"given":"up"}`)
		synctest.Wait()
		cancel()
		if o := <-given; !errors.Is(o.Err, context.Canceled) {
			t.Errorf("%q, %v", o.Answer, o.Err)
		}
		for _, line := range adaptertest.Seen(t, up) {
			if strings.Contains(line, "given") {
				t.Errorf("the server got %s", line)
			}
		}
	})
}
