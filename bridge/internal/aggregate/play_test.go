package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/aggregate"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// actor is one server of an aggregate, which the test plays. All sessions and stateless clients share its Upstream.
type actor struct {
	*bridgetest.Upstream
	*aggregate.Server
	results map[string]string // by method, or by method and the value of name, uri or cursor; errors begin with {"code"

	mu    sync.Mutex    // guards the rest
	fails error         // why calls fail
	to    bridge.Client // of the last session
	told  func()        // of the last Await
	fresh bool          // no greeting is known
}

// upstream is the actor's connection.
type upstream struct{ *actor }

func (u upstream) Server() *bridge.Greeting { return u.Upstream.Server() }
func (u upstream) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if err := u.Failing(); err != nil {
		return nil, err
	}
	return u.Upstream.Call(ctx, r)
}
func (u upstream) Notify(ctx context.Context, r *bridge.Request) error {
	return u.Upstream.Notify(ctx, r)
}
func (u upstream) Close(ctx context.Context) error { return u.Upstream.Close(ctx) }

func (a *actor) Stores() bool                           { return true }
func (a *actor) Serves(string) bool                     { return true }
func (a *actor) Shows(_ list.Kind, name, _ string) bool { return name != "secret" }
func (a *actor) Heard(*jsonrpc.Message)                 {}
func (a *actor) Session(_ *bridge.Caller, to bridge.Client) (bridge.Upstream, error) {
	a.set(func() { a.to = to })
	return upstream{a}, nil
}

func (a *actor) Greeting(string) *bridge.Greeting {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fresh {
		return nil
	}
	return a.Upstream.Server()
}

func (a *actor) Await(_ *bridge.Caller, told func()) func() {
	a.set(func() { a.told = told })
	return func() {}
}

// newActor returns a server with these capabilities. Its prefix is its name.
func newActor(t *testing.T, name, revision, capabilities string, results map[string]string) *actor {
	a := &actor{Upstream: bridgetest.NewUpstream(revision, capabilities), results: results}
	a.Server = &aggregate.Server{Name: name, Prefix: name + "__", Log: slog.New(slog.DiscardHandler), Stateless: upstream{a}, Host: a}
	a.Serve = func(r *bridge.Request) *jsonrpc.Message { return a.serve(t, r) }
	return a
}

func (a *actor) serve(t *testing.T, r *bridge.Request) *jsonrpc.Message {
	if r.Method == "initialize" || r.Method == "server/discover" {
		a.set(func() { a.fresh = false })
		return bridgetest.Result(t, string(a.Upstream.Server().Result))
	}
	of := r.Name() + r.URI() + gjson.GetBytes(r.Params, "cursor").Str
	for _, key := range []string{r.Method + " " + of, r.Method} {
		result, ok := a.results[key]
		switch {
		case !ok || key != r.Method+" "+of && of != "" && strings.HasSuffix(r.Method, "/list"):
		case strings.HasPrefix(result, `{"code"`):
			return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"error":`+result+`}`)
		default:
			return bridgetest.Result(t, result)
		}
	}
	return nil
}

func (a *actor) Failing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fails
}

func (a *actor) Since() (at time.Time) {
	if a.Failing() != nil {
		at = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	}
	return at
}

func (a *actor) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// lines returns what the server got since last time, as one text.
func (a *actor) lines() string { return strings.Join(a.Got(), "\n") }

// stage is a session, or stateless clients, before an aggregate.
type stage struct {
	t      *testing.T
	all    *aggregate.Aggregate
	up     bridge.Upstream
	from   *bridge.Caller
	client *bridgetest.Client
}

// play starts a session of an aggregate of these servers; without a session it serves stateless clients.
func play(t *testing.T, session bool, actors ...*actor) *stage {
	s := &stage{t: t, client: &bridgetest.Client{}, from: bridgetest.Caller(era.Rev20251125, "", `{}`)}
	s.all = aggregate.New(aggregate.Options{
		Info: []byte(`{"name":"bridge"}`), Params: []byte(bridgetest.InitializeParams), Force: context.Background(),
		Start: func() time.Duration { return 20 * time.Second },
		Shows: func(list.Kind, string) bool { return true },
	})
	s.serve(actors...)
	if s.up = s.all.Session(s.from, s.client); !session {
		_ = s.up.Close(t.Context())
		s.from = bridgetest.Caller(era.LatestModern, "", `{}`)
		s.up = s.all.Stateless()
	}
	if s.up.Server() != nil {
		t.Error("an aggregate has a greeting of its own for each client")
	}
	return s
}

// serve replaces the servers.
func (s *stage) serve(actors ...*actor) func(context.Context, *aggregate.Server) {
	var all []*aggregate.Server
	for _, a := range actors {
		all = append(all, a.Server)
	}
	return s.all.Set(all)
}

func (s *stage) call(method, params string) string {
	s.t.Helper()
	m, err := s.up.Call(s.t.Context(), bridgetest.Request(s.t, s.from, s.client, method, params))
	if err != nil {
		return "error: " + err.Error()
	}
	return bridgetest.Text(m)
}

func (s *stage) ask(method, params string) <-chan string {
	done := make(chan string, 1)
	go func() { done <- s.call(method, params) }()
	return done
}

// heard returns what the client got since last time.
func (s *stage) heard() string {
	synctest.Wait()
	return strings.Join(s.client.Got(), "\n")
}

func (s *stage) end() {
	s.t.Helper()
	if err := s.up.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	if got := s.call("tools/list", `{}`); !strings.HasPrefix(got, "error: ") {
		s.t.Errorf("after the end: %s", got)
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

const caps = `{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}`

// A name that clients could not use is made again, and a hidden name is unknown.
func TestNames(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"odd name"}]}`, "tools/call": `{"by":"one"}`})
	s := play(t, true, one)
	odd := gjson.Get(s.call("tools/list", `{}`), "result.tools.0.name").Str
	bridgetest.Contains(t, odd, "one__odd_name_")
	one.Got()
	bridgetest.Contains(t, s.call("tools/call", `{"name":"`+odd+`"}`), `"by":"one"`)
	same(t, "the server got", one.lines(), `tools/call {"name":"odd name"}`)
	bridgetest.Contains(t, s.call("tools/call", `{"name":"one__secret"}`), `-32602`)
	s.end()
}

// Without prefixes the first server has a name that both have, and the other's is made with the server's name.
func TestConflictingNames(t *testing.T) {
	tools := map[string]string{"tools/list": `{"tools":[{"name":"x"},{"name":"b_y"}]}`, "tools/call": `{}`}
	one, two, three := newActor(t, "one", era.Rev20251125, caps, tools), newActor(t, "two", era.Rev20251125, caps, tools), newActor(t, "three", era.Rev20251125, caps, tools)
	one.Prefix, two.Prefix, three.Prefix = "", "", "b_"
	s := play(t, true, one, two, three)
	bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"x"},{"name":"one__b_y"},{"name":"two__x"},{"name":"two__b_y"},{"name":"b_x"},{"name":"b_b_y"}]`)
	for name, want := range map[string]string{"x": `1 {"name":"x"}`, "one__b_y": `1 {"name":"b_y"}`, "two__x": `2 {"name":"x"}`, "b_b_y": `3 {"name":"b_y"}`} {
		for _, a := range []*actor{one, two, three} {
			a.Got()
		}
		s.call("tools/call", `{"name":"`+name+`"}`)
		got := ""
		for i, a := range []*actor{one, two, three} {
			for _, line := range a.Got() {
				if rest, ok := strings.CutPrefix(line, "tools/call "); ok {
					got = string(rune('1'+i)) + " " + rest
				}
			}
		}
		same(t, name, got, want)
	}
	s.end()
}

// Errors of one server leave its part of a list out. A cursor of one list is none of another.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := `{"code":-5,"message":"broken"}`
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"a"}],"nextCursor":"c"}`, "prompts/list": broken})
		two := newActor(t, "two", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "prompts/list": broken})
		s := play(t, true, one, two)
		next := cursorIn(t, s.call("tools/list", `{}`))
		for _, cursor := range []string{"bm9uZQ", next} {
			bridgetest.Contains(t, s.call("resources/list", `{"cursor":"`+cursor+`"}`), `"code":-32602,"message":"params.cursor is not a nextCursor of resources/list"`)
		}
		bridgetest.Contains(t, s.call("prompts/list", `{}`), `"message":"broken"`)
		one.set(func() { one.fails = errors.New("down") })
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"two__x"}]`)
		two.set(func() { two.fails = errors.New("down too") })
		bridgetest.Contains(t, s.call("tools/list", `{}`), "error: down")
		s.heard()
		two.set(func() { two.fails = nil })
		two.told()
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed", "notifications/resources/list_changed")
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"two__x"}]`)
		s.end()
	})
}

// Resources are found by what is listed, by templates, and by their scheme.
func TestResources(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
		"resources/list": `{"resources":[{"uri":"a:1"},{"uri":"both:1"}]}`, "resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"t:{x}"}]}`,
		"resources/read": `{"by":"one"}`, "resources/read a:hidden": `{"code":-32002,"message":"not here"}`,
		"resources/subscribe": `{}`, "resources/unsubscribe": `{}`, "completion/complete": `{"by":"one"}`,
	})
	two := newActor(t, "two", era.Rev20251125, caps, map[string]string{
		"resources/list": `{"resources":[{"uri":"both:1"},{"uri":"a:2"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`,
		"resources/read": `{"by":"two"}`, "completion/complete": `{"by":"two"}`,
	})
	s := play(t, true, one, two)
	for _, tc := range []struct{ method, params, want string }{
		{"resources/read", `{"uri":"a:2"}`, `"by":"two"`},
		{"resources/read", `{"uri":"both:1"}`, `"by":"one"`},
		{"resources/read", `{"uri":"t:5"}`, `"by":"one"`},
		{"resources/read", `{"uri":"a:hidden"}`, `"by":"two"`},
		{"resources/read", `{"uri":"z:1"}`, `"code":-32002`},
		{"resources/list", `{}`, `"resources":[{"uri":"a:1"},{"uri":"both:1"},{"uri":"a:2"}]`},
		{"resources/subscribe", `{"uri":"z:1"}`, `"code":-32002`},
		{"resources/unsubscribe", `{"uri":"z:1"}`, `"result":{}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"two__p"},"argument":{}}`, `"by":"two"`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"t:{x}"},"argument":{}}`, `"by":"one"`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"z:{x}"},"argument":{}}`, `"code":-32002`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"nobody"},"argument":{}}`, `"code":-32602`},
		{"completion/complete", `{"ref":5}`, `"code":-32602`},
	} {
		bridgetest.Contains(t, s.call(tc.method, tc.params), tc.want)
	}
	one.set(func() { one.fails = bridge.ErrUnavailable })
	bridgetest.Contains(t, s.call("resources/read", `{"uri":"a:unlisted"}`), `"by":"two"`)
	bridgetest.Contains(t, s.call("resources/read", `{"uri":"t:6"}`), `error: unavailable`)
	s.end()
}

// The server that lists a resource gets its URI in any spelling that a client's URL type makes of it, as the client wrote
// it; so does the one whose template expands to it.
func TestSpellings(t *testing.T) {
	for _, session := range []bool{true, false} {
		broad := newActor(t, "broad", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"http://other.example.com/"}]}`, "resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"file:///{+path}"}]}`, "resources/read": `{"by":"broad"}`,
		})
		exact := newActor(t, "exact", era.Rev20251125, caps, map[string]string{
			"resources/list":           `{"resources":[{"uri":"file:///Straße/a b.txt"},{"uri":"file:///enc%2foded/%7Eme"},{"uri":"HTTP://Example.com:80"},{"uri":"note:x y"}]}`,
			"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"Note://café/{name}"},{"uriTemplate":"doc://my docs/{name}{?q*}"},{"uriTemplate":"http://Docs.example.com{/path*}"},{"uriTemplate":"http://search.example.com{?q}"},{"uriTemplate":"http://find.example.com?q={q}"}]}`,
			"resources/read":           `{"by":"exact"}`,
		})
		s := play(t, session, broad, exact)
		s.call("resources/list", `{}`)
		s.call("resources/templates/list", `{}`)
		for uri, by := range map[string]string{
			"file:///Straße/a b.txt": "exact", "file:///Stra%C3%9Fe/a%20b.txt": "exact", "FILE:///Stra%c3%9fe/./a%20b.txt": "exact",
			"file:///enc%2Foded/~me": "exact", "file:///enc/oded/~me": "broad", "http://example.com/": "exact", "note:x%20y": "exact",
			"note://caf%C3%A9/1": "exact", "note://café/ü": "exact", "doc://my%20docs/a%20b?q=1": "exact", "http://Docs.example.com/a/b": "exact",
			"http://search.example.com?q=1": "exact", "http://search.example.com/?q=1": "exact", "http://find.example.com?q=1": "exact",
			"file:///other": "broad",
		} {
			bridgetest.Contains(t, uri+s.call("resources/read", `{"uri":`+rawjson.Quote(uri)+`}`), `"by":"`+by+`"`)
		}
		bridgetest.Contains(t, exact.lines(), `Stra%C3%9Fe/a%20b.txt`)
		bridgetest.Contains(t, s.call("resources/read", `{"uri":"NOTE:unlisted"}`), `"by":"exact"`)
		s.end()
	}
}

// Two servers with the same user interface: a warning says once that the tools of one show that of the other.
func TestSameInterface(t *testing.T) {
	var log bytes.Buffer
	uis := map[string]string{"resources/list": `{"resources":[{"uri":"ui://widget/main"},{"uri":"both:1"}]}`}
	one, two := newActor(t, "one", era.Rev20251125, caps, uis), newActor(t, "two", era.Rev20251125, caps, uis)
	one.Log = slog.New(slog.NewTextHandler(&log, nil))
	two.Log = one.Log
	s := play(t, true, one, two)
	for range 2 {
		bridgetest.Contains(t, s.call("resources/list", `{}`), `"resources":[{"uri":"ui://widget/main"},{"uri":"both:1"}]`)
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "uri=ui://widget/main earlier=one") {
		t.Errorf("the log: %s", got)
	}
	s.end()
}

// A new connection to a lost server gets the session's log level and its subscriptions again.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"a:1"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
			"resources/unsubscribe": `{}`, "logging/setLevel": `{}`, "tools/call": `{}`,
		})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/call": `{}`})
		s := play(t, true, one, two)
		bridgetest.Contains(t, s.call("resources/subscribe", `{"uri":"a:1"}`), `"result":{}`)
		bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"loud"}`), `-32602`)
		bridgetest.Contains(t, s.call("logging/setLevel", `{"level":"info"}`), `"result":{}`)
		bridgetest.Contains(t, one.lines(), `logging/setLevel {"level":"info"}`)
		same(t, "the unused server got", two.lines(), "")
		s.call("tools/call", `{"name":"two__x"}`)
		bridgetest.Lacks(t, two.lines(), "setLevel") // it has no logging

		one.to.Gone(bridge.ErrLost)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed", "notifications/prompts/list_changed")
		if one.Closed() != 1 {
			t.Errorf("the connection was closed %d times", one.Closed())
		}
		s.call("tools/call", `{"name":"one__x"}`)
		got := one.lines()
		bridgetest.Contains(t, got, `logging/setLevel {"level":"info"}`, `resources/subscribe {"uri":"a:1"}`)
		if !strings.HasSuffix(got, `tools/call {"name":"x"}`) {
			t.Errorf("the call came first: %s", got)
		}
		bridgetest.Contains(t, s.call("resources/unsubscribe", `{"uri":"a:1"}`), `"result":{}`)
		bridgetest.Contains(t, one.lines(), `resources/unsubscribe {"uri":"a:1"}`)
		s.end()
	})
}

// Messages of servers reach the call that they may be about, and progress finds the question's server.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, nil)
		s := play(t, true, one)
		s.client.Reply = func(*jsonrpc.Message) *jsonrpc.Message { return bridgetest.Result(t, `{"roots":[]}`) }
		done := s.ask("tools/call", `{"name":"one__x","_meta":{"progressToken":7}}`)
		c := one.Next()
		got := make(chan string, 2)
		take := func(m *jsonrpc.Message) { got <- string(m.Result) }
		c.Back.Notify(bridgetest.Notification(t, "notifications/progress", `{"progressToken":7,"progress":1}`))
		c.Back.Ask(bridgetest.Question(t, "roots/list", `{"_meta":{"progressToken":"q"}}`), take)
		one.to.Ask(bridgetest.Question(t, "roots/list", `{"_meta":{"progressToken":5}}`), take)
		one.to.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"about it"}`))
		c.Answer(t, `{}`)
		bridgetest.Contains(t, <-done, `"result":{}`)
		heard := s.heard()
		bridgetest.Contains(t, heard, `"progress":1`, `{"_meta":{"progressToken":"one \"q\""}}`, `{"_meta":{"progressToken":"one 5"}}`, "about it")
		same(t, "replies", <-got+<-got, `{"roots":[]}{"roots":[]}`)
		for token, want := range map[string]string{`"one \"q\""`: `notifications/progress {"progressToken":"q","progress":1}`, `"two 5"`: "", `5`: ""} {
			one.Got()
			r := bridgetest.Request(t, s.from, nil, "notifications/progress", `{"progressToken":`+token+`,"progress":1}`)
			if err := s.up.Notify(t.Context(), r); err != nil {
				t.Error(err)
			}
			same(t, "the server got", one.lines(), want)
		}
		if err := s.up.Notify(t.Context(), bridgetest.Request(t, s.from, nil, "notifications/roots/list_changed", `{}`)); err != nil {
			t.Error(err)
		}
		bridgetest.Contains(t, one.lines(), "roots/list_changed")
		s.end()
	})
}

// The error about an unknown name has the names with prefixes, or the servers that do not work. Lists say which servers
// they lack, since when, and why.
func TestUnknown(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"},{"name":"secret"}]}`})
	two := newActor(t, "two", era.Rev20251125, caps, nil)
	two.set(func() {
		two.fails = &bridge.Error{Kind: bridge.ErrUnavailable, Public: "its process has ended", Err: errors.New("/bin/private")}
	})
	s := play(t, true, one, two)
	bridgetest.Contains(t, s.call("tools/list", `{}`), `"_meta":{"dev.mcp-bridge/missing":[{"server":"two","since":"2026-01-02T03:04:05Z","why":"its process has ended"}]}`)
	for name, want := range map[string]string{
		"x":      "Unknown tool: x: did you mean one__x? At the address of several servers, names begin with their server's prefix",
		"y":      "Unknown tool: y (these servers do not work now: two)",
		"secret": "Unknown tool: secret (these servers do not work now: two)",
	} {
		same(t, name, gjson.Get(s.call("tools/call", `{"name":"`+name+`"}`), "error.message").Str, want)
	}
	s.end()
}

// The greeting unites what the servers can do. Servers that are slow or fail are left out, unless all are.
func TestInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{"listChanged":false},"tasks":{},"experimental":{"a":{}}}`, map[string]string{"tools/list": `{"tools":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"prompts":{},"experimental":{"b":{}}}`, nil)
		two.set(func() { two.fresh = true })
		s := play(t, true, one, two)
		same(t, "the greeting", s.call("initialize", bridgetest.InitializeParams), `{"jsonrpc":"2.0","result":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{"tools":{"listChanged":true},"experimental":{"a":{},"b":{}},"prompts":{"listChanged":true}},"serverInfo":{"name":"bridge"}}}`)
		same(t, "the known server got", one.lines(), "")
		s.end()

		// Nothing is known of a slow server: it may have everything, and the client hears when it comes.
		two.set(func() { two.fresh = true })
		serve := two.Serve
		two.Serve = nil
		s = play(t, true, one, two)
		began := time.Now()
		bridgetest.Contains(t, s.call("initialize", bridgetest.InitializeParams), `"logging":{}`)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("the client waited for %v", waited)
		}
		two.Next().Answer(t, string(two.Upstream.Server().Result))
		synctest.Wait()
		s.end()

		// It fails after that: lists do without it.
		two.set(func() { two.fresh = true })
		s = play(t, true, one, two)
		s.call("initialize", bridgetest.InitializeParams)
		two.set(func() { two.fails = errors.New("it has died") })
		two.Next().Fail(two.Failing())
		synctest.Wait()
		two.Serve = serve
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"dev.mcp-bridge/missing":[{"server":"two"`)
		s.end()

		// All fail: so does initialize.
		for _, a := range []*actor{one, two} {
			a.set(func() { a.fresh, a.fails = true, errors.New(a.Name+" is down") })
		}
		s = play(t, true, one, two)
		bridgetest.Contains(t, s.call("initialize", bridgetest.InitializeParams), "is down")
		s.end()
	})
}

// The first list has a server that starts within the time that Start says. A server whose connection is open has 10 s for
// its answer.
func TestListWait(t *testing.T) {
	for _, test := range []struct {
		opens, answers, took time.Duration // the second from the first, the last from the beginning of the list
		listed               bool
	}{
		{15 * time.Second, 0, 15 * time.Second, true},
		{25 * time.Second, 0, 20 * time.Second, false},
		{3 * time.Second, 9 * time.Second, 12 * time.Second, true},
		{3 * time.Second, time.Hour, 13 * time.Second, false},
		{15 * time.Second, time.Hour, 20 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
			two := newActor(t, "two", era.Rev20251125, caps, nil)
			s := play(t, true, one, two)
			began, done := time.Now(), s.ask("tools/list", `{}`)
			c := two.Next()
			time.AfterFunc(test.opens, func() {
				c.Opened()
				time.AfterFunc(test.answers, func() { c.Answer(t, `{"tools":[{"name":"y"}]}`) })
			})
			got := <-done
			if took := time.Since(began); took != test.took || strings.Contains(got, "two__y") != test.listed || !strings.Contains(got, "one__x") {
				t.Errorf("%v: after %v the list is %s", test, took, got)
			}
			time.Sleep(2 * time.Hour)
			s.end()
		})
	}
}

// A list that takes too long leaves its server out. Its page comes with the next request, after a notification.
func TestSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
		two := newActor(t, "two", era.Rev20251125, caps, nil)
		s := play(t, true, one, two)
		list := func(after time.Duration, want string) {
			t.Helper()
			began := time.Now()
			bridgetest.Contains(t, s.call("tools/list", `{}`), want)
			if waited := time.Since(began); waited != after {
				t.Errorf("the client waited for %v, want %v", waited, after)
			}
		}
		done := s.ask("tools/list", `{}`)
		c := two.Next()
		c.Opened()
		bridgetest.Contains(t, <-done, `"tools":[{"name":"one__x"}]`)
		list(250*time.Millisecond, `"tools":[{"name":"one__x"}]`) // it is not asked twice, nor waited for again
		c.Answer(t, `{"tools":[{"name":"late"}]}`)
		same(t, "the client got", s.heard(), "notifications/tools/list_changed ")
		list(0, `{"name":"two__late"}`)
		// It is slow: its last page stands in for the next one.
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		bridgetest.Contains(t, <-done, `{"name":"two__late"}`)
		c.Answer(t, `{"tools":[{"name":"newer"}]}`)
		same(t, "the client got", s.heard(), "notifications/tools/list_changed ")
		list(0, `{"name":"two__newer"}`)
		// A change makes the stored page wrong.
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Answer(t, `{"tools":[]}`)
		bridgetest.Lacks(t, <-done, "newer")
		s.end()
	})
}

// Clients see other servers at once: lists change, old prefixes still work, and subscriptions move.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]string{
			"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{"by":"it"}`, "resources/list": `{"resources":[{"uri":"a:1"}]}`,
			"resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
		}
		one, two := newActor(t, "one", era.Rev20251125, caps, results), newActor(t, "two", era.Rev20251125, `{"tools":{}}`, results)
		s := play(t, true, one, two)
		s.call("resources/subscribe", `{"uri":"a:1"}`)
		changed := newActor(t, "one", era.Rev20251125, caps, results)
		changed.Prefix = "new__"
		leave := s.serve(changed)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed", "notifications/resources/list_changed")
		bridgetest.Contains(t, changed.lines(), `resources/subscribe {"uri":"a:1"}`)
		s.serve(changed) // it stays, and its subscription with it
		bridgetest.Lacks(t, changed.lines(), "resources/subscribe")
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"new__x"}]`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"two__x"}`), "-32602")
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), `"by":"it"`)
		time.Sleep(6 * time.Minute)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), "-32602")
		if one.Closed() != 0 {
			t.Error("the removed server's connection was closed before its time")
		}
		leave(t.Context(), one.Server)
		if one.Closed() != 1 || changed.Closed() != 0 {
			t.Errorf("closed %d and %d times", one.Closed(), changed.Closed())
		}
		s.end()
	})
}

// A server with another prefix keeps its connection. The client hears of it, and the old names still work.
func TestSetPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{"by":"it"}`}
		one, two := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, results), newActor(t, "two", era.Rev20251125, `{"tools":{}}`, results)
		s := play(t, true, one, two)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"one__x"`)
		one.Prefix = "new__"
		leave := s.serve(one, two)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"new__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"new__x"`)
		three := newActor(t, "three", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"y"}]}`, "tools/call": `{"by":"three"}`})
		three.Prefix = "one__" // which is not the first one's any more
		s.serve(one, two, three)
		for _, name := range []string{"one__y", "one__x"} {
			bridgetest.Contains(t, s.call("tools/call", `{"name":"`+name+`"}`), `"by":"three"`)
		}
		s.serve(one, two)
		time.Sleep(6 * time.Minute)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), "-32602")
		for n := range 9 { // only so many old prefixes are kept
			one.Prefix = fmt.Sprint(n, "__")
			s.serve(one, two)
		}
		bridgetest.Contains(t, s.call("tools/call", `{"name":"0__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"new__x"}`), "-32602")
		leave(t.Context(), one.Server)
		if one.Closed() != 0 || two.Closed() != 0 {
			t.Errorf("closed %d and %d times", one.Closed(), two.Closed())
		}
		s.end()
	})
}

// Stateless clients subscribe at all servers at once, and hear when one comes or goes.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		modern := `{"tools":{"listChanged":true},"resources":{"subscribe":true}}`
		lists := map[string]string{"resources/list": `{"resources":[{"uri":"a:1"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`}
		one := newActor(t, "one", era.LatestModern, modern, lists)
		two := newActor(t, "two", era.LatestModern, `{"prompts":{}}`, nil)
		s := play(t, false, one, two)
		bridgetest.Contains(t, s.call(era.Listen, `{"notifications":5}`), "-32602")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.up.Call(ctx, bridgetest.Request(t, s.from, s.client, era.Listen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1","z:1"],"taskIds":["one:T","none"]}}`))
			done <- err
		}()
		c := one.Next()
		bridgetest.Contains(t, string(c.Whole()), `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["T"]}`)
		same(t, "before the acknowledgement", s.heard(), "")
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["T"]}}`))
		same(t, "the acknowledgement", s.heard(), era.Acknowledged+` {"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:1"],"taskIds":["one:T"]}}`)
		c.Back.Notify(bridgetest.Notification(t, "notifications/tasks", `{"taskId":"T","status":"working"}`))
		c.Back.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"a:1"}`))
		same(t, "the client got", s.heard(), "notifications/tasks {\"taskId\":\"one:T\",\"status\":\"working\"}\nnotifications/resources/updated {\"uri\":\"a:1\"}")
		// The server is lost and comes back: what it may have changed is reported.
		c.Fail(bridge.ErrLost)
		c = one.Next()
		c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":{"toolsListChanged":true}}`))
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		// Another server comes, which is listened to as well, and one goes.
		three := newActor(t, "three", era.LatestModern, `{"tools":{"listChanged":true}}`, nil)
		s.serve(one, three)
		three.Next().Refuse(t, `{"code":-5,"message":"no"}`)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		s.serve(three)
		<-c.Ctx.Done()
		cancel(bridge.ErrCancelled)
		if err := <-done; !errors.Is(err, bridge.ErrCancelled) {
			t.Error(err)
		}
		s.end()
	})
}
