package cache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/lane"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// fake is a server. It answers the nth request with answer, or with a list of the tool tn.
type fake struct {
	modern bool
	after  time.Duration // how long each answer takes
	answer func(c *conn, r *bridge.Request, n int) (string, error)

	mu    sync.Mutex // guards the rest
	asked int
	conns int
}

// conn is a connection to the fake, with the cache before it.
type conn struct {
	bridge.Upstream // nil
	f               *fake
	n               int // from 1
	from            *bridge.Caller
	state           lane.State
	source          *Source
	up              bridge.Upstream
	log             []string // what the server received
}

// start runs f in a bubble, with a cache before the server.
func (f *fake) start(t *testing.T, o Options, s Server, test func(t *testing.T, c *Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.Name, s.Log = "fake", slog.New(slog.DiscardHandler)
		c := New(o, s)
		test(t, c)
		c.Close()
		if err := c.check(); err != nil {
			t.Error(err)
		}
	})
}

// open opens a connection on behalf of a principal.
func (f *fake) open(c *Cache, principal string) *conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns++
	from := &bridge.Caller{Principal: principal, Revision: era.LatestLegacy}
	if f.modern {
		from.Revision = era.LatestModern
	}
	u := &conn{f: f, n: f.conns, from: from, state: lane.Open, source: c.Source(from)}
	u.up = u.source.Wrap(u, u)
	return u
}

// as returns the same connection for calls of another principal.
func (c *conn) as(principal string) *conn {
	return &conn{f: c.f, n: c.n, from: &bridge.Caller{Principal: principal, Revision: c.from.Revision}, source: c.source, up: c.up}
}

func (c *conn) State() lane.State { return c.state }

func (c *conn) Server() *bridge.Greeting {
	return &bridge.Greeting{Revision: c.from.Revision, Capabilities: []byte(`{"tools":{"listChanged":true}}`)}
}

// Call is the server's side.
func (c *conn) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	c.f.mu.Lock()
	c.f.asked++
	n := c.f.asked
	c.log = append(c.log, bridgetest.Text(r.Message))
	c.f.mu.Unlock()
	result, err := tools(fmt.Sprint("t", n)), error(nil)
	if c.f.answer != nil {
		result, err = c.f.answer(c, r, n)
	}
	after := c.f.after
	if result == never {
		after = time.Hour
	}
	if after > 0 {
		select {
		case <-time.After(after):
		case <-ctx.Done():
			c.f.mu.Lock()
			c.log = append(c.log, "cancelled")
			c.f.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(result, `"error"`) {
		result = `"result":` + result
	}
	return jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,` + result + `}`))
}

// never is an answer that does not come.
const never = "never"

// tools is a list of these tools.
func tools(names ...string) string {
	return `{"tools":[{"name":"` + strings.Join(names, `"},{"name":"`) + `"}]}`
}

// hinted is a server's answer with these members, of which %d is the number of the answer.
func hinted(members string) func(*conn, *bridge.Request, int) (string, error) {
	return func(_ *conn, _ *bridge.Request, n int) (string, error) {
		return `{"resultType":"complete",` + strings.ReplaceAll(members, "%d", fmt.Sprint(n)) + `}`, nil
	}
}

// list lists the tools.
func (c *conn) list(t *testing.T) string { t.Helper(); return c.call(t, "tools/list", `{}`) }

// call makes a call through the cache, and returns the answer or the error as text.
func (c *conn) call(t *testing.T, method, params string) string {
	t.Helper()
	return c.callUntil(t, context.Background(), method, params)
}

func (c *conn) callUntil(t *testing.T, ctx context.Context, method, params string) string {
	t.Helper()
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	a, err := c.up.Call(ctx, &bridge.Request{Message: m, From: c.from, Back: bridge.Nobody{}})
	if err != nil {
		return err.Error()
	}
	defer a.Release()
	return bridgetest.Text(a)
}

// later makes a call in another goroutine.
func (c *conn) later(t *testing.T, ctx context.Context, params string) (answer func() string) {
	var got string
	done := make(chan struct{})
	go func() {
		defer close(done)
		got = c.callUntil(t, ctx, "tools/list", params)
	}()
	synctest.Wait()
	return func() string { <-done; return got }
}

// times returns how often the server was asked.
func (f *fake) times() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// changes announces a change of the tools over the connection.
func (c *conn) changes() {
	c.source.Notified(jsonrpc.NewNotification("notifications/tools/list_changed", nil))
}
