package aggregate_test

import (
	"context"
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
