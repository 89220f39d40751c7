package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// discovered is what a modern server answers server/discover with.
const discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`

// reply answers a request of a script.
type reply = func(w http.ResponseWriter, r *http.Request, id string)

func good(result string) reply { return respond(200, `{"jsonrpc":"2.0","id":$id,"result":`+result+`}`) }

// refusedRevision is error -32022 with the revisions that a server supports.
func refusedRevision(id string, revisions ...string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["%s"],"requested":"x"}}}`, id, strings.Join(revisions, `","`))
}

func streamed(events string) reply {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, strings.ReplaceAll(events, "$id", id))
	}
}

func cutOff(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }

func lists(w http.ResponseWriter, r *http.Request, id string) {
	if r.Header.Get("Mcp-Method") == "tools/list" {
		good(`{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`)(w, r, id)
		return
	}
	respond(404, failure("$id", -32601, "Method not found"))(w, r, id)
}

// probed is a server in either era, or none.
type probed struct {
	*script
	discover, begin, post reply // begin nil means that initialize succeeds
}

func newProbed(t *testing.T, discover, begin, post reply) *probed {
	p := &probed{discover: discover, begin: begin, post: post}
	p.script = newScript(t, &script{begin: begin, post: func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("Mcp-Method") == "server/discover" {
			p.discover(w, r, id)
		} else {
			p.post(w, r, id)
		}
	}})
	return p
}

// lines are the requests that a script has seen, without those for streams.
func (s *script) lines() []string {
	var all []string
	for _, r := range s.requests() {
		if r.http == "POST" {
			all = append(all, r.method)
		}
	}
	return all
}

// C2: what each answer to server/discover leads to, and what to initialize after
// it.
func TestUpstreamEraModernFirst(t *testing.T) {
	notFound := respond(404, failure("$id", -32601, "Method not found"))
	shakes := []string{"server/discover", "initialize", "notifications/initialized"}
	alone := []string{"server/discover"}
	refused := []string{"server/discover", "initialize"}
	playEras(t, adaptertest.ModernCaller(), []eraCase{
		{"C2.2 modern", good(discovered), nil, "", "modern", alone},
		{"C2.2 modern, as events", streamed("id: 1\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":" + discovered + "}\n\n"), nil, "", "modern", alone},
		{"C2.2 modern, after what it must not say (R-083)", streamed("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":" + discovered + "}\n\n"), nil, "", "modern", alone},
		{"C2.2 both", good(strings.Replace(discovered, `["`, `["2025-11-25","`, 1)), nil, "", "modern", alone},
		{"C2.2 legacy only (R-109)", good(strings.Replace(discovered, "2026-07-28", "2025-06-18", 1)), nil, "", "legacy", shakes},
		{"C2.2 unknown (R-105)", good(strings.Replace(discovered, "2026-07-28", "2027-01-01", 1)), nil, "", "2027-01-01", alone},
		{"C2.2 legacy -32022", respond(400, refusedRevision("$id", "2025-11-25", "2025-06-18")), nil, "", "legacy", shakes},
		{"C2.2 legacy -32022 with 200", respond(200, refusedRevision("$id", "2025-11-25")), nil, "", "legacy", shakes},
		{"C2.2 legacy -32022 with 500", respond(500, refusedRevision("$id", "2025-11-25")), nil, "", "legacy", shakes},
		{"C2.2 legacy -32022 without id", respond(400, refusedRevision("null", "2025-11-25")), nil, "", "legacy", shakes},
		{"C2.2 other -32022 (R-105)", respond(400, refusedRevision("$id", "2027-01-01")), nil, "", "2027-01-01", alone},
		{"C2.3 -32020", respond(400, failure("$id", -32020, "no Mcp-Method")), nil, "", "fault with server/discover: no Mcp-Method", alone},
		{"C2.3 -32021", respond(400, failure("$id", -32021, "more is needed")), nil, "", "more is needed", alone},
		{"C2.3 -32020 without our id", respond(400, failure("null", -32020, "odd")), nil, "", "legacy", shakes},
		{"C2.3 -32020 without our id, with 200", respond(200, failure("null", -32020, "odd")), nil, "", "legacy", shakes},
		{"C2.3 -32602", respond(400, failure("$id", -32602, "_meta")), nil, "", "legacy", shakes},
		{"C2.4 -32601, but initialize", notFound, nil, "", "legacy", shakes},
		{"C2.4 -32601 twice", notFound, notFound, "", "modern", append(refused, "tools/list", "prompts/list", "resources/list")},
		{"C2.4 -32601, then a page", notFound, respond(404, "404 page not found"), "", "refused to initialize (HTTP 404)", refused},
		{"C2.4 -32601 without our id", respond(404, failure("null", -32601, "x")), notFound, "", "it refused to initialize", refused},
		{"C2.5 404", respond(404, "404 page not found"), nil, "", "legacy", shakes},
		{"C2.5 400", respond(400, "Bad Request: no session"), nil, "", "legacy", shakes},
		{"C2.5 400, other id", respond(400, failure(`"server-error"`, -32600, "no session")), nil, "", "legacy", shakes},
		{"C2.5 405", respond(405, ""), nil, "", "legacy", shakes},
		{"C2.5 406", respond(406, ""), nil, "", "legacy", shakes},
		{"C2.5 200 with an error", respond(200, failure("$id", -32601, "x")), nil, "", "legacy", shakes},
		{"C2.5 200 with another result", good(`{"tools":[]}`), nil, "", "legacy", shakes},
		{"C2.5 200 with a page", respond(200, "<html>", "Content-Type", "text/html"), nil, "", "legacy", shakes},
		{"C2.5 200 with no JSON", respond(200, `{"`), nil, "", "legacy", shakes},
		{"C2.5 200 with no JSON-RPC", respond(200, `{"id":$id,"result":{}}`), nil, "", "legacy", shakes},
		{"C2.5 200 for somebody else", respond(200, `{"jsonrpc":"2.0","id":"x","result":`+discovered+`}`), nil, "", "legacy", shakes},
		{"C2.5 202", respond(202, ""), nil, "", "legacy", shakes},
		{"C2.5 a stream of nothing", streamed(": nothing\n\n"), nil, "", "legacy", shakes},
		{"C2.6 405 twice", respond(405, ""), respond(405, ""), "", "does not speak this transport", refused},
		{"C2.7 401", respond(401, "", "WWW-Authenticate", "Bearer"), nil, "", "Authorization", alone},
		{"C2.7 401 with JSON-RPC", respond(401, failure("$id", -32601, "x")), nil, "", "Authorization", alone},
		{"C2.7 403", respond(403, ""), nil, "", "Authorization", alone},
		{"C2.7 408", respond(408, ""), nil, "", "HTTP 408", alone},
		{"C2.7 429", respond(429, "", "Retry-After", "7"), nil, "", "in 7 s", alone},
		{"C2.7 500", respond(500, "x"), nil, "", "HTTP 500", alone},
		{"C2.7 500 with JSON-RPC", respond(500, failure("$id", -32601, "x")), nil, "", "HTTP 500", alone},
		{"C2.7 502", respond(502, failure("$id", -32603, "down")), nil, "", "down", alone},
		{"C2.7 503", respond(503, ""), nil, "", "overloaded", alone},
		{"C2.7 504", respond(504, ""), nil, "", "HTTP 504", alone},
		{"C2.7 broken", cutOff, nil, "", "broke", alone},
		{"C2.7 broken within JSON", func(w http.ResponseWriter, r *http.Request, id string) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":`, id)
			flush(w)
			cutOff(w, r, id)
		}, nil, "", "broke", alone},
		{"C2.7 broken within", func(w http.ResponseWriter, r *http.Request, id string) {
			events(w)
			cutOff(w, r, id)
		}, nil, "", "broke", alone},
		{"pinned to legacy", nil, nil, conn.EraLegacy, "legacy", shakes[1:]},
		{"pinned to legacy, and it is modern", nil, notFound, conn.EraLegacy, "Method not found", shakes[1:2]},
		{"pinned to modern", good(discovered), nil, conn.EraModern, "modern", alone},
		{"pinned to modern, and it is legacy", respond(400, refusedRevision("$id", "2025-11-25")), nil, conn.EraModern, "legacy revisions of the protocol only", alone},
		{"pinned to modern, and it is something", respond(405, ""), nil, conn.EraModern, "HTTP 405", alone},
		{"pinned to modern, undiscovered", notFound, nil, conn.EraModern, "modern", []string{"server/discover", "tools/list", "prompts/list", "resources/list"}},
	})
	// C2.7: silence is no evidence; it ends with the opening.
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := newProbed(t, func(_ http.ResponseWriter, r *http.Request, _ string) { cancel(why); <-r.Context().Done() }, nil, nil)
	if _, err := adapter(t, p.URL, nil, conn.Options{}).Open(ctx, adaptertest.ModernCaller(), &adaptertest.Client{}); !errors.Is(err, why) {
		t.Errorf("Open: %v, want the context's cause", err)
	}
	if got := p.lines(); !slices.Equal(got, alone) {
		t.Errorf("the server received %q", got)
	}
}

// eraCase is what a server answers to an opening, and what comes of it.
type eraCase struct {
	name            string
	discover, begin reply
	era             conn.Era
	want            string // modern, legacy, or a part of the error
	requests        []string
}

func playEras(t *testing.T, from *bridge.Caller, cases []eraCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newProbed(t, c.discover, c.begin, lists)
			checkOpen(t, p, adapter(t, p.URL, nil, conn.Options{Era: c.era}), from, c.want, c.requests)
		})
	}
}

// checkOpen opens a connection and compares what came of it, and of which
// requests.
func checkOpen(t *testing.T, p *probed, u *Upstream, from *bridge.Caller, want string, requests []string) {
	t.Helper()
	before := len(p.lines())
	rest := &adaptertest.Client{}
	up, err := u.Open(t.Context(), from, rest)
	got := "legacy"
	switch {
	case err != nil:
		got = err.Error()
		if !strings.Contains(got, want) || !errors.Is(err, bridge.ErrUnavailable) || errors.Is(err, bridge.ErrLost) {
			t.Errorf("Open: %v, want ErrUnavailable with %q", err, want)
		}
		if other := errors.Is(err, remote.ErrOtherTransport); other != slices.Contains(requests, "initialize") && (other || strings.Contains(want, "transport")) {
			t.Errorf("Open: %v: says of the other transport %v", err, other)
		}
	case up.Server().Modern():
		got = "modern"
		if !up.Server().Mirrors {
			t.Error("the server is not said to mirror arguments")
		}
	}
	if err == nil && got != want {
		t.Errorf("Open found a %s server, want %q", got, want)
	}
	if lines := p.lines()[before:]; !slices.Equal(lines, requests) {
		t.Errorf("the server received %q, want %q", lines, requests)
	}
	if err == nil {
		_ = up.Close(context.Background())
	}
	if gone, said := rest.Gones(), rest.Said(); len(gone)+len(said)+rest.Questions() > 0 {
		t.Errorf("Gone(%v), said %q, %d questions", gone, said, rest.Questions())
	}
}

// What the answers to initialize of a client with a session lead to.
func TestUpstreamEraLegacyFirst(t *testing.T) {
	notFound := respond(404, failure("$id", -32601, "Method not found"))
	both := []string{"initialize", "server/discover"}
	one := both[:1]
	playEras(t, adaptertest.Caller(""), []eraCase{
		{"it works", nil, nil, "", "legacy", []string{"initialize", "notifications/initialized"}},
		{"404", good(discovered), notFound, "", "modern", both},
		{"-32022", good(discovered), respond(400, refusedRevision("$id", "2026-07-28")), "", "modern", both},
		{"-32020", good(discovered), respond(400, failure("$id", -32020, "no version")), "", "modern", both},
		{"-32020 without id", good(discovered), respond(400, failure("null", -32020, "no version")), "", "modern", both},
		{"an unknown revision", good(discovered), good(`{"protocolVersion":"2026-07-28","capabilities":{}}`), "", "modern", both},
		{"not JSON-RPC", good(discovered), respond(400, "what?"), "", "modern", both},
		{"undiscovered", notFound, notFound, "", "modern", append(both, "tools/list", "prompts/list", "resources/list")},
		{"neither", respond(400, failure("$id", -32600, "no session")), respond(400, failure("$id", -32602, "too old")), "", "too old", both},
		{"neither, at all", respond(405, ""), respond(405, ""), "", "refused to initialize (HTTP 405)", both},
		{"pinned to modern", good(discovered), nil, conn.EraModern, "modern", both[1:]},
		{"401", nil, respond(401, ""), "", "Authorization", one},
		{"429", nil, respond(429, ""), "", "HTTP 429", one},
		{"500", nil, respond(500, ""), "", "HTTP 500", one},
		{"broken", nil, cutOff, "", "broke", one},
	})
}

// what was found out holds for the openings to come, until it proves
// wrong.
func TestUpstreamEraRemembered(t *testing.T) {
	notFound := respond(404, failure("$id", -32601, "Method not found"))
	begin := good(fmt.Sprintf(agreed, "2025-11-25"))
	p := newProbed(t, notFound, nil, lists)
	p.script.begin = func(w http.ResponseWriter, r *http.Request, id string) { p.begin(w, r, id) }
	p.begin = begin
	u := adapter(t, p.URL, nil, conn.Options{})
	modern, client := adaptertest.ModernCaller(), adaptertest.Caller("")
	shakes := []string{"initialize", "notifications/initialized"}
	checkOpen(t, p, u, modern, "legacy", append([]string{"server/discover"}, shakes...))
	checkOpen(t, p, u, modern, "legacy", shakes)
	checkOpen(t, p, u, client, "legacy", shakes)
	p.discover, p.begin = good(discovered), notFound // it is another one now
	checkOpen(t, p, u, client, "modern", []string{"initialize", "server/discover"})
	checkOpen(t, p, u, client, "modern", []string{"server/discover"})
	checkOpen(t, p, u, modern, "modern", []string{"server/discover"})
	p.discover, p.begin = respond(500, ""), begin // out of order: no evidence
	checkOpen(t, p, u, client, "HTTP 500", []string{"server/discover"})
	p.discover = notFound // and back again
	checkOpen(t, p, u, client, "legacy", append([]string{"server/discover"}, shakes...))
	checkOpen(t, p, u, modern, "legacy", shakes)
	p.discover = good(discovered) // both
	checkOpen(t, p, u, client, "legacy", shakes)
}

// The newest revision that a legacy server is offered.
func TestUpstreamEraCap(t *testing.T) {
	for _, most := range []string{"", "2025-03-26"} {
		p := newProbed(t, respond(404, ""), nil, lists)
		u := adapter(t, p.URL, nil, conn.Options{Revision: most})
		checkOpen(t, p, u, adaptertest.ModernCaller(), "legacy", []string{"server/discover", "initialize", "notifications/initialized"})
		want := most
		if want == "" {
			want = "2025-11-25"
		}
		if body := p.wait(t, 1, "POST initialize")[0].body; !strings.Contains(body, `"protocolVersion":"`+want+`"`) {
			t.Errorf("with %q initialize is %s, want %s", most, body, want)
		}
	}
}
