package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
)

// script is a server without a network: each request gets the next answer.
type script struct {
	steps []any // func(*http.Request) (*http.Response, error), *http.Response, a status, or an error; the last for all others
	begin time.Time

	mu sync.Mutex // guards at
	at []time.Duration
}

func (s *script) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	s.mu.Lock()
	s.at = append(s.at, time.Since(s.begin))
	step := s.steps[min(len(s.at), len(s.steps))-1]
	s.mu.Unlock()
	switch step := step.(type) {
	case error:
		return nil, step
	case func(*http.Request) (*http.Response, error):
		return step(r)
	case int:
		return status(step), nil
	case *http.Response:
		again := *step
		again.Body = body("{}")
		return &again, nil
	}
	return nil, errors.New("no such step")
}

func status(code int, headers ...string) *http.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: body("{}"), ContentLength: 2}
}

func body(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

// hang is a step without an answer.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, &url.Error{Op: "Get", URL: "x", Err: r.Context().Err()}
}

// scripted makes a source with a script as its network, for a bubble.
func scripted(t *testing.T, o Options, steps ...any) (*Source, *script) {
	o.BaseURL = "https://api.example.com"
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &script{steps: steps, begin: time.Now()}
	s.http = f
	return s, f
}

var refusedConn = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func TestRetries(t *testing.T) {
	reset := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	for _, tc := range []struct {
		name, method string
		steps        []any
		want         int // requests
		least        time.Duration
		says         string
		key          bool
	}{
		{"fine", "GET", []any{200}, 1, 0, "{}", false},
		{"unavailable twice", "GET", []any{503, 502, 200}, 3, 0, "{}", false},
		{"unavailable for ever", "GET", []any{503}, 3, 0, "503 Service Unavailable from GET /x", false},
		{"not connected", "DELETE", []any{refusedConn, 200}, 2, 0, "{}", false},
		{"never connected", "PUT", []any{refusedConn}, 3, 0, "PUT /x got no answer: the API could not be reached: it refuses connections", false},
		{"broken off", "GET", []any{reset, 200}, 1, 0, "GET /x got no answer: the API broke off or did not speak HTTP", false},
		{"not for POST", "POST", []any{503, 200}, 1, 0, "503", false},
		{"nor PATCH, not connected", "PATCH", []any{refusedConn, 200}, 1, 0, "could not be reached", false},
		{"POST with a key", "POST", []any{503, 200}, 2, 0, "{}", true},
		{"not an error of ours", "GET", []any{404, 200}, 1, 0, "404", false},
		{"not any error of theirs", "GET", []any{500, 200}, 1, 0, "500", false},
		{"told when", "GET", []any{status(429, "Retry-After", "7"), 200}, 2, 7 * time.Second, "{}", false},
		{"told a date", "GET", []any{func(*http.Request) (*http.Response, error) {
			return status(503, "Retry-After", time.Now().Add(9*time.Second).UTC().Format(http.TimeFormat)), nil
		}, 200}, 2, 8 * time.Second, "{}", false},
		{"told to wait too long", "GET", []any{status(429, "Retry-After", "3600"), 200}, 1, 0, "Try again in 3600 s.", false},
		{"told nonsense", "GET", []any{status(429, "Retry-After", "soon"), 200}, 2, 0, "{}", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, f := scripted(t, Options{}, tc.steps...)
			defer s.Close()
			x := tool(tc.method, "/x")
			if tc.key {
				x = tool(tc.method, "/x", parameter("header", "simple", false))
				x.Operation.Parameters[0].Name = "Idempotency-Key"
			}
			got := said(call(t, s, &Call{Tool: x, Args: map[bool][]byte{true: []byte(`{"c":"k"}`)}[tc.key]}))
			if len(f.at) != tc.want || !contains(got, tc.says) {
				t.Errorf("%s: %d requests and %q, want %d and %q", tc.name, len(f.at), got, tc.want, tc.says)
			}
			if last := f.at[len(f.at)-1]; last < tc.least || last > tc.least+3*time.Second {
				t.Errorf("%s: the last came after %v, want about %v", tc.name, last, tc.least)
			}
			if tc.want > 1 && f.at[1] == f.at[0] {
				t.Errorf("%s: no pause", tc.name)
			}
		})
	}
}

// A host that keeps failing gets no more requests, but one probe after the pause.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Attempts: 1, Breaker: breaker.Options{Failures: 3, Pause: 10 * time.Second}}, 503, 502, 404, 502, 503, 504, 200)
		defer s.Close()
		get := func() string { return said(call(t, s, &Call{Tool: tool("GET", "/x")})) }
		for range 6 { // a 404 counts as an answer
			get()
		}
		if got := get(); len(f.at) != 6 || !contains(got, "GET /x was not sent: the API keeps failing") || !contains(got, "try again in 10 s") {
			t.Errorf("%d requests, and %q", len(f.at), got)
		}
		time.Sleep(4 * time.Second)
		if got := get(); !contains(got, "try again in 6 s") {
			t.Errorf("after 4 s: %q", got)
		}
		time.Sleep(7 * time.Second)
		if got := get(); len(f.at) != 7 || got != "{}" {
			t.Errorf("after the pause: %d requests, and %q", len(f.at), got)
		}
		if got := get(); got != "{}" {
			t.Errorf("closed again: %q", got)
		}
	})
}

// Faults of callers and arguments do not count for a host.
func TestBreakerExcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Attempts: 1, Breaker: breaker.Options{Failures: 2}}, hang)
		defer s.Close()
		for range 5 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			b, err := s.Call(ctx, &Call{Tool: tool("GET", "/x")})
			if b != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that has gone: %s, %v", b, err)
			}
			cancel()
		}
		for _, status := range []int{429, 500, 501, 505, 404} {
			f.steps = []any{status}
			for range 30 {
				call(t, s, &Call{Tool: tool("GET", "/x")})
			}
		}
		f.steps = []any{hang}
		for i := range 3 {
			want := "GET /x got no answer: the API did not answer in time (30s)"
			if i == 2 {
				want = "circuit breaker is open"
			}
			if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); !contains(got, want) {
				t.Errorf("%d: %q, want %q", i, got, want)
			}
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Limits: Limits{Rate: limits.Rate{PerSecond: 2, Burst: 2}}, Timeout: 2 * time.Second}, 200)
		defer s.Close()
		c := &Call{Tool: tool("GET", "/x")}
		for range 4 {
			call(t, s, c)
		}
		if got, want := fmt.Sprint(f.at), "[0s 0s 500ms 1s]"; got != want {
			t.Errorf("requests at %s, want %s", got, want)
		}
		slow, _ := scripted(t, Options{Limits: Limits{Rate: limits.Rate{PerSecond: 0.1}}, Timeout: 2 * time.Second}, 200)
		defer slow.Close()
		call(t, slow, c)
		if got := said(call(t, slow, c)); !contains(got, "the limit of 6/m for requests to this API is reached; try again in 10 s") {
			t.Errorf("over the limit: %q", got)
		}
	})
}

func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, f := scripted(t, Options{Limits: Limits{Concurrent: 2}, Timeout: 5 * time.Second}, func(*http.Request) (*http.Response, error) {
			<-release
			return status(200), nil
		})
		defer s.Close()
		got := make(chan string, 3)
		for range 3 {
			go func() {
				b, err := s.Call(context.Background(), &Call{Tool: tool("GET", "/x")})
				got <- string(b) + fmt.Sprint(err)
			}()
		}
		synctest.Wait()
		f.mu.Lock()
		n := len(f.at)
		f.mu.Unlock()
		if n != 2 {
			t.Errorf("%d requests are in flight, want 2", n)
		}
		time.Sleep(6 * time.Second)
		if first := <-got; !contains(first, "2 calls to this API are in flight") {
			t.Errorf("the third: %s", first)
		}
		close(release)
		<-got
		<-got
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{}, 1)
		ended := make(chan error, 1)
		api := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/half" {
				_, _ = w.Write([]byte(`{"a":`))
				_ = http.NewResponseController(w).Flush()
			}
			begun <- struct{}{}
			<-r.Context().Done()
			ended <- r.Context().Err()
		}
		s := newSourceOf(t, Options{Timeout: 50 * time.Millisecond}, api)
		for _, path := range []string{"/none", "/half"} {
			if got := said(call(t, s, &Call{Tool: tool("GET", path)})); !contains(got, "did not answer in time (50ms)") {
				t.Errorf("%s: %q", path, got)
			}
			<-begun
			if err := <-ended; err == nil {
				t.Error("the server's request goes on")
			}
		}
		patient := newSourceOf(t, Options{Timeout: time.Hour}, api)
		ctx, cancel := context.WithCancelCause(context.Background())
		mine := errors.New("the client has cancelled")
		go func() {
			<-begun
			cancel(mine)
		}()
		if b, err := patient.Call(ctx, &Call{Tool: tool("GET", "/none")}); b != nil || !errors.Is(err, mine) {
			t.Errorf("cancelled: %s, %v", b, err)
		}
		<-ended
		go func() {
			<-begun
			patient.Close()
		}()
		if b, err := patient.Call(context.Background(), &Call{Tool: tool("GET", "/none")}); b != nil || !errors.Is(err, errClosed) {
			t.Errorf("closed: %s, %v", b, err)
		}
		<-ended
	})
}

func TestRedirects(t *testing.T) {
	other := newRecorder(t, nil)
	srv := newRecorder(t, nil)
	srv.then = func(w http.ResponseWriter, r *http.Request) {
		to, code := "/final", http.StatusFound
		switch r.URL.Path {
		case "/final":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"method":"` + r.Method + `"}`))
			return
		case "/other":
			to = other.URL + "/x?signed=abc"
		case "/loop":
			to = "/loop"
		case "/303":
			code = http.StatusSeeOther
		case "/307":
			code = http.StatusTemporaryRedirect
		case "/303other":
			to, code = other.URL, http.StatusSeeOther
		}
		http.Redirect(w, r, to, code)
	}
	s := newSource(t, Options{BaseURL: srv.URL, Default: &Credential{Bearer: "long-secret-token"}})
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/302", `{"method":"GET"}`},
		{"POST", "/307", `{"method":"POST"}`},
		{"POST", "/303", `{"method":"GET"}`},
		{"POST", "/302", "302 Found from POST /302\nIt redirects to " + srv.URL + "/final, which is not followed."},
		{"GET", "/other", "302 Found from GET /other\nIt redirects to " + other.URL + "/x?signed=abc, which is not followed."},
		{"POST", "/303other", "303 See Other from POST /303other\nIt redirects to " + other.URL},
		{"GET", "/loop", "302 Found from GET /loop\nIt redirects to"},
	} {
		if got := said(call(t, s, &Call{Tool: tool(tc.method, tc.path)})); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.path, got, tc.want)
		}
		for _, r := range srv.requests() {
			if from := r.header.Get("Referer"); from != "" { // it would show the query, which may contain keys
				t.Errorf("%s: %s %s has Referer: %s", tc.path, r.method, r.uri, from)
			}
			if r.header.Get("Authorization") != "Bearer long-secret-token" {
				t.Errorf("%s: %s %s went without credentials", tc.path, r.method, r.uri)
			}
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("%d requests went to the other server", n)
	}
}

// Network faults are described without addresses.
func TestNetworkFaults(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-secret-internal-host\r\n\r\n"))
			_ = c.Close()
		}
	}()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	// A TLS server answers plain HTTP like this, but may reset the connection before the client has read the answer.
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer plain.Close()
	for at, want := range map[string]string{
		"http://127.0.0.1:1":           "it refuses connections",
		"http://" + l.Addr().String():  "broke off or did not speak HTTP",
		"https://" + l.Addr().String(): "could not be reached",
		secure.URL:                     "its certificate is not valid for it",
		"http://no-such-host.invalid":  "could not be reached",
		plain.URL:                      "400 Bad Request",
	} {
		s := newSource(t, Options{BaseURL: at, Attempts: 1})
		got := said(call(t, s, &Call{Tool: tool("GET", "/x")}))
		if !contains(got, want) || contains(got, "127.0.0.1") || contains(got, "secret-internal") || contains(got, "invalid:") {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}

func TestCache(t *testing.T) {
	var n, full atomic.Int32
	srv := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1)
		h := w.Header()
		h.Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/fresh":
			h.Set("Cache-Control", "private, max-age=3600")
		case "/aged":
			h.Set("Cache-Control", "max-age=60")
			h.Set("Age", "60")
		case "/no-store":
			h.Set("Cache-Control", "no-store, max-age=3600")
			h.Set("Etag", `"1"`)
		case "/vary":
			h.Set("Cache-Control", "max-age=3600")
			h.Set("Vary", "*")
		case "/etag":
			h.Set("Etag", `"v1"`)
			if r.Header.Get("If-None-Match") == `"v1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		case "/expires":
			h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
			h.Set("Expires", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		case "/error":
			h.Set("Cache-Control", "max-age=3600")
			w.WriteHeader(404)
		}
		full.Add(1)
		_, _ = fmt.Fprintf(w, `{"n":%d}`, i)
	})
	s := newSource(t, Options{BaseURL: srv.URL, CacheBytes: 1 << 20, Forward: []string{"Authorization"}})
	get := func(path, as string, more ...func(*Call)) string {
		c := &Call{Tool: tool("GET", path), Header: http.Header{"Authorization": {as}}}
		for _, m := range more {
			m(c)
		}
		return said(call(t, s, c))
	}
	for _, tc := range []struct {
		path       string
		same       bool
		sent, full int32 // for two calls
	}{
		{"/fresh", true, 1, 1}, {"/expires", true, 1, 1}, {"/etag", true, 2, 1}, {"/aged", false, 2, 2}, {"/no-store", false, 2, 2}, {"/vary", false, 2, 2}, {"/error", false, 2, 2}, {"/plain", false, 2, 2},
	} {
		n0, f0 := n.Load(), full.Load()
		a, b := get(tc.path, "ann"), get(tc.path, "ann")
		if (a == b) != tc.same || n.Load()-n0 != tc.sent || full.Load()-f0 != tc.full {
			t.Errorf("%s: %s and %s, %d requests, %d whole", tc.path, a, b, n.Load()-n0, full.Load()-f0)
		}
	}
	if a, b := get("/fresh", "ann"), get("/fresh", "bob"); a == b {
		t.Errorf("what was for ann is given to bob: %s", b)
	}
	before := get("/fresh", "ann")
	if again := get("/fresh", "ann", func(c *Call) { c.Settings.Uncached = true }); again == before {
		t.Error("Uncached is from the cache")
	}
	before = get("/fresh", "ann")
	call(t, s, &Call{Tool: tool("PUT", "/fresh")})
	if after := get("/fresh", "ann"); after == before {
		t.Error("what was written to is still from the cache")
	}
	s = newSource(t, Options{BaseURL: srv.URL})
	if first := get("/fresh", ""); first == get("/fresh", "") {
		t.Error("there is a cache unasked")
	}
}

// The cache respects its limit.
func TestCacheLimit(t *testing.T) {
	c := newCache(10000)
	h := http.Header{"Cache-Control": {"max-age=60"}}
	now := time.Now()
	plan := func(i, variant int) *Plan {
		return &Plan{URL: &url.URL{Scheme: "http", Host: "h", Path: fmt.Sprint("/", i)}, Header: http.Header{"X": {fmt.Sprint(variant)}}}
	}
	for i := range 100 {
		for v := range 20 {
			c.put(plan(i%10, v), &answer{status: 200, header: h, body: make([]byte, i*10)}, now)
			if c.bytes > c.limit || c.bytes < 0 {
				t.Fatalf("%d bytes are kept", c.bytes)
			}
		}
	}
	for i := range 10 {
		c.forget(plan(i, 0).URL)
	}
	if c.bytes != 0 {
		t.Errorf("%d bytes are left of nothing", c.bytes)
	}
	c.put(plan(1, 1), &answer{status: 200, header: h, body: make([]byte, 9000)}, now)
	if k, _ := c.get(plan(1, 1), now); k != nil {
		t.Error("one answer takes nearly all")
	}
}

// Close returns after the calls have ended.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := status(200, "Content-Type", "application/x-ndjson")
		s, _ := scripted(t, Options{}, lines)
		leave := make(chan struct{})
		go func() {
			c := &Call{Tool: tool("GET", "/x"), Progress: func(int, string) { <-leave }}
			if b, err := s.Call(context.Background(), c); b != nil || !errors.Is(err, errClosed) {
				t.Errorf("%s, %v", b, err)
			}
		}()
		synctest.Wait()
		var closed atomic.Bool
		go func() {
			s.Close()
			closed.Store(true)
		}()
		synctest.Wait()
		if closed.Load() {
			t.Error("Close has returned with a call under way")
		}
		close(leave)
		synctest.Wait()
		if !closed.Load() {
			t.Error("Close has not returned")
		}
	})
}
