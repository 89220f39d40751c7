package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// hostileTools are tools whose API means harm, or is out of order, or whose
// arguments do.
const hostileTools = `{
	"redirect": {"request": "GET /redirect/{code}", "args": {"code": "integer"}},
	"submit": {"request": "POST /redirect/{code}", "args": {"code": "integer"}, "body": {"secret": "yes"}},
	"status": {"request": "GET /status/{code}", "args": {"code": "integer"}},
	"post_status": {"request": "POST /status/{code}", "args": {"code": "integer"}, "body": {}},
	"endless": {"request": "GET /endless/{kind}", "args": {"kind": "string"}},
	"bomb": {"request": "GET /bomb"},
	"hang": {"request": "GET /hang/{how}", "args": {"how": "string"}},
	"item": {"request": "GET /items/{id}/parts{?q}", "args": {"id": "string", "q?": "string"}},
	"header": {"request": "GET /header", "args": {"trace": "string"}, "headers": {"X-Trace": "{trace}"}},
	"fine": {"request": "GET /fine"}
}`

// TestRESTHostile tries what an API can do to the bridge, and what arguments
// can do to an API, through the whole program, for a client of each era: all of
// it is refused or bounded, and the server goes on.
func TestRESTHostile(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	api := newHostileAPI(t)
	server := func(timeout string) map[string]any {
		return map[string]any{
			"rest": map[string]any{
				"base_url": api.URL + "/v1", "auth": map[string]any{"bearer": modelToken},
				"limits": map[string]any{"answer": "20KiB", "body": "1MiB"},
				"tools":  json.RawMessage(hostileTools),
			},
			"timeout": timeout,
		}
	}
	file := configureNamed(t, map[string]any{"servers": map[string]any{"api": server("1h"), "hasty": server("1s")}})
	b := start(t, exec.Command(bridgeProgram(t), "serve", "-c", file))
	t.Cleanup(func() { b.stop(t) })
	for _, revision := range []string{legacy, modern} {
		t.Run(revision, func(t *testing.T) { // one after the other: they share the API's counts
			p := newPeer("hostile", true).connect(t, target{transport: "streamable", url: b.base + "/api/mcp"}, revision)
			defer p.close(t)
			hostileAnswers(t, p, api)
			hostileStreams(t, p, api)
			hostileArguments(t, p, api)
			if got := p.text(t, "fine", nil); got != `{"fine":true}` {
				t.Errorf("afterwards: %q", got)
			}
			hasty := newPeer("hasty", true).connect(t, target{transport: "streamable", url: b.base + "/hasty/mcp"}, revision)
			defer hasty.close(t)
			hostileSilence(t, hasty, api)
		})
	}
	if n := api.other.count(); n != 0 {
		t.Errorf("%d requests went to another host", n)
	}
	peak := peakMemory(b.cmd.Process.Pid)
	t.Logf("at its peak the bridge had %d MB in memory", peak>>20)
	if peak > 200<<20 && !scaletest.Raced { // the race detector takes several times as much
		t.Error("that is too much")
	}
}

// hostileAnswers are those with a status that is no success.
func hostileAnswers(t *testing.T, p *peer, api *hostileAPI) {
	for code, texts := range map[int][]string{
		400: {"400 Bad Request", "Nope"}, 401: {"401 Unauthorized"}, 403: {"403 Forbidden"}, 404: {"404 Not Found"},
		409: {"409 Conflict"}, 422: {"422 Unprocessable Entity"}, 500: {"500 Internal Server Error"}, 501: {"501 Not Implemented"},
	} {
		from := api.count()
		contains(t, fmt.Sprint(code), p.refused(t, "status", map[string]any{"code": code}), texts...)
		if n := api.count() - from; n != 1 {
			t.Errorf("%d: %d requests, want 1", code, n)
		}
	}
	// Out of order for the moment: what may be repeated is, and nothing else.
	for tool, want := range map[string]int64{"status": 3, "post_status": 1} {
		p.text(t, "fine", nil) // or else the host would seem dead
		from := api.count()
		contains(t, tool, p.refused(t, tool, map[string]any{"code": 503}), "503 Service Unavailable")
		if n := api.count() - from; n != want {
			t.Errorf("%s: %d requests, want %d", tool, n, want)
		}
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		contains(t, "redirect", p.refused(t, "redirect", map[string]any{"code": code}), fmt.Sprint(code), "not followed")
		contains(t, "redirect of a POST", p.refused(t, "submit", map[string]any{"code": code}), fmt.Sprint(code), "not followed")
	}
}

// hostileStreams are answers that are too large, or never end.
func hostileStreams(t *testing.T, p *peer, api *hostileAPI) {
	bounded := func(what string, r *mcp.CallToolResult) {
		if n := len(textOf(r)); n > 30<<10 {
			t.Errorf("%s: %d bytes of text", what, n)
		}
	}
	for kind, want := range map[string]string{
		"json": "larger than what is read", "text": "larger than what is read", "image": "larger than", "events": "larger than what is read",
		"comments": "larger than what is read", "lines": "larger than what is read", "error": "400 Bad Request", "headers": "got no answer",
	} {
		r := p.tool(t, "endless", map[string]any{"kind": kind})
		bounded(kind, r)
		contains(t, kind, textOf(r), want)
		api.ended(t, kind)
		p.text(t, "fine", nil)
	}
	r := p.tool(t, "bomb", nil)
	bounded("bomb", r)
	contains(t, "bomb", textOf(r), "larger than what is read")
}

// hostileSilence is of answers that take longer than the second that they have.
func hostileSilence(t *testing.T, p *peer, api *hostileAPI) {
	for _, how := range []string{"silent", "dripping"} {
		contains(t, how, textOf(p.tool(t, "hang", map[string]any{"how": how})), "in time")
		api.ended(t, how)
	}
}

// hostileArguments are those that want out of the place that they have.
func hostileArguments(t *testing.T, p *peer, api *hostileAPI) {
	from := api.count()
	for _, id := range []string{"..", ".", "../admin", "a/../../admin", `..\admin`, "%2e%2e", "%2E%2e/x", "..%2fadmin", "%252e%252e", "..;a=1", ""} {
		contains(t, fmt.Sprintf("the path %q", id), p.refused(t, "item", map[string]any{"id": id}), "id")
	}
	for _, trace := range []string{"a\r\nX-Admin: yes", "a\nX-Admin: yes", "a\rb", "a\x00b"} {
		contains(t, fmt.Sprintf("the header %q", trace), p.refused(t, "header", map[string]any{"trace": trace}), "X-Trace has a line break")
	}
	if n := api.count() - from; n != 0 {
		t.Errorf("%d requests were sent of arguments that are refused", n)
	}
	for id, want := range map[string]string{
		"a/b": "a%2Fb", "a?b=c#d": "a%3Fb%3Dc%23d", "a\r\nHost: evil": "a%0D%0AHost%3A%20evil", "//evil.example": "%2F%2Fevil.example",
		"@evil.example": "%40evil.example", "a%2fb": "a%252fb", "\u202e": "%E2%80%AE",
	} {
		if got, full := p.text(t, "item", map[string]any{"id": id, "q": id}), "/v1/items/"+want+"/parts?q="+want; got != full {
			t.Errorf("the argument %q: the API got %q, want %q", id, got, full)
		}
	}
}

// refused calls a tool whose result must say that it failed, and says how.
func (p *peer) refused(t *testing.T, tool string, args map[string]any) string {
	t.Helper()
	r := p.tool(t, tool, args)
	if !r.IsError {
		t.Errorf("%s %s succeeded: %.300q", tool, brief(args), textOf(r))
	}
	return textOf(r)
}

// A hostileAPI is an HTTP server that behaves badly.
type hostileAPI struct {
	*counter
	URL     string
	other   *counter     // a host where nothing must ever arrive
	running atomic.Int32 // answers without end that are under way
}

// A counter counts requests.
type counter struct {
	http.Handler
	n atomic.Int64
}

func (c *counter) count() int64 { return c.n.Load() }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.n.Add(1)
	c.Handler.ServeHTTP(w, r)
}

func newHostileAPI(t *testing.T) *hostileAPI {
	t.Helper()
	mux := http.NewServeMux()
	h := &hostileAPI{counter: &counter{}, other: &counter{Handler: http.NotFoundHandler()}}
	other := at(t, "127.0.0.1:0", h.other)
	mux.HandleFunc("/v1/redirect/{code}", func(w http.ResponseWriter, r *http.Request) {
		code := 0
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		http.Redirect(w, r, other.URL+"/take", code)
	})
	mux.HandleFunc("/v1/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code := 0
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		w.Header().Set("Retry-After", "0")
		answer(w, code, problemType, `{"title":"Nope"}`)
	})
	mux.HandleFunc("GET /v1/endless/{kind}", func(w http.ResponseWriter, r *http.Request) {
		h.running.Add(1)
		defer h.running.Add(-1)
		endless(w, r, r.PathValue("kind"))
	})
	mux.HandleFunc("GET /v1/hang/{how}", func(w http.ResponseWriter, r *http.Request) {
		h.running.Add(1)
		defer h.running.Add(-1)
		if r.PathValue("how") == "silent" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	bomb := bombOf(t)
	mux.HandleFunc("GET /v1/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	mux.HandleFunc("GET /v1/fine", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, jsonType, `{"fine":true}`) })
	h.counter.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RequestURI, "/v1/items/") || !strings.HasPrefix(r.RequestURI, "/v1/") { // before anyone makes it clean
			answer(w, http.StatusOK, "text/plain", r.RequestURI)
			return
		}
		mux.ServeHTTP(w, r)
	})
	h.URL = at(t, "127.0.0.1:0", h).URL
	return h
}

// bombOf is 300 MB of JSON in 300 KB. Compressed texts one after the other are
// one text.
func bombOf(t *testing.T) []byte {
	zipped := func(text []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	zeros := zipped(bytes.Repeat([]byte("0"), 1<<20))
	return append(zipped([]byte(`["`)), bytes.Repeat(zeros, 300)...)
}

// endless answers until nobody reads any more.
func endless(w http.ResponseWriter, r *http.Request, kind string) {
	begin, part, as := "", "", ""
	switch kind {
	case "json":
		as, begin, part = jsonType, `{"data":[`, `{"a":"`+strings.Repeat("x", 100)+`"},`
	case "text":
		as, part = "text/plain", "lorem ipsum "
	case "image":
		as, part = "image/png", "\x89PNG"
	case "events":
		as, part = "text/event-stream", "data: {\"a\":\""+strings.Repeat("x", 500)+"\"}\n\n"
	case "comments":
		as, part = "text/event-stream", ": ping\n\n"
	case "lines":
		as, part = "application/x-ndjson", "{\"a\":\""+strings.Repeat("x", 500)+"\"}\n"
	case "error":
		as, part = "text/plain", "no "
	case "headers":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
		return
	}
	w.Header().Set("Content-Type", as)
	if kind == "error" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, err := io.WriteString(w, begin)
	part = strings.Repeat(part, 1+32<<10/len(part))
	for err == nil && r.Context().Err() == nil {
		_, err = io.WriteString(w, part)
	}
}

// ended checks that the bridge has let go of all answers.
func (h *hostileAPI) ended(t *testing.T, kind string) {
	t.Helper()
	if n, ok := eventually(func() (int32, bool) { n := h.running.Load(); return n, n == 0 }); !ok {
		t.Errorf("%s: the bridge still reads %d answers", kind, n)
	}
}
