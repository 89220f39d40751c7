package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// External names are stable, and every model provider accepts them.
func TestExposed(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, test := range []struct{ prefix, name, want string }{
		{"a__", "echo", "a__echo"},
		{"a__", "get.user-1", "a__get.user-1"},
		{"", "echo", "echo"},
		{"a__", "find user/1", "a__find_user_1_58ec6a78"},
		{"a__", long, "a__" + strings.Repeat("x", 52) + "_a0a9eb4f"},
		{"a__", "größe", "a__gr__e_"},
	} {
		got := externalName(test.prefix, test.name)
		if !strings.HasPrefix(got, test.want[:min(len(test.want), 9)]) || len(got) > maxName || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
			t.Errorf("externalName(%q, %q) = %q", test.prefix, test.name, got)
		}
		if got != externalName(test.prefix, test.name) {
			t.Error("the name is not stable")
		}
	}
	if externalName("a__", "x/y") == externalName("a__", "x y") {
		t.Error("two names become one")
	}
}

// Any text survives in a cursor.
func FuzzCursor(f *testing.F) {
	f.Add("tools", "abc")
	f.Add("", "\x00\xff")
	f.Fuzz(func(t *testing.T, name, at string) {
		if got, ok := cursorOf(list.Tools, []byte(`{"cursor":`+rawjson.Quote(at)+`}`)); ok && got != nil && len(got.At) == 0 {
			t.Errorf("cursorOf(%q) = %+v", at, got)
		}
		name, at = strings.ToValidUTF8(name, "x"), strings.ToValidUTF8(at, "x") // JSON has valid UTF-8 only
		c := cursor{Kind: list.Prompts, At: map[string]*list.Mark{name: {}}}
		c.At[name].Cursor = at
		back, ok := cursorOf(list.Prompts, []byte(`{"cursor":`+rawjson.Quote(c.String())+`}`))
		if !ok || back == nil || len(back.At) != 1 {
			t.Fatalf("the cursor %s does not come back: %v", c.String(), back)
		}
		a, _ := json.Marshal(c)
		z, _ := json.Marshal(back)
		if string(a) != string(z) {
			t.Errorf("%s became %s", a, z)
		}
	})
}

// fake is a server whose answers name it. It accepts any subscription.
type fake struct {
	bridge.Upstream
	name string
}

func (f *fake) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != era.Listen {
		return jsonrpc.NewResult(nil, []byte(`{"resultType":"complete","by":"`+f.name+`"}`)), nil
	}
	r.Back.Notify(jsonrpc.NewNotification(era.Acknowledged, []byte(`{"notifications":{}}`)))
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// host is a server that keeps nothing, and knows no greeting.
type host struct {
	Host
	await func() (stop func())
}

func (*host) Serves(string) bool                   { return true }
func (*host) Shows(list.Kind, string, string) bool { return true }
func (*host) Greeting(string) *bridge.Greeting     { return nil }
func (*host) Stores() bool                         { return false }
func (h *host) Await(*bridge.Caller, func()) func() {
	if h.await == nil {
		return func() {}
	}
	return h.await()
}

// of returns servers of these names. Each name is also the prefix.
func of(names ...string) (all []*Server) {
	for _, name := range names {
		all = append(all, &Server{
			Name: name, Prefix: name + "__", Log: slog.New(slog.DiscardHandler), Stateless: &fake{name: name},
			Host: &host{},
		})
	}
	return all
}

// one returns an aggregate of these servers.
func one(all []*Server) *Aggregate {
	a := New(Options{Force: context.Background()})
	a.Set(all)
	return a
}

// slowLog takes a millisecond for each message.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { time.Sleep(time.Millisecond); return false }

// If two lists find a server dead at the same time, they leave it out once. Nothing waits for the server after
// the session ended.
func TestMergeLeavesOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := of("one", "dead")
		var waiting, ever atomic.Int64
		all[1].Log = slog.New(slowLog{slog.DiscardHandler})
		all[1].Host = &host{await: func() (stop func()) {
			waiting.Add(1)
			ever.Add(1)
			return func() { waiting.Add(-1) }
		}}
		s := newSession(one(all), &bridge.Caller{Params: []byte(bridgetest.InitializeParams)}, bridge.Nobody{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { s.members()[1].leaveOut(errors.New("no")) })
		}
		wg.Wait()
		_ = s.Close(t.Context())
		if n := waiting.Load(); n != 0 || ever.Load() != 1 {
			t.Errorf("%d wait for a server on behalf of sessions that have ended, of %d", n, ever.Load())
		}
	})
}

// acknowledged is a Client that waits for the first notification.
type acknowledged struct {
	bridge.Nobody
	told chan struct{}
}

func (a acknowledged) Notify(*jsonrpc.Message) { close(a.told) }

// The sessions of principals are bounded, without refusing another one: the least recently used one is dropped.
func TestStatelessOfManyPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := one(of("one", "two")).Stateless()
		defer all.Close(context.Background())
		request := func(n int, method, params string) *bridge.Request {
			from := &bridge.Caller{Principal: fmt.Sprint("p", n), Revision: era.LatestModern, Capabilities: []byte("{}")}
			return &bridge.Request{From: from, Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)}
		}
		kept := func() int {
			synctest.Wait()
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.each)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		ended := make(chan error, maxShared+2)
		listen := func(n int) {
			told := make(chan struct{})
			r := request(n, era.Listen, `{"notifications":{"toolsListChanged":true}}`)
			r.Back = acknowledged{told: told}
			wg.Go(func() {
				_, err := all.Call(ctx, r)
				ended <- err
			})
			<-told
		}
		listen(0)
		for i := range maxShared + 2 {
			m, err := all.Call(ctx, request(i, "tools/call", `{"name":"one__x"}`))
			if err != nil {
				t.Fatal(err)
			}
			bridgetest.Contains(t, bridgetest.Text(m), `"by":"one"`)
		}
		if n := kept(); n != maxShared {
			t.Errorf("%d are kept, want %d", n, maxShared)
		}
		for i := range maxShared + 1 { // in use, and one too many
			listen(1000 + i)
		}
		if synctest.Wait(); len(ended) > 0 {
			t.Errorf("a subscription has ended with %v", <-ended)
		}
		cancel(bridge.ErrCancelled)
		wg.Wait()
		if n := kept(); n > maxShared {
			t.Errorf("%d are kept, want %d", n, maxShared)
		}
	})
}
