package cache

import (
	"bytes"
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

// A connection that is lost, or whose process is stopped, is not opened for a list: clients get the old one. That is said
// once. A connection without a process is opened, and so is that of each call to a legacy server.
func TestCacheAbsent(t *testing.T) {
	for _, tc := range []struct {
		name   string
		state  lane.State
		modern bool
		server Server
		stale  bool
		level  string
	}{
		{"open", lane.Open, false, Server{Process: true}, false, ""},
		{"stopped", lane.Idle, false, Server{Process: true}, true, "INFO"},
		{"closed", lane.Idle, false, Server{}, false, ""},
		{"lost", lane.Lost, false, Server{}, true, "WARN"},
		{"process lost", lane.Lost, false, Server{Process: true}, true, "WARN"},
		{"a process for each call", lane.Idle, false, Server{Process: true, PerCall: true}, false, ""},
		{"a process for each call, modern", lane.Idle, true, Server{Process: true, PerCall: true}, true, "INFO"},
	} {
		f := &fake{modern: tc.modern}
		if tc.modern {
			f.answer = hinted(`"tools":[{"name":"t%d"}],"ttlMs":1000,"cacheScope":"private"`)
		}
		var log bytes.Buffer
		f.start(t, Options{Lists: time.Second}, tc.server, func(t *testing.T, c *Cache) {
			c.server.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			u := f.open(c, "")
			bridgetest.Contains(t, u.list(t), `"t1"`)
			time.Sleep(time.Minute)
			u.state = tc.state
			held := u.up.(*Cached).Holds(u.request(t, "tools/list"), u.Server(), nil)
			if got := u.list(t); strings.Contains(got, `"t1"`) != tc.stale || held != tc.stale {
				t.Errorf("%s: held is %t, got %s", tc.name, held, got)
			}
			if n := c.served.Load(); (n == 1) != tc.stale {
				t.Errorf("%s: %d stale answers", tc.name, n)
			}
			synctest.Wait()
			if tc.level != "" && !strings.Contains(log.String(), "level="+tc.level+` msg="serving an old list`) {
				t.Errorf("%s: the log: %s", tc.name, log.String())
			}
			if tc.state == lane.Lost { // and meanwhile the server is tried
				if n := f.times(); n != 2 {
					t.Errorf("%s: it was asked %d times", tc.name, n)
				}
			}
		})
	}
}

func (c *conn) request(t *testing.T, method string) *bridge.Request {
	t.Helper()
	params := "{}"
	if method == "resources/read" {
		params = `{"uri":"a:"}`
	}
	return &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`), From: c.from}
}

// Holds reports which requests the cache answers without a connection.
func TestCacheHolds(t *testing.T) {
	down := &bridge.Error{Kind: bridge.ErrUnavailable, Public: "it is down"}
	f := &fake{modern: true, answer: hinted(`"tools":[{"name":"t"}],"contents":[],"ttlMs":60000,"cacheScope":"private"`)}
	f.start(t, Options{}, Server{Process: true}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		u.list(t)
		u.call(t, "resources/read", `{"uri":"a:"}`)
		began := time.Now()
		for _, tc := range []struct {
			name   string
			after  time.Duration
			method string
			change func(r *bridge.Request)
			why    error
			state  lane.State
			want   bool
		}{
			{"fresh", 0, "tools/list", nil, nil, lane.Open, true},
			{"fresh contents", 0, "resources/read", nil, nil, lane.Open, true},
			{"another list", 0, "prompts/list", nil, nil, lane.Open, false},
			{"a call", 0, "tools/call", nil, nil, lane.Open, false},
			{"of before that", 0, "tools/list", func(r *bridge.Request) { r.NotBefore = time.Now().Add(time.Second) }, nil, lane.Open, false},
			{"an error about the caller", 0, "tools/list", nil, bridge.ErrDenied, lane.Open, false},
			{"old", 2 * time.Minute, "tools/list", nil, nil, lane.Open, false},
			{"old, and it is down", 2 * time.Minute, "tools/list", nil, down, lane.Open, true},
			{"old, and stopped", 2 * time.Minute, "tools/list", nil, nil, lane.Idle, true},
			{"old contents, and stopped", 2 * time.Minute, "resources/read", nil, nil, lane.Idle, false},
			{"too old", 48 * time.Hour, "tools/list", nil, down, lane.Open, false},
		} {
			time.Sleep(tc.after - time.Since(began))
			r := u.request(t, tc.method)
			if tc.change != nil {
				tc.change(r)
			}
			u.state = tc.state
			if got := u.up.(*Cached).Holds(r, u.Server(), tc.why); got != tc.want {
				t.Errorf("%s: %t", tc.name, got)
			}
		}
		if (*Cached)(nil).Holds(u.request(t, "tools/list"), u.Server(), nil) || u.up.(*Cached).Holds(u.request(t, "tools/list"), nil, nil) {
			t.Error("without a cache or a greeting there is an answer")
		}
	})
}

// A resource is kept as the modern server says, and until it says that it has changed, a part of it, or what it is a part
// of. A legacy server's is not kept.
func TestCacheContents(t *testing.T) {
	const updated = "notifications/resources/updated"
	f := &fake{modern: true, answer: hinted(`"contents":[{"text":"%d"}],"ttlMs":60000,"cacheScope":"private"`)}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		read := func(want string) {
			t.Helper()
			bridgetest.Contains(t, u.call(t, "resources/read", `{"uri":"a:/b"}`), `"text":"`+want+`"`)
		}
		says := func(uri string) { c.Heard(bridgetest.Notification(t, updated, `{"uri":"`+uri+`"}`)) }
		read("1")
		read("1")
		says("b:/b")
		c.Heard(jsonrpc.NewNotification("notifications/tools/list_changed", nil))
		read("1")
		says("a:/b/part")
		read("2")
		says("a:")
		read("3")
		says("a:/b")
		read("4")
		// So does what it says to a subscription, which the client gets, too.
		f.answer = func(_ *conn, r *bridge.Request, n int) (string, error) {
			if r.Method == era.Listen {
				r.Back.Notify(bridgetest.Notification(t, updated, `{"uri":"a:/b"}`))
			}
			return hinted(`"contents":[{"text":"%d"}],"ttlMs":60000,"cacheScope":"private"`)(nil, r, n)
		}
		var client bridgetest.Client
		r := u.request(t, era.Listen)
		r.Back = &client
		if _, err := u.up.Call(t.Context(), r); err != nil || len(client.Got()) != 1 {
			t.Errorf("the subscription: %v", err)
		}
		read("6")
	})
	f = &fake{answer: hinted(`"contents":[]`)}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		for range 3 {
			u.call(t, "resources/read", `{"uri":"a:"}`)
		}
		if n := f.times(); n != 3 {
			t.Errorf("a legacy server was asked %d times", n)
		}
	})
}

// However many list at once, the server is asked once. A cursor is for the connection that gave it.
func TestCacheTogether(t *testing.T) {
	f := &fake{after: time.Second}
	list := func(t *testing.T, all []*conn) (got []string) {
		got = make([]string, len(all))
		var wg sync.WaitGroup
		for i, u := range all {
			wg.Go(func() { got[i] = u.list(t) })
		}
		wg.Wait()
		return got
	}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		all := []*conn{f.open(c, ""), f.open(c, ""), f.open(c, "")}
		for _, got := range list(t, all) {
			bridgetest.Contains(t, got, `"t1"`)
		}
		if n := f.times(); n != 1 || c.joined.Load() != 2 || c.misses.Load() != 1 {
			t.Errorf("asked %d times; %d joined, %d missed", n, c.joined.Load(), c.misses.Load())
		}
		if !c.On() {
			t.Error("it is off")
		}
		c.Set(Options{Off: true})
		if c.On() || (*Cache)(nil).On() {
			t.Error("it is on")
		}
	})
	f = &fake{after: time.Second, answer: func(c *conn, _ *bridge.Request, _ int) (string, error) {
		return `{"tools":[],"nextCursor":"of` + string(rune('0'+c.n)) + `"}`, nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		all := []*conn{f.open(c, ""), f.open(c, ""), f.open(c, "")}
		for range 2 {
			for i, got := range list(t, all) {
				bridgetest.Contains(t, got, `"nextCursor":"of`+string(rune('1'+i))+`"`)
			}
		}
		if n := f.times(); n > 6 {
			t.Errorf("asked %d times", n)
		}
	})
}
