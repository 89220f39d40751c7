package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// scripted is an Upstream whose nth call does what one says.
type scripted struct {
	bridge.Upstream
	calls atomic.Int64
	do    func(ctx context.Context, n int, r *bridge.Request) (*jsonrpc.Message, error)
}

func (s *scripted) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return s.do(ctx, int(s.calls.Add(1)), r)
}

func (*scripted) Server() *bridge.Greeting { return &bridge.Greeting{Revision: era.LatestLegacy} }

func failing(err error) *scripted {
	return &scripted{do: func(context.Context, int, *bridge.Request) (*jsonrpc.Message, error) { return nil, err }}
}

// retried runs f in a bubble with a route that makes calls again.
func retried(t *testing.T, o retry.Options, f func(t *testing.T, r *server)) {
	t.Helper()
	run(t, ServerOptions{Adapter: &fake{}, Retry: o}, func(t *testing.T, b *Gateway) { f(t, b.table.Load().servers[0]) })
}

func requested(t testing.TB, method, params string) *bridge.Request {
	return &bridge.Request{Message: bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)), From: &bridge.Caller{}, Back: bridge.Nobody{}}
}

const annotated = `{"tools":[
{"name":"reads","annotations":{"readOnlyHint":true}},
{"name":"sets","annotations":{"idempotentHint":true,"destructiveHint":true}},
{"name":"says both","annotations":{"readOnlyHint":true,"destructiveHint":true}},
{"name":"sends","annotations":{"readOnlyHint":false,"idempotentHint":false}},
{"name":"words","annotations":{"readOnlyHint":"true","idempotentHint":1}},
{"name":"silent"}]}`

// protocol.md D0.8: what may be made again is, and nothing else: not even with
// the option what the server does not promise.
func TestRetryMethods(t *testing.T) {
	tool := func(name string) string { return fmt.Sprintf(`{"name":%q,"arguments":{"task":1}}`, name) }
	for _, test := range []struct {
		method, params string
		o              retry.Options
		want           int64
	}{
		{"tools/list", `{}`, retry.Options{}, 2},
		{"tools/list", `{"cursor":"1"}`, retry.Options{Attempts: 3}, 3},
		{"tools/list", `{}`, retry.Options{Attempts: 1}, 1},
		{"tools/list", `{}`, retry.Options{Off: true}, 1},
		{"prompts/list", `{}`, retry.Options{}, 2},
		{"resources/list", `{}`, retry.Options{}, 2},
		{"resources/templates/list", `{}`, retry.Options{}, 2},
		{"resources/read", `{"uri":"a:"}`, retry.Options{}, 2},
		{"resources/read", `{"uri":"a:","inputResponses":{},"requestState":"s"}`, retry.Options{}, 1},
		{"server/discover", `{}`, retry.Options{}, 2},
		{"ping", `{}`, retry.Options{}, 2},
		{"completion/complete", `{}`, retry.Options{Tools: true}, 1},
		{"prompts/get", `{"name":"x"}`, retry.Options{Tools: true}, 1},
		{"logging/setLevel", `{"level":"info"}`, retry.Options{Tools: true}, 1},
		{"resources/subscribe", `{"uri":"a:"}`, retry.Options{Tools: true}, 1},
		{"tasks/get", `{"taskId":"1"}`, retry.Options{Tools: true}, 1},
		{era.Listen, `{}`, retry.Options{Tools: true}, 1},
		{"x-vendor/read", `{}`, retry.Options{Tools: true}, 1},
		{"tools/call", tool("reads"), retry.Options{}, 1},
		{"tools/call", tool("reads"), retry.Options{Tools: true}, 2},
		{"tools/call", tool("reads"), retry.Options{Tools: true, Attempts: 4}, 4},
		{"tools/call", tool("sets"), retry.Options{Tools: true}, 2},
		{"tools/call", tool("says both"), retry.Options{Tools: true}, 1},
		{"tools/call", tool("sends"), retry.Options{Tools: true}, 1},
		{"tools/call", tool("words"), retry.Options{Tools: true}, 1},
		{"tools/call", tool("silent"), retry.Options{Tools: true}, 1},
		{"tools/call", tool("unknown"), retry.Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","task":{"ttl":1}}`, retry.Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","requestState":"s"}`, retry.Options{Tools: true}, 1},
		{"tools/call", `{"name":"reads","Name":"sends"}`, retry.Options{Tools: true}, 1},
	} {
		t.Run(test.method+fmt.Sprintf("%+v", test.o), func(t *testing.T) {
			retried(t, test.o, func(t *testing.T, r *server) {
				s := failing(failure(bridge.ErrLost))
				if test.method == "tools/call" {
					s.do = func(_ context.Context, _ int, r *bridge.Request) (*jsonrpc.Message, error) {
						if r.Method == "tools/list" {
							return jsonrpc.NewResult(nil, []byte(annotated)), nil
						}
						return nil, failure(bridge.ErrLost)
					}
				}
				up := r.tools.Wrap(r.retries.Wrap(s))
				if test.method == "tools/call" {
					if _, err := up.Call(t.Context(), requested(t, "tools/list", `{}`)); err != nil {
						t.Fatal(err)
					}
					s.calls.Store(0)
				}
				at := time.Now()
				if _, err := up.Call(t.Context(), requested(t, test.method, test.params)); !errors.Is(err, bridge.ErrLost) {
					t.Errorf("%v", err)
				}
				if n, took := s.calls.Load(), time.Since(at); n != test.want || took > 2*time.Second {
					t.Errorf("made %d times in %v, want %d", n, took, test.want)
				}
			})
		})
	}
}

// A list in which a tool promises nothing any more takes the promise back.
func TestRetryForgets(t *testing.T) {
	retried(t, retry.Options{Tools: true}, func(t *testing.T, r *server) {
		list := annotated
		s := &scripted{do: func(_ context.Context, _ int, r *bridge.Request) (*jsonrpc.Message, error) {
			if r.Method == "tools/list" {
				return jsonrpc.NewResult(nil, []byte(list)), nil
			}
			return nil, failure(bridge.ErrLost)
		}}
		up := r.tools.Wrap(r.retries.Wrap(s))
		for _, test := range []struct {
			list, cursor string
			want         int64
		}{
			{annotated, `{}`, 2},
			{`{"tools":[{"name":"other","annotations":{"readOnlyHint":true}}]}`, `{"cursor":"2"}`, 2},
			{`{"tools":[{"name":"reads","annotations":{"readOnlyHint":false}}]}`, `{}`, 1},
		} {
			list = test.list
			_, _ = up.Call(t.Context(), requested(t, "tools/list", test.cursor))
			s.calls.Store(0)
			_, _ = up.Call(t.Context(), requested(t, "tools/call", `{"name":"reads"}`))
			if n := s.calls.Load(); n != test.want {
				t.Errorf("after %s: made %d times, want %d", test.list, n, test.want)
			}
			time.Sleep(time.Second) // for the budget
		}
	})
}

// Through a whole bridge: a list is answered although its connection ends under
// it, and a tool is called once.
func TestRetryThrough(t *testing.T) {
	f := &fake{}
	var lists, calls atomic.Int64
	f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		switch m.Method {
		case "tools/list":
			if lists.Add(1) == 1 {
				w.die()
				return true
			}
		case "tools/call":
			calls.Add(1)
			w.die()
			return true
		}
		return false
	}
	run(t, ServerOptions{Adapter: f, Cache: cache.Options{Off: true}}, func(t *testing.T, b *Gateway) {
		s, _ := begin(t, b, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/list", `{}`), `"result"`)
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"x"}`), `upstream_lost`)
		time.Sleep(time.Minute)
		bridgetest.Contains(t, visitor{}.call(t, b, "tools/call", `"name":"x"`), `upstream_lost`)
		if lists.Load() != 2 || calls.Load() != 2 {
			t.Errorf("%d lists and %d calls reached the server, want 2 and 2", lists.Load(), calls.Load())
		}
	})
}
