package lift_test

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// stage is a session with a lift in front of a server that the test plays.
type stage struct {
	*bridgetest.Upstream
	t      *testing.T
	client *bridgetest.Client
	own    bridge.Client // of the connection
	up     bridge.Upstream
	from   *bridge.Caller
	missed int
}

// play starts a session of one revision before a server of another, without its handshake.
func play(t *testing.T, session, server, clientCaps, serverCaps string) *stage {
	s := &stage{Upstream: bridgetest.NewUpstream(server, serverCaps), t: t, client: &bridgetest.Client{}, from: bridgetest.Caller(session, "", clientCaps)}
	s.Serve = func(r *bridge.Request) *jsonrpc.Message {
		if r.Method == "initialize" {
			return bridgetest.Result(t, string(s.Server().Result))
		}
		return nil
	}
	l := lift.New(s.from, s.client, &lift.Options{
		Server: "fake", Handshake: time.Minute, Log: slog.New(slog.DiscardHandler), Rewrites: &list.Rewrites{},
		Cache: s,
	})
	s.own, s.up = l.Client(), l.Wrap(s.Upstream)
	return s
}

// Heard implements lift.Cache.
func (s *stage) Heard(*jsonrpc.Message) { s.missed++ }

// begin calls initialize and returns the result.
func (s *stage) begin() string {
	s.t.Helper()
	a := s.call("initialize", bridgetest.InitializeParams)
	s.Got()
	return a
}

// call makes a call that Serve answers, or that a goroutine of the test takes.
func (s *stage) call(method, params string) string {
	s.t.Helper()
	m, err := s.up.Call(s.t.Context(), bridgetest.Request(s.t, s.from, s.client, method, params))
	if err != nil {
		return "error: " + err.Error()
	}
	return bridgetest.Text(m)
}

// ask makes a call in a goroutine.
func (s *stage) ask(method, params string) <-chan string {
	done := make(chan string, 1)
	go func() { done <- s.call(method, params) }()
	return done
}

func (s *stage) end() {
	s.t.Helper()
	if err := s.up.Close(s.t.Context()); err != nil || s.Closed() != 1 {
		s.t.Errorf("Close() = %v, and the connection was closed %d times", err, s.Closed())
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

// sent is what goes with each request of a session of 2025-11-25 to a modern server.
const sent = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`

// acknowledge begins the subscription of a listen call.
func acknowledge(t *testing.T, c *bridgetest.Call, what string) {
	t.Helper()
	if c.Method != era.Listen {
		t.Fatalf("the server got %s", c.Method)
	}
	c.Back.Notify(bridgetest.Notification(t, era.Acknowledged, `{"notifications":`+what+`}`))
	synctest.Wait()
}
