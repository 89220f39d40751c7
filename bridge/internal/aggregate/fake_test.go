package aggregate

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

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

// acknowledged is a Client that waits for the first notification.
type acknowledged struct {
	bridge.Nobody
	told chan struct{}
}

func (a acknowledged) Notify(*jsonrpc.Message) { close(a.told) }
