package streamable

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// newModern is a modern server of which post answers what is not
// server/discover. Every other kind of request is against the protocol.
func newModern(t testing.TB, post reply) *script {
	s := &script{post: func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("Mcp-Method") == "server/discover" {
			good(discovered)(w, r, id)
		} else {
			post(w, r, id)
		}
	}}
	wrong := func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s without a request in it to a modern server", r.Method)
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
	s.get, s.note = wrong, wrong
	return newScript(t, s)
}

// visit opens a connection on behalf of a client without sessions.
func (s *script) visit(t testing.TB, o conn.Options) (bridge.Upstream, *adaptertest.Client) {
	t.Helper()
	rest := &adaptertest.Client{}
	return adaptertest.OpenModern(t, adapter(t, s.URL, nil, o), rest), rest
}

// the headers that each request has, and those that none has.
func TestUpstreamModernHeaders(t *testing.T) {
	encoded := func(v string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(v)) + "?=" }
	for _, c := range []struct {
		name, method, params string
		header               []string // Mcp-Name
	}{
		{"a tool", "tools/call", `{"name":"book"}`, []string{"book"}},
		{"a resource", "resources/read", `{"uri":"file:///a%20b?x=1#y"}`, []string{"file:///a%20b?x=1#y"}},
		{"a task", "tasks/get", `{"taskId":"t-1"}`, []string{"t-1"}},
		{"not ASCII", "tools/call", `{"name":"büch\u00e9r"}`, []string{encoded("büchér")}},
		{"control characters", "tools/call", `{"name":"a\r\nX-Evil: 1\u0000"}`, []string{encoded("a\r\nX-Evil: 1\x00")}},
		{"none", "tools/list", `{"name":"no"}`, nil},
		{"a method that no header holds", "x/\u00e9\n", `{}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newModern(t, echo)
			sticky(s)
			u := adapter(t, s.URL+"/mcp?key=v", map[string]string{"X-Own": "own", "X-Both": "own", "Mcp-Name": "configured", "Mcp-Session-Id": "configured"}, conn.Options{})
			from := adaptertest.ModernCaller()
			from.Header = http.Header{"X-Both": {"first"}}
			rest := &adaptertest.Client{}
			up := adaptertest.OpenFor(t, u, from, rest)
			m := &jsonrpc.Message{ID: []byte("1"), Method: c.method, Params: []byte(c.params)}
			answer, err := up.Call(t.Context(), &bridge.Request{Message: m.Clone(),
				Header: http.Header{"X-Both": {"second"}, "Last-Event-Id": {"forwarded"}}, Mirror: http.Header{"Mcp-Param-Seat": {"12A"}}})
			if err != nil {
				t.Fatal(err)
			}
			answer.Release()
			_ = up.Close(t.Context())
			all := s.requests()
			if len(all) != 2 {
				t.Fatalf("%d requests, want 2", len(all))
			}
			for i, r := range all {
				h := r.header
				both, method, name := "first", "server/discover", []string(nil)
				if i == 1 {
					both, method, name = "second", era.EncodeHeader(c.method), c.header
				}
				if h.Get("Mcp-Protocol-Version") != "2026-07-28" || h.Get("Mcp-Method") != method || !slices.Equal(h["Mcp-Name"], name) {
					t.Errorf("%s: headers %v, want the method %q and the name %q", r.line(), h, method, name)
				}
				if h.Get("Accept") != "application/json, text/event-stream" || h.Get("Content-Type") != "application/json" {
					t.Errorf("%s: headers %v", r.line(), h)
				}
				if h.Get("X-Own") != "own" || h.Get("X-Both") != both {
					t.Errorf("%s: headers %v, want X-Both %q", r.line(), h, both)
				}
				if h["Mcp-Session-Id"] != nil || h["Last-Event-Id"] != nil || h["X-Evil"] != nil {
					t.Errorf("%s: headers %v: what no modern server is sent", r.line(), h)
				}
				if cookie := h.Get("Cookie"); cookie != []string{"", "node=1"}[i] {
					t.Errorf("%s: Cookie %q", r.line(), cookie)
				}
				if seat := h.Get("Mcp-Param-Seat"); (seat == "12A") != (i == 1) {
					t.Errorf("%s: Mcp-Param-Seat %q", r.line(), seat)
				}
			}
		})
	}
}

// B7: a server that compares the name undecoded gets it so, once, and only where
// HTTP leaves it as it is.
func TestUpstreamModernBareName(t *testing.T) {
	mismatch := failure("$id", -32020, "Mcp-Name differs")
	for _, c := range []struct {
		name, tool string
		status     int
		stream     bool
		never      bool // the server is never content
		requests   int
	}{
		{"400", "büch\u00e9r", 400, false, false, 2},
		{"200", "büchér", 200, false, false, 2},
		{"as an event", "büchér", 200, true, false, 2},
		{"never content", "büchér", 400, false, true, 2},
		{"plain", "plain", 400, false, true, 1},
		{"a line break", "bü\r\nchér", 400, false, true, 1},
		{"a control character", "bü\u0085ch", 400, false, true, 1},
		{"edges", " büchér", 400, false, true, 1},
		{"looks encoded", "=?base64?aGk=?=", 400, false, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bodies sync.Map
			s := newModern(t, func(w http.ResponseWriter, r *http.Request, id string) {
				switch {
				case !c.never && r.Header.Get("Mcp-Name") == c.tool && c.stream:
					streamed("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"done\":true}}\n\n")(w, r, id)
				case !c.never && r.Header.Get("Mcp-Name") == c.tool:
					good(`{"done":true}`)(w, r, id)
				case c.stream:
					streamed("data: "+mismatch+"\n\n")(w, r, id)
				default:
					respond(c.status, mismatch)(w, r, id)
				}
				bodies.Store(r.Header.Get("Mcp-Name"), id)
			})
			up, _ := s.visit(t, conn.Options{})
			m := &jsonrpc.Message{ID: []byte("1"), Method: "tools/call", Params: []byte(fmt.Sprintf(`{"name":%s,"x":1.0}`, strconv.QuoteToASCII(c.tool)))}
			if strings.ContainsAny(c.tool, "\u0085") {
				m.Params = []byte(`{"name":"b\u00fc\u0085ch","x":1.0}`)
			}
			a, err := up.Call(t.Context(), &bridge.Request{Message: m.Clone()})
			if err != nil {
				t.Fatal(err)
			}
			if got := adaptertest.Text(a); strings.Contains(got, `"done":true`) == c.never || c.never && !strings.Contains(got, "-32020") {
				t.Errorf("the answer is %s", got)
			}
			calls := s.wait(t, c.requests, "POST tools/call")
			if len(calls) != c.requests || calls[0].header.Get("Mcp-Name") != era.EncodeHeader(c.tool) || calls[0].body != calls[len(calls)-1].body {
				t.Errorf("the server received %+v", calls)
			}
		})
	}
}

// which refusals are answers, and what the others are. None of them
// is the connection's end as long as the server says that it is what it was.
func TestUpstreamModernRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		answer string // a part of it
		err    error
	}{
		{"404 -32601 (R-051)", 404, failure("$id", -32601, "Method not found"), "-32601", nil},
		{"404 -32601 without id", 404, failure("null", -32601, "Method not found"), "-32601", nil},
		{"400 -32602", 400, failure("$id", -32602, "bad"), "-32602", nil},
		{"400 -32021", 400, failure("$id", -32021, "more"), "-32021", nil},
		{"400 -32020 without id", 400, failure("null", -32020, "bad"), "-32020", nil},
		{"400 -32022 that names ours", 400, refusedRevision("$id", "2026-07-28"), "-32022", nil},
		{"400 with a code of its own", 400, failure("$id", -32000, "no session"), "no session", nil},
		{"400 of somebody else's", 400, failure(`"server-error"`, -32600, "x"), "", bridge.ErrUnavailable},
		{"404, a page", 404, "404 page not found", "", bridge.ErrUnavailable},
		{"400, a page", 400, "Bad Request", "", bridge.ErrUnavailable},
		{"413", 413, "", "", bridge.ErrUnavailable},
		{"500 -32603", 500, failure("$id", -32603, "oops"), "oops", nil},
		{"500 without id", 500, failure("null", -32603, "oops"), "", bridge.ErrLost},
		{"502", 502, "", "", bridge.ErrLost},
		{"503", 503, "", "", bridge.ErrUnavailable},
		{"503 with an answer", 503, failure("$id", -32603, "later"), "later", nil},
		{"429", 429, "", "", bridge.ErrUnavailable},
		{"401", 401, failure("$id", -32001, "who?"), "", bridge.ErrUnavailable},
		{"403", 403, failure("$id", -32001, "no"), "", bridge.ErrUnavailable},
		{"202", 202, "", "", bridge.ErrLost},
		{"200, no answer", 200, `{"jsonrpc":"2.0","id":"x","result":{}}`, "", bridge.ErrLost},
		{"200, no id", 200, failure("null", -32603, "oops"), "oops", nil},
		{"200, not JSON-RPC", 200, `{"id":$id,"result":{}}`, "", bridge.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newModern(t, respond(c.status, c.body))
			up, rest := s.visit(t, conn.Options{})
			o := adaptertest.Call(t.Context(), t, up, nil, ask)
			if c.err == nil && (o.Err != nil || !strings.Contains(o.Answer, c.answer)) || c.err != nil && (!errors.Is(o.Err, c.err) || errors.Is(o.Err, bridge.ErrUnsent) || o.Answer != "") {
				t.Errorf("the call ended with %q, %v, want %q, %v", o.Answer, o.Err, c.answer, c.err)
			}
			if n := len(s.wait(t, 1, "POST tools/call")); n != 1 {
				t.Errorf("%d POSTs, want 1", n)
			}
			rest.NoGone(t)
			for _, line := range s.lines() {
				if line == "initialize" {
					t.Error("initialize was sent")
				}
			}
		})
	}
}

// a server that answers unlike the one that it was ends the connection.
// The call was not acted on, nor was one that is refused after that, without another check. Calls in flight may be
// answered, and who listens does so elsewhere.
func TestUpstreamModernChanged(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		discover   reply // answers from then on; nil means that no request is needed
	}{
		{"404", "404 page not found", 404, respond(404, "404 page not found")},
		{"404 of the TypeScript SDK", failure("null", -32001, "Session not found"), 404, respond(400, failure("null", -32000, "Bad Request: Server not initialized"))},
		{"400 of the Python SDK", failure(`"server-error"`, -32600, "Bad Request: Missing session ID"), 400, respond(400, failure(`"server-error"`, -32600, "Bad Request: Missing session ID"))},
		{"405", "", 405, respond(405, "")},
		{"404 -32601 of nobody", failure("null", -32601, "Not found"), 404, respond(404, failure("null", -32601, "Not found"))},
		{"400 with our id", failure("$id", -32000, "Bad Request: Mcp-Session-Id header is required"), 400, respond(400, failure("$id", -32000, "Bad Request: Mcp-Session-Id header is required"))},
		{"400, and other revisions", "Bad Request", 400, respond(400, refusedRevision("$id", "2027-01-01"))},
		{"-32022", refusedRevision("$id", "2025-11-25"), 400, nil},
		{"-32022 with 200", refusedRevision("$id", "2025-11-25"), 200, nil},
		{"-32022 without id", refusedRevision("null", "2025-11-25"), 400, nil},
		{"-32022, another", refusedRevision("$id", "2027-01-01"), 400, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var changed, asked atomic.Int32
			arrived, release := make(chan struct{}), make(chan struct{})
			s := newModern(t, nil)
			usual := s.post
			s.post = func(w http.ResponseWriter, r *http.Request, id string) {
				switch method := r.Header.Get("Mcp-Method"); {
				case method == "server/discover" && changed.Load() > 0:
					if asked.Add(1); c.discover == nil {
						t.Error("server/discover though it is certain")
						return
					}
					c.discover(w, r, id)
				case method == "server/discover":
					usual(w, r, id)
				case method == "slow", method == "subscriptions/listen":
					events(w)
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{}}\n\n")
					flush(w)
					select {
					case <-release:
						fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"in\":\"time\"}}\n\n", id)
					case <-r.Context().Done():
					}
				case method == "late":
					close(arrived)
					<-release
					respond(c.status, c.body)(w, r, id)
				default:
					changed.Store(1)
					respond(c.status, c.body)(w, r, id)
				}
			}
			rest := &adaptertest.Client{}
			u := adapter(t, s.URL, nil, conn.Options{})
			up := adaptertest.OpenModern(t, u, rest)
			slow, listener := &adaptertest.Client{}, &adaptertest.Client{}
			answer := adaptertest.Go(t.Context(), t, up, slow, `{"jsonrpc":"2.0","id":1,"method":"slow"}`)
			heard := adaptertest.Go(t.Context(), t, up, listener, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`)
			late := adaptertest.Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"late"}`)
			<-arrived
			slow.WaitSaid(t, 1)
			listener.WaitSaid(t, 1)
			if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) || o.Answer != "" {
				t.Errorf("the call ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
			}
			if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrUnsent) {
				t.Errorf("Gone(%v), want ErrUnsent", err)
			}
			if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
				t.Errorf("a later call: %q, %v, want ErrUnsent", o.Answer, o.Err)
			}
			if o := <-heard; !errors.Is(o.Err, bridge.ErrLost) {
				t.Errorf("the subscription ended with %q, %v, want ErrLost", o.Answer, o.Err)
			}
			closed := make(chan struct{})
			go func() { defer close(closed); _ = up.Close(context.Background()) }()
			close(release)
			if got := (<-answer).Result(t); got != `{"in":"time"}` {
				t.Errorf("the call under way got %s", got)
			}
			if o := <-late; !errors.Is(o.Err, bridge.ErrUnsent) {
				t.Errorf("the call that was refused after that ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
			}
			<-closed
			if n := asked.Load(); n > 1 {
				t.Errorf("%d times asked what the server is", n)
			}
			if n := len(s.wait(t, 1, "POST tools/call")); n != 1 {
				t.Errorf("%d POSTs, want 1", n)
			}
			if gone := rest.Gones(); len(gone) != 1 {
				t.Errorf("Gone was called %d times", len(gone))
			}
			if _, known := u.eras.Speaks(conn.EraModern); known {
				t.Error("the verdict is remembered")
			}
		})
	}
}

// Many calls that are refused at once ask once what the server is.
func TestUpstreamModernDoubt(t *testing.T) {
	const n = 20
	var refused, asked atomic.Int32
	all := make(chan struct{})
	s := newModern(t, nil)
	usual := s.post
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("Mcp-Method") != "server/discover" {
			if refused.Add(1) == n {
				close(all)
			}
			w.WriteHeader(404)
			return
		}
		if asked.Add(1) > 1 {
			<-all
		}
		usual(w, r, id)
	}
	up, rest := s.visit(t, conn.Options{})
	var calls []<-chan adaptertest.Outcome
	for range n {
		calls = append(calls, adaptertest.Go(t.Context(), t, up, nil, ask))
	}
	for _, call := range calls {
		if o := <-call; !errors.Is(o.Err, bridge.ErrUnavailable) || errors.Is(o.Err, bridge.ErrUnsent) {
			t.Errorf("a call ended with %q, %v, want ErrUnavailable", o.Answer, o.Err)
		}
	}
	// Those whose 404 is on its way yet when the first has its answer ask again.
	if got := asked.Load() - 1; got >= n {
		t.Errorf("%d times asked what the server is", got)
	}
	rest.NoGone(t)
}
