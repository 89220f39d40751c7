package stateless_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// able are the capabilities of a client that can be asked something.
const able = `{"roots":{}}`

// connection is a connection to a server that the test plays.
type connection struct {
	*bridgetest.Upstream
	s    *stage
	n    int
	from *bridge.Caller
	rest bridge.Client
}

func (c *connection) Caller() *bridge.Caller                    { return c.from }
func (c *connection) Checked() bridge.Upstream                  { return c.Upstream }
func (c *connection) Go(func(context.Context)) bool             { return false }
func (c *connection) Keep(context.Context) (func(), error)      { return func() {}, nil }
func (c *connection) Ping(context.Context, time.Duration) error { return c.s.mute }
func (c *connection) Known(ctx context.Context) (*bridge.Greeting, bool, error) {
	c.s.greetings++
	if c.s.full > 0 && c.n > c.s.full {
		return nil, false, bridge.ErrOverloaded
	}
	if c.s.opens != nil {
		if err := c.s.opens(ctx, c); err != nil {
			return nil, false, err
		}
	}
	return c.Server(), c.s.attributes, nil
}
func (c *connection) Holds(r *bridge.Request, _ *bridge.Greeting, err error) bool {
	return r.Method == c.s.held || err != nil && r.Method == c.s.stale
}

// stage is a pool of connections that the test plays.
type stage struct {
	t    *testing.T
	pool *stateless.Pool

	revision, capabilities string // of the server
	// The rest is set before the calls that it is for.
	all        []*connection
	serve      func(r *bridge.Request) *jsonrpc.Message       // nil leaves calls to the test
	attributes bool                                           // the wire attributes questions
	opens      func(ctx context.Context, c *connection) error // before a greeting is known
	mute       error                                          // what comes of pings
	held       string                                         // the method whose answers are cached
	stale      string                                         // the method whose old answers serve without a connection
	full       int                                            // how many connections can be opened; 0 means any number
	greetings  int
	heard      []string // changes that may have been missed, and notifications about calls
}

// queue is a Queue with these limits.
type queue struct {
	wait   time.Duration
	length int
}

func (q queue) Wait() time.Duration { return q.wait }
func (q queue) Length() int         { return q.length }
func (q queue) Refusal(format string, args ...any) error {
	return fmt.Errorf("refused: "+format, args...)
}
func (q queue) TimedOut(format string, args ...any) error {
	return fmt.Errorf("lapsed: "+format, args...)
}

// play starts a pool for a server of that revision with these capabilities.
func play(t *testing.T, revision, capabilities string, o stateless.Options) *stage {
	s := &stage{t: t, revision: revision, capabilities: capabilities}
	s.pool = newPool(t, s, o)
	return s
}

// newPool returns a pool of connections to s.
func newPool(t *testing.T, s stateless.Server, o stateless.Options) *stateless.Pool {
	key, err := seal.New("a secret that the instances share")
	if err != nil {
		t.Fatal(err)
	}
	o.Legacy = lower.Options{
		Name: "fake", Log: slog.New(slog.DiscardHandler), Seals: key, Rewrites: &list.Rewrites{}, Instance: o.Legacy.Instance,
		MaxTask: new(atomic.Int64),
	}
	if o.Queue == nil {
		o.Queue = queue{time.Minute, 10}
	}
	if o.Budget == nil {
		o.Budget = budget(10)
	}
	if o.Shares == nil {
		o.Shares = limits.NewShares(100, 0)
	}
	o.Server, o.Force = s, context.Background()
	return stateless.New(o)
}

func (s *stage) Misheaded(r *bridge.Request) *jsonrpc.Message {
	if r.Name() == "contradiction" {
		return jsonrpc.InvalidParams("contradiction")
	}
	return nil
}

func (s *stage) Heard(m *jsonrpc.Message) { s.heard = append(s.heard, m.Method) }

func (s *stage) Line(from *bridge.Caller, rest bridge.Client) stateless.Line {
	c := &connection{Upstream: bridgetest.NewUpstream(s.revision, s.capabilities), s: s, n: len(s.all) + 1, from: from, rest: rest}
	c.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if s.serve == nil {
			return nil
		}
		return s.serve(r)
	}
	s.all = append(s.all, c)
	return c
}

// visit is a request of a client.
type visit struct {
	bridgetest.Client
	cancel context.CancelCauseFunc
	done   chan struct{}
	text   string
}

// ask makes a request in a goroutine.
func (s *stage) ask(principal, caps, method, params string) *visit {
	s.t.Helper()
	v := &visit{done: make(chan struct{})}
	r := bridgetest.Request(s.t, bridgetest.Caller(era.LatestModern, principal, caps), &v.Client, method, params)
	ctx, cancel := context.WithCancelCause(context.Background())
	v.cancel = cancel
	go func() {
		defer close(v.done)
		m, err := s.pool.Call(ctx, r)
		if v.text = bridgetest.Text(m); err != nil {
			v.text = "error: " + err.Error()
		}
	}()
	return v
}

func (v *visit) answer() string {
	<-v.done
	return v.text
}

func (s *stage) call(principal, method, params string) string {
	s.t.Helper()
	return s.ask(principal, `{}`, method, params).answer()
}

func (s *stage) end() {
	s.t.Helper()
	if err := s.pool.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	synctest.Wait()
	for _, c := range s.all {
		if c.Closed() != 1 {
			s.t.Errorf("connection %d was closed %d times", c.n, c.Closed())
		}
	}
	if st := s.pool.Status(); st != (stateless.Status{}) {
		s.t.Errorf("left: %+v", st)
	}
	if got := s.call("", "tools/list", `{}`); got != "error: the bridge is stopping" {
		s.t.Errorf("after the end: %s", got)
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

var statePattern = regexp.MustCompile(`"requestState":"[^"]*"`)

// all0 waits for the first connection.
func (s *stage) all0() *connection {
	synctest.Wait()
	if len(s.all) == 0 {
		s.t.Fatal("no connection was opened")
	}
	return s.all[0]
}

// places is a cluster in which this instance owns nothing.
type places struct {
	bridge.Places
	keys []string
	gone bool
}

type elsewhere string

func (e elsewhere) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return jsonrpc.NewResult([]byte("1"), []byte(`{"at":"`+string(e)+`"}`)), nil
}

func (p *places) Home(_, key string, _ bridge.Away) bridge.Away {
	p.keys = append(p.keys, key)
	return elsewhere("the owner")
}

func (p *places) Instance(_ context.Context, _, id string) (bridge.Away, error) {
	if p.gone {
		return nil, nil
	}
	return elsewhere(id), nil
}
