package lift_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// passing is an Upstream that keeps the last request that it got.
type passing struct {
	s *bridge.Greeting
	r *bridge.Request
	a *jsonrpc.Message
}

func (p *passing) Server() *bridge.Greeting { return p.s }
func (p *passing) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	p.r = r
	return p.a, nil
}
func (p *passing) Notify(_ context.Context, r *bridge.Request) error {
	p.r = r
	return nil
}
func (p *passing) Close(context.Context) error { return nil }

// lifting returns a lift for a session of that revision in front of up, and the caller.
func lifting(t testing.TB, revision string, up bridge.Upstream) (bridge.Upstream, *bridge.Caller) {
	t.Helper()
	o := &lift.Options{Server: "fake", Log: slog.New(slog.DiscardHandler), Rewrites: &list.Rewrites{}}
	from := &bridge.Caller{Revision: revision, Capabilities: []byte(`{"roots":{}}`), Params: []byte(bridgetest.InitializeParams)}
	return lift.New(from, bridge.Nobody{}, o).Wrap(up), from
}

// silent is the greeting of a modern server that announces nothing.
const silent = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}},"ttlMs":0,"cacheScope":"private"}`

// Between equal revisions the server gets the same request, and the client the same answer.
func TestLiftEquals(t *testing.T) {
	for _, revision := range era.Legacy() {
		p := &passing{s: &bridge.Greeting{Revision: revision, Result: []byte("{}")}, a: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","structuredContent":5}}`)}
		u, from := lifting(t, revision, p)
		for _, method := range []string{"initialize", "tools/call", "logging/setLevel", "resources/subscribe", "tasks/get", "vendor/x"} {
			r := &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"task":{}}}`), Back: bridge.Nobody{}}
			if m, err := u.Call(t.Context(), r); m != p.a || err != nil || p.r != r {
				t.Errorf("%s: Call(%s) = %v, %v, and the server got another request", revision, method, m, err)
			}
		}
		n := &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)}
		if err := u.Notify(t.Context(), n); err != nil || p.r != n {
			t.Errorf("%s: Notify = %v", revision, err)
		}
	}
}

// A message that both revisions understand is not copied either.
func TestLiftUnlikeButSame(t *testing.T) {
	p := &passing{s: &bridge.Greeting{Revision: era.Rev20251125}, a: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}]}}`)}
	u, from := lifting(t, era.Rev20250618, p)
	r := &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}`)}
	if m, err := u.Call(t.Context(), r); m != p.a || err != nil || p.r.Message != r.Message {
		t.Errorf("Call = %v, %v", m, err)
	}
}

// hasty is a Client that answers when the call has just ended.
type hasty struct {
	bridge.Nobody
	end context.CancelCauseFunc
}

func (h hasty) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	h.end(bridge.ErrCancelled)
	reply(jsonrpc.NewResult(nil, []byte(`{"roots":[]}`)))
	return nil
}

// An answer that arrives after the call ended is not sent to the server.
func TestLiftAnsweredTooLate(t *testing.T) {
	for range 64 {
		p := &passing{s: &bridge.Greeting{Revision: "2026-07-28", Result: []byte(silent)}, a: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list","params":{}}}}}`)}
		u, from := lifting(t, "2025-11-25", p)
		ctx, end := context.WithCancelCause(t.Context())
		r := &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`), Back: hasty{end: end}}
		if m, err := u.Call(ctx, r); !errors.Is(err, bridge.ErrCancelled) || gjson.GetBytes(p.r.Whole(), "inputResponses").Exists() {
			t.Fatalf("Call = %s, %v; the server got %s", bridgetest.Text(m), err, p.r.Whole())
		}
	}
}
