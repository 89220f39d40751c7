package sse

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestUpstreamSuite(t *testing.T) {
	adaptertest.Run(t, func(t *testing.T) bridge.Adapter {
		u, _ := serve(t, &fakePeer{}, remote.Config{}, conn.Options{})
		return u
	})
}

// where the endpoint may be, and where not. The endpoint belongs to where redirects of the stream lead.
func TestUpstreamEndpoint(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("another origin was asked: %v", r.Header) }))
	defer elsewhere.Close()
	_, port, _ := strings.Cut(elsewhere.URL, "127.0.0.1")
	for _, test := range []struct {
		name, url, endpoint, want string // want is the path POSTed to, or a part of the error
	}{
		{"path", "/sse", "/messages?session=$id", "/messages"},
		{"relative", "/a/sse", "messages?session=$id", "/a/messages"},
		{"relative, up", "/a/b/sse", "../messages?session=$id", "/a/messages"},
		{"prefix", "/prefix/sse?key=1", "/prefix/messages?session=$id&x=y", "/prefix/messages"},
		{"only a query", "/sse?key=1", "?session=$id", "/sse"},
		{"absolute", "/sse", "http://$host/m?session=$id", "/m"},
		{"absolute, capitals", "/sse", "HTTP://$host/m?session=$id", "/m"},
		{"without scheme", "/sse", "//$host/m?session=$id", "/m"},
		{"spaces around", "/sse", " /m?session=$id ", "/m"},
		{"behind a redirect (R-176)", "/moved/deep/er/sse", "messages?session=$id", "/deep/er/messages"},
		{"behind a redirect to another origin", "/away", "/m?session=$id", "it redirects to another origin"},
		{"other port", "/sse", elsewhere.URL + "/m?session=$id", "another origin"},
		{"other host", "/sse", "http://localhost$port/m?session=$id", "another origin"},
		{"other scheme", "/sse", "https://$host/m?session=$id", "another origin"},
		{"other host without scheme", "/sse", "//127.0.0.1" + port + "/m?session=$id", "another origin"},
		{"not http", "/sse", "mailto:$id", "another origin"},
		{"garbage", "/sse", "http://%zz/$id", "no usable endpoint"},
		{"control character", "/sse", "/m\x7f$id", "no usable endpoint"},
		{"nothing", "/sse", "", "no usable endpoint"},
		{"only space", "/sse", "\ndata:", "its endpoint does not take messages (HTTP 404)"},
		{"unknown path", "/sse", "/nowhere", "its endpoint does not take messages (HTTP 404)"},
		{"too large", "/sse", strings.Repeat("x", 1<<20), "no usable endpoint"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var path atomic.Value
			f := &fakePeer{}
			f.post = func(_ http.ResponseWriter, r *http.Request, _ *stream, _ []byte) bool {
				path.Store(r.URL.Path)
				return true
			}
			f.get = func(w http.ResponseWriter, r *http.Request) bool {
				to, moved := strings.CutPrefix(r.URL.Path, "/moved")
				if r.URL.Path == "/away" {
					to, moved = elsewhere.URL+"/"+secret, true
				}
				if moved {
					http.Redirect(w, r, to, http.StatusFound)
					return false
				}
				_, port, _ := strings.Cut(r.Host, ":")
				if f.endpoint = strings.NewReplacer("$host", r.Host, "$port", ":"+port).Replace(test.endpoint); f.endpoint != "" {
					return true
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprint(w, "event: endpoint\ndata:\n\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return false
			}
			u, _ := serve(t, f, remote.Config{URL: test.url}, conn.Options{MaxMessage: 1000})
			up, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
			if err == nil {
				call(t, up, `{}`).Result(t)
				if path.Load() != test.want {
					t.Errorf("POSTs go to %q, want %q", path.Load(), test.want)
				}
				_ = up.Close(t.Context())
				return
			}
			if !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("Open = %v, want %q", err, test.want)
			}
		})
	}
}

// C2: what a GET that opens no stream says of the server.
func TestUpstreamRefusedStream(t *testing.T) {
	for _, test := range []struct {
		status      int
		kind, after string
		other       bool
		want        string
	}{
		{200, "application/json", "", true, "not a stream"},
		{200, "", "", true, "not a stream"},
		{200, "text/html; charset=utf-8", "", true, "not a stream"},
		{204, "", "", false, "HTTP 204"},
		{400, "", "", true, "HTTP 400"},
		{401, "", "", false, "it wants credentials (HTTP 401): configure headers for it, such as Authorization"},
		{403, "", "", false, "it does not let this caller in (HTTP 403)"},
		{404, "text/event-stream", "", true, "HTTP 404"},
		{405, "", "", true, "HTTP 405"},
		{406, "", "", true, "HTTP 406"},
		{410, "", "", false, "HTTP 410"},
		{415, "", "", true, "HTTP 415"},
		{429, "", "7", false, "HTTP 429); try again in 7 s"},
		{500, "", "", false, "HTTP 500"},
		{503, "", "120", false, "HTTP 503); try again in 120 s"},
		{503, "", "Thu, 01 Jan 2015 00:00:00 GMT", false, "HTTP 503); try again in 0 s"},
	} {
		f := &fakePeer{get: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header()["Content-Type"] = []string{test.kind}
			w.Header().Set("Retry-After", test.after)
			w.WriteHeader(test.status)
			if test.status != 204 {
				_, _ = w.Write([]byte(secret))
			}
			return false
		}}
		u, _ := serve(t, f, remote.Config{}, conn.Options{})
		_, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		e, ok := errors.AsType[*bridge.Error](err)
		if !ok || !errors.Is(e.Kind, bridge.ErrUnavailable) || errors.Is(err, remote.ErrOtherTransport) != test.other || !strings.Contains(e.Public, test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("HTTP %d %s: Open = %v, want %q, another transport %v", test.status, test.kind, err, test.want, test.other)
		}
		if s, _ := strconv.Atoi(test.after); bridge.RetryAfter(err) != time.Duration(s)*time.Second {
			t.Errorf("HTTP %d: After is %v, want %s s", test.status, bridge.RetryAfter(err), test.after)
		}
	}
}

// A server that is not there is no reason to look for another transport, and its address is not shown.
func TestUpstreamUnreachable(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	u, _ := serve(t, &fakePeer{}, remote.Config{URL: gone.URL + "/" + secret}, conn.Options{})
	_, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
	if e, ok := errors.AsType[*bridge.Error](err); !ok || e.Kind != bridge.ErrUnavailable || e.Public != "it cannot be reached" || errors.Is(err, remote.ErrOtherTransport) || strings.Contains(err.Error(), secret) {
		t.Errorf("Open = %v", err)
	}
}

// Configured headers go with every request; forwarded ones are those of the client's request, or of its initialize.
func TestUpstreamHeaders(t *testing.T) {
	f := &fakePeer{}
	u, _ := serve(t, f, remote.Config{Headers: map[string]string{"Authorization": "Bearer " + secret, "X-Env": "test"}}, conn.Options{})
	from := *adaptertest.Caller("")
	from.Header = http.Header{"X-Tenant": {"one"}, "X-Env": {"mine"}}
	up, err := u.Open(t.Context(), &from, &adaptertest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close(t.Context())
	m := adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	for _, h := range []http.Header{{"X-Tenant": {"two"}}, {}, nil} {
		a, err := up.Call(t.Context(), &bridge.Request{Message: m, Header: h})
		if err != nil {
			t.Fatal(err)
		}
		a.Release()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	want := []string{"[one] [mine]", "[one] [mine]", "[one] [mine]", "[two] [test]", "[] [test]", "[one] [mine]"} // GET, initialize, initialized, the calls
	if len(f.headers) != len(want) {
		t.Fatalf("%d requests, want %d", len(f.headers), len(want))
	}
	for i, h := range f.headers {
		if got := fmt.Sprint(h["X-Tenant"], " ", h["X-Env"]); got != want[i] || h.Get("Authorization") != "Bearer "+secret {
			t.Errorf("request %d: %s, want %s and the Authorization", i, got, want[i])
		}
		accept, kind := "*/*", "application/json"
		if i == 0 {
			accept, kind = "text/event-stream", ""
		}
		if h.Get("Accept") != accept || h.Get("Content-Type") != kind || h.Get("Mcp-Session-Id") != "" {
			t.Errorf("request %d: %v", i, h)
		}
	}
}

// R-187, design 6.2: wherever the stream breaks, each call has one outcome and the loss is reported once.
func TestUpstreamCut(t *testing.T) {
	left := 0
	f := &fakePeer{}
	f.get = func(w http.ResponseWriter, r *http.Request) bool {
		f.serve(w, r, left)
		return false
	}
	u, _ := serve(t, f, remote.Config{}, conn.Options{})
	lost := 0
	every := scaletest.Alone(5, 1)
	for ; ; left += every {
		rest := &adaptertest.Client{}
		up, err := u.Open(t.Context(), adaptertest.Caller(`"initialize":{"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`), rest)
		if err != nil {
			if !errors.Is(err, bridge.ErrUnavailable) || len(rest.Gones()) > 0 {
				t.Errorf("cut at %d: Open = %v, Gone(%v)", left, err, rest.Gones())
			}
			continue
		}
		back := &adaptertest.Client{}
		one := adaptertest.Go(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1},"say":[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"$token","progress":1}}]}}`)
		two := adaptertest.Go(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":1,"method":"n","params":{"n":2}}`)
		whole := true
		for _, o := range []adaptertest.Outcome{<-one, <-two} {
			if o.Err != nil {
				whole = false
				lost++
			}
			if o.Err != nil && !errors.Is(o.Err, bridge.ErrLost) || (o.Err == nil) == (o.Answer == "") {
				t.Errorf("cut at %d: %q, %v, want an answer or ErrLost", left, o.Answer, o.Err)
			}
		}
		if whole { // nothing was cut, or only what follows the last answer
			if left > 5000 {
				t.Fatal("nothing is ever whole")
			}
			_ = up.Close(t.Context())
			break
		}
		if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) {
			t.Errorf("cut at %d: Gone(%v)", left, err)
		}
		_ = up.Close(t.Context())
		if n := len(rest.Gones()); n != 1 {
			t.Errorf("cut at %d: Gone was called %d times", left, n)
		}
	}
	if lost < 200/every {
		t.Errorf("only %d calls were lost in %d cuts", lost, left/every)
	}
}

// an event above the limit fails the call that it answers, and no other; so does the body of a POST.
func TestUpstreamOversize(t *testing.T) {
	var inBody bool
	f := &fakePeer{post: func(w http.ResponseWriter, _ *http.Request, s *stream, body []byte) bool {
		var r struct {
			ID     json.RawMessage
			Params struct{ Pad int }
		}
		if json.Unmarshal(body, &r) != nil || r.Params.Pad == 0 {
			return true
		}
		line := `{"jsonrpc":"2.0","result":"` + strings.Repeat("x", r.Params.Pad) + `","id":` + string(r.ID) + `}`
		if inBody {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = w.Write([]byte(line))
			return false
		}
		s.write("data: " + line + "\n\n")
		w.WriteHeader(204)
		return false
	}}
	u, _ := serve(t, f, remote.Config{}, conn.Options{MaxMessage: 200_000})
	up := adaptertest.Open(t, u, &adaptertest.Client{})
	other := goCall(t.Context(), t, up, `{"await":"release"}`)
	for _, inBody = range []bool{false, true} {
		if got := call(t, up, `{"pad":200000}`).Result(t); len(got) != 200_002 {
			t.Errorf("in the body %v: %d bytes came", inBody, len(got))
		}
		if o := call(t, up, `{"pad":300000}`); !strings.Contains(o.Answer, "larger than the limit of 200000 bytes") || !strings.Contains(o.Answer, "upstream_too_large") {
			t.Errorf("in the body %v: %.300q, %v", inBody, o.Answer, o.Err)
		}
	}
	notify(t, up, "release")
	(<-other).Result(t)
}

// An event without end ends the connection. The call whose answer it is gets that it
// is too large, if its id is known; others are lost.
func TestUpstreamEndless(t *testing.T) {
	for _, test := range []struct {
		name, begin string
		others      int
		large       bool
	}{
		{"the id first", `{"jsonrpc":"2.0","id":$id,"result":"`, 2, true},
		{"the id last", `{"jsonrpc":"2.0","result":"`, 2, false},
		{"the id last, of the only call", `{"jsonrpc":"2.0","result":"`, 0, true},
		{"a notification beside the only call", `{"jsonrpc":"2.0","method":"m","params":"`, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fakePeer{post: func(w http.ResponseWriter, _ *http.Request, s *stream, body []byte) bool {
				if !strings.Contains(string(body), `"endless"`) {
					return true
				}
				var r struct{ ID json.RawMessage }
				_ = json.Unmarshal(body, &r)
				w.WriteHeader(202)
				_ = http.NewResponseController(w).Flush()
				text := "data: " + strings.ReplaceAll(test.begin, "$id", string(r.ID))
				for {
					select {
					case <-s.over:
						return false
					default:
						s.write(text)
					}
					text = strings.Repeat("x", 32<<10)
				}
			}}
			u, _ := serve(t, f, remote.Config{}, conn.Options{MaxMessage: 200_000})
			rest := &adaptertest.Client{}
			up := adaptertest.Open(t, u, rest)
			var others []<-chan adaptertest.Outcome
			for range test.others {
				others = append(others, goCall(t.Context(), t, up, `{"await":"release"}`))
			}
			for strings.Count(strings.Join(adaptertest.Seen(t, up), ""), "release") < test.others {
			}
			lost := func(o adaptertest.Outcome) bool {
				return errors.Is(o.Err, bridge.ErrLost) && strings.Contains(o.Err.Error(), "far larger than the limit of 200000 bytes")
			}
			o := call(t, up, `{"endless":1}`)
			if large := o.Err == nil && strings.Contains(o.Answer, "upstream_too_large"); large != test.large || !large && !lost(o) {
				t.Errorf("the call: %.200q, %v", o.Answer, o.Err)
			}
			for _, other := range others {
				if o := <-other; !lost(o) {
					t.Errorf("another call: %.200q, %v", o.Answer, o.Err)
				}
			}
			if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) {
				t.Errorf("Gone(%v)", err)
			}
		})
	}
}

// Text that is no message is dropped and counted. Only level debug shows its content. Arrays are split.
func TestUpstreamNoise(t *testing.T) {
	f := &fakePeer{}
	u, log := serve(t, f, remote.Config{}, conn.Options{})
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, u, rest)
	f.the(t).write("data: hello\n\n: ping\n\nevent: ping\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"no\"}\n\nid: 5\n\nretry: 10\n\n" +
		"data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"one\"}\r\n\r\ndata: [{\"jsonrpc\":\"2.0\",\"method\":\"two\"},{},{\"jsonrpc\":\"2.0\",\"method\":\"three\"}]\n\ndata: []\n\n" +
		"event: endpoint\ndata: http://elsewhere/\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":7}\n\n")
	call(t, up, `{"await":"\"id\":\"q\",\"error\":"}`).Result(t)
	if got := strings.Join(rest.Said(), " "); got != `{"jsonrpc":"2.0","method":"one"} {"jsonrpc":"2.0","method":"two"} {"jsonrpc":"2.0","method":"three"}` {
		t.Errorf("notifications: %s", got)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(log.String()) {
		if _, count, ok := strings.Cut(line, "events="); ok && strings.Contains(line, "level=WARN") && strings.Contains(line, "server=fake") {
			var events int
			_, _ = fmt.Sscan(count, &events)
			n += events
		}
		if strings.Contains(line, "hello") && !strings.Contains(line, "level=DEBUG") {
			t.Errorf("the content is logged: %s", line)
		}
	}
	if n != 4 {
		t.Errorf("%d events counted as dropped, want 4:\n%s", n, log)
	}
}

// A refused request counts against the server only if the fault is its own.
func TestUpstreamRefusalKinds(t *testing.T) {
	for status, want := range map[int]error{
		204: bridge.ErrUnavailable, 302: bridge.ErrUnavailable, 400: bridge.ErrRejected, 401: bridge.ErrCredentials, 403: bridge.ErrCredentials,
		413: bridge.ErrRejected, 422: bridge.ErrRejected, 429: bridge.ErrRejected, 500: bridge.ErrLost, 501: bridge.ErrUnavailable, 503: bridge.ErrUnavailable,
	} {
		err := (&Upstream{name: "s"}).refusal(&http.Response{StatusCode: status, Request: &http.Request{Method: http.MethodPost}}, nil)
		if !errors.Is(err, want) || errors.Is(err, bridge.ErrRejected) != errors.Is(want, bridge.ErrRejected) {
			t.Errorf("HTTP %d is %v, want %v", status, err.Kind, want)
		}
	}
}

// C2.9: the modern era is never used here, whatever the caller, and the
// server is offered no more than the settings allow.
func TestUpstreamIsLegacy(t *testing.T) {
	for _, c := range []struct{ name, most, offered string }{
		{"no limit", "", "2025-11-25"},
		{"capped", "2024-11-05", "2024-11-05"},
		{"capped higher than the client", "2026-07-28", "2025-11-25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, _ := serve(t, &fakePeer{}, remote.Config{}, conn.Options{Revision: c.most})
			up := adaptertest.OpenModern(t, u, &adaptertest.Client{})
			if up.Server().Modern() {
				t.Errorf("revision %s", up.Server().Revision)
			}
			seen := adaptertest.Seen(t, up)
			if len(seen) != 3 || !strings.Contains(seen[0], `"method":"initialize"`) || !strings.Contains(seen[0], `"protocolVersion":"`+c.offered+`"`) || !strings.Contains(seen[1], "notifications/initialized") {
				t.Errorf("the server received %q, want initialize with %s and notifications/initialized first", seen, c.offered)
			}
		})
	}
}

func TestEventsUnderWay(t *testing.T) {
	for _, inPost := range []bool{false, true} {
		t.Run(fmt.Sprint("in the answer to the POST ", inPost), func(t *testing.T) {
			rest := make(chan struct{}, 1)
			f := &fakePeer{}
			f.post = func(w http.ResponseWriter, r *http.Request, s *stream, body []byte) bool {
				var m struct {
					ID     json.RawMessage
					Method string
					Params struct{ Name string }
				}
				_ = json.Unmarshal(body, &m)
				if m.Method == adaptertest.Rest {
					rest <- struct{}{}
				}
				if m.Method != "tools/call" {
					return true
				}
				first, second := adaptertest.Halves(string(m.ID))
				write := func(text string) {
					_, _ = io.WriteString(w, text)
					w.(http.Flusher).Flush()
				}
				if inPost {
					w.Header().Set("Content-Type", "application/json")
				} else {
					w.WriteHeader(http.StatusAccepted)
					write = s.write
					first, second = "data: "+first, second+"\n\n"
				}
				write(first)
				if m.Params.Name == "halves" {
					select {
					case <-rest:
					case <-r.Context().Done():
					case <-s.over:
					}
				}
				write(second)
				return false
			}
			u, _ := serve(t, f, remote.Config{}, conn.Options{})
			adaptertest.Intake(t, u)
		})
	}
}

// zipped compresses what is written to it, and what is flushed is sent.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z *zipped) WriteHeader(status int) {
	z.Header().Set("Content-Encoding", "gzip")
	z.ResponseWriter.WriteHeader(status)
}

func (z *zipped) Write(b []byte) (int, error) { return z.z.Write(b) }

func (z *zipped) Flush() {
	_ = z.z.Flush()
	z.ResponseWriter.(http.Flusher).Flush()
}

// A stream that is compressed is read as it comes, and the messages go to the node that
// has it.
func TestUpstreamOdd(t *testing.T) {
	f := &fakePeer{}
	seen := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprint(r.Method, r.Header["Cookie"])
		if r.Method == http.MethodGet {
			http.SetCookie(w, &http.Cookie{Name: "AWSALB", Value: "node", Path: "/"})
			w = &zipped{w, gzip.NewWriter(w)}
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	u, err := NewUpstream("fake", remote.Config{URL: s.URL + "/sse"}, conn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	for range 2 {
		up := adaptertest.Open(t, u, &adaptertest.Client{})
		call(t, up, `{}`).Result(t)
		_ = up.Close(t.Context())
		var got []string
		for len(seen) > 0 {
			got = append(got, <-seen)
		}
		if want := []string{"GET[]", "POST[AWSALB=node]", "POST[AWSALB=node]", "POST[AWSALB=node]"}; !slices.Equal(got, want) {
			t.Errorf("the requests came as %q, want %q", got, want)
		}
	}
}
