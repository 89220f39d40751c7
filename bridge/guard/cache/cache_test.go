package cache

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// B13: a client learns how long its answer still holds. Values of the server that make no
// sense count for nothing.
func TestCacheTTL(t *testing.T) {
	for _, test := range []struct {
		ttl  string
		kept time.Duration
	}{
		{`"ttlMs":60000`, time.Minute},
		{`"ttlMs":31536000000000`, 24 * time.Hour},
		{`"ttlMs":0`, 0},
		{`"ttlMs":-60000`, 0},
		{`"ttlMs":6e4`, 0},
		{`"ttlMs":"60000"`, 0},
		{`"ttlMs":99999999999999999999`, 0},
		{`"ttlMs":60000,"ttlMs":60000`, 0},
		{`"no":1`, 0},
	} {
		f := &fake{modern: true, answer: hinted(`"tools":[{"name":"t%d"}],` + test.ttl + `,"cacheScope":"private"`)}
		f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "")
			u.list(t)
			if test.kept == 0 {
				bridgetest.Contains(t, u.list(t), `"t2"`)
				return
			}
			time.Sleep(test.kept - 5*time.Second)
			bridgetest.Contains(t, u.list(t), `"t1"`, `"ttlMs":5000,"cacheScope":"private"`)
			time.Sleep(5 * time.Second)
			bridgetest.Contains(t, u.list(t), `"t2"`)
			if n := f.times(); n != 2 {
				t.Errorf("%s: asked %d times", test.ttl, n)
			}
		})
	}
}

// The configuration says how long a legacy server's lists are fresh.
func TestCacheLegacyTime(t *testing.T) {
	for _, test := range []struct{ lists, want time.Duration }{
		{0, 5 * time.Second},
		{time.Second, time.Second},
		{10 * time.Minute, 10 * time.Minute},
		{48 * time.Hour, 24 * time.Hour},
	} {
		f := &fake{}
		f.start(t, Options{Lists: test.lists}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "")
			u.list(t)
			time.Sleep(test.want - time.Millisecond)
			bridgetest.Contains(t, u.list(t), `"t1"`)
			time.Sleep(time.Millisecond)
			bridgetest.Contains(t, u.list(t), `"t2"`)
		})
	}
}

// a list is for one principal and one set of forwarded headers, unless the server
// says that it is public, or the operator that it is the same for all.
func TestCachePrincipals(t *testing.T) {
	for _, test := range []struct {
		name, scope string
		shared      bool
		asked       int
	}{
		{"private", `,"cacheScope":"private"`, false, 2},
		{"silent", ``, false, 2},
		{"public", `,"cacheScope":"public"`, false, 1},
		{"shared", `,"cacheScope":"private"`, true, 1},
	} {
		f := &fake{modern: true, answer: hinted(`"tools":[{"name":"t%d"}],"ttlMs":60000` + test.scope)}
		f.start(t, Options{Shared: test.shared}, Server{}, func(t *testing.T, c *Cache) {
			a, b := f.open(c, "a"), f.open(c, "b")
			for range 2 {
				bridgetest.Contains(t, a.list(t), `"t1"`)
				bridgetest.Contains(t, b.list(t), fmt.Sprintf(`"t%d"`, test.asked))
			}
			if n := f.times(); n != test.asked {
				t.Errorf("%s: asked %d times, want %d", test.name, n, test.asked)
			}
		})
	}
	for _, shared := range []bool{false, true} { // also if they share the connection
		f := &fake{}
		f.start(t, Options{Shared: shared}, Server{Shared: true}, func(t *testing.T, c *Cache) {
			a := f.open(c, "a")
			b := a.as("b")
			a.list(t)
			b.list(t)
			if n := f.times(); n != 1 && shared || n != 2 && !shared {
				t.Errorf("shared %t: asked %d times", shared, n)
			}
			b.changes()
			a.list(t)
			if n := f.times(); n != 2 && shared || n != 3 && !shared {
				t.Errorf("shared %t: asked %d times after the change", shared, n)
			}
		})
	}
	f := &fake{}
	forward := []bridge.Forward{{From: "X-Tenant", To: "X-Tenant"}}
	f.start(t, Options{}, Server{Forward: forward}, func(t *testing.T, c *Cache) {
		for i, tenant := range []string{"a", "b", "a"} {
			u := f.open(c, "")
			u.from.Header = map[string][]string{"X-Tenant": {tenant}}
			bridgetest.Contains(t, u.list(t), []string{`"t1"`, `"t2"`, `"t1"`}[i])
		}
	})
	f = &fake{} // what a request brings, and what its caller can be asked
	f.start(t, Options{}, Server{Forward: forward}, func(t *testing.T, c *Cache) {
		for i, tc := range [][2]string{{"a", `{}`}, {"b", `{}`}, {"a", `{"roots":{}}`}, {"a", `{}`}} {
			u := f.open(c, "")
			u.from.Capabilities = []byte(tc[1])
			a, err := u.up.Call(t.Context(), &bridge.Request{
				Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`),
				From:    u.from,
				Header:  http.Header{"X-Tenant": {tc[0]}},
				Back:    bridge.Nobody{},
			})
			if err != nil {
				t.Fatal(err)
			}
			bridgetest.Contains(t, bridgetest.Text(a), []string{`"t1"`, `"t2"`, `"t3"`, `"t1"`}[i])
		}
	})
}

// a server that lists the same for everybody may have private resources.
func TestCacheSharedIsForLists(t *testing.T) {
	f := &fake{modern: true, answer: hinted(`"x":"%d","ttlMs":60000,"cacheScope":"private"`)}
	f.start(t, Options{Shared: true}, Server{}, func(t *testing.T, c *Cache) {
		a, b := f.open(c, "a"), f.open(c, "b")
		for range 2 {
			bridgetest.Contains(t, a.call(t, "resources/read", `{"uri":"a:"}`), `"x":"1"`)
			bridgetest.Contains(t, b.call(t, "resources/read", `{"uri":"a:"}`), `"x":"2"`)
			bridgetest.Contains(t, a.call(t, "server/discover", `{}`), `"x":"3"`)
			bridgetest.Contains(t, b.call(t, "server/discover", `{}`), `"x":"4"`)
		}
	})
}

// A server may change whom its list is for. A private list does not hide a public one.
func TestCacheBecomesPublic(t *testing.T) {
	for _, before := range []string{`"ttlMs":0,"cacheScope":"private"`, `"ttlMs":1000,"cacheScope":"private"`} {
		f := &fake{modern: true, answer: func(_ *conn, _ *bridge.Request, n int) (string, error) {
			terms := before
			if n > 1 {
				terms = `"ttlMs":60000,"cacheScope":"public"`
			}
			return fmt.Sprintf(`{"tools":[{"name":"t%d"}],%s}`, n, terms), nil
		}}
		f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "a")
			bridgetest.Contains(t, u.list(t), `"t1"`)
			time.Sleep(20 * time.Second)
			for range 3 {
				bridgetest.Contains(t, u.list(t), `"t2"`)
				bridgetest.Contains(t, f.open(c, "b").list(t), `"t2"`)
			}
		})
	}
}

// A failure of one caller reaches no other principal, even if all see the same list.
func TestCacheRefusalsAreNotShared(t *testing.T) {
	for _, shared := range []bool{false, true} { // by principals: the connection
		f := &fake{after: time.Second, answer: func(_ *conn, r *bridge.Request, _ int) (string, error) {
			if r.From.Principal == "alice" {
				return `"error":{"code":-32000,"message":"alice has not paid"}`, nil
			}
			return tools("t"), nil
		}}
		f.start(t, Options{Shared: true}, Server{Shared: shared}, func(t *testing.T, c *Cache) {
			alice, bob := f.open(c, "alice"), f.open(c, "bob")
			if shared {
				bob = alice.as("bob")
			}
			first := alice.later(t, t.Context(), `{}`)
			bridgetest.Contains(t, bob.list(t), `"t"`)
			bridgetest.Contains(t, first(), "alice has not paid")
		})
	}
}

// A request with members that the cache does not know goes to the server, and its answer to
// nobody else.
func TestCacheOwnWords(t *testing.T) {
	f := &fake{}
	f.start(t, Options{Lists: time.Hour}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		u.list(t)
		for i, test := range []struct {
			params string
			own    bool
		}{
			{`{"_meta":{"progressToken":1}}`, false},
			{`{ }`, false},
			{`{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`, false},
			{`{"_meta":{}}`, false},
			{`{"_meta":{"io.modelcontextprotocol/x":1}}`, false},
			{`{"_meta":{"com.example/tenant":"a"}}`, true},
			{`{"cursor":"2"}`, true},
			{`{"requestState":"s"}`, true},
			{`{"inputResponses":{}}`, true},
			{`{"x":1}`, true},
		} {
			before := f.times()
			u.call(t, "tools/list", test.params)
			if own := f.times() > before; own != test.own {
				t.Errorf("%d: %s was asked of the server: %t", i, test.params, own)
			}
		}
		bridgetest.Contains(t, strings.Join(u.log, "\n"), `"com.example/tenant":"a"`, `"cursor":"2"`)
	})
}

// A fetch for all has nothing of the first caller's: no progress token, no trace.
func TestCacheImpersonal(t *testing.T) {
	for _, modern := range []bool{false, true} {
		f := &fake{modern: modern}
		f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "")
			u.call(t, "tools/list", `{"_meta":{"progressToken":"mine","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`)
			got := strings.Join(u.log, "")
			bridgetest.Lacks(t, got, "mine", "traceparent")
			if strings.Contains(got, "io.modelcontextprotocol/protocolVersion") != modern {
				t.Errorf("modern: %t, the server got %s", modern, got)
			}
		})
	}
}

// an exchange is nobody else's.
func TestCacheExchange(t *testing.T) {
	f := &fake{modern: true, answer: hinted(`"tools":[{"name":"t%d"}],"ttlMs":60000,"cacheScope":"public"`)}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		for range 2 {
			u.call(t, "resources/read", `{"uri":"a:","inputResponses":{"k":{}},"requestState":"s"}`)
		}
		if n := f.times(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
	f = &fake{modern: true, after: time.Second, answer: func(_ *conn, _ *bridge.Request, n int) (string, error) {
		return fmt.Sprintf(`{"resultType":"input_required","requestState":"s%d","ttlMs":60000}`, n), nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		one, two := u.later(t, t.Context(), `{}`), u.later(t, t.Context(), `{}`)
		if one() == two() {
			t.Errorf("both got %s", one())
		}
	})
}

// An empty list is kept for a moment, and an error is not.
func TestCacheEmptyAndFailed(t *testing.T) {
	answer := `{"tools":[]}`
	f := &fake{answer: func(*conn, *bridge.Request, int) (string, error) { return answer, nil }}
	f.start(t, Options{Lists: time.Hour}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		bridgetest.Contains(t, u.list(t), `"tools":[]`)
		bridgetest.Contains(t, u.list(t), `"tools":[]`)
		if n := f.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(time.Second)
		answer = `"error":{"code":-32603,"message":"not yet"}`
		bridgetest.Contains(t, u.list(t), "not yet")
		answer = tools("t3")
		bridgetest.Contains(t, u.list(t), `"t3"`)
		bridgetest.Contains(t, u.list(t), `"t3"`)
		if n := f.times(); n != 3 {
			t.Errorf("asked %d times", n)
		}
	})
}

// An error answers all that waited for it over the same connection, once.
func TestCacheErrorForAll(t *testing.T) {
	const no = `"error":{"code":-32000,"message":"no","data":{"n":1.0}}`
	f := &fake{after: time.Second, answer: func(*conn, *bridge.Request, int) (string, error) { return no, nil }}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		one, two := u.later(t, t.Context(), `{}`), u.later(t, t.Context(), `{}`)
		bridgetest.Contains(t, one(), no)
		bridgetest.Contains(t, two(), no)
		if n := f.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The first caller may leave: the others get their list. When all have left, the request is
// cancelled, and nobody joins it.
func TestCacheLeaderLeaves(t *testing.T) {
	f := &fake{after: time.Second}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := u.later(t, ctx, `{}`), u.later(t, t.Context(), `{}`)
		cancel(bridge.ErrCancelled)
		bridgetest.Contains(t, first(), bridge.ErrCancelled.Error())
		bridgetest.Contains(t, second(), `"t1"`)
		bridgetest.Lacks(t, strings.Join(u.log, ""), "cancelled")

		time.Sleep(time.Hour)
		ctx, cancel = context.WithCancelCause(t.Context())
		first, second = u.later(t, ctx, `{}`), u.later(t, ctx, `{}`)
		cancel(bridge.ErrCancelled)
		first()
		second()
		synctest.Wait()
		bridgetest.Contains(t, strings.Join(u.log, ""), "cancelled")
		bridgetest.Contains(t, u.list(t), `"t3"`)

		time.Sleep(time.Hour)
		f.answer = func(_ *conn, _ *bridge.Request, n int) (string, error) {
			if n == 4 {
				time.Sleep(time.Minute) // it does not heed the cancellation
			}
			return tools(fmt.Sprint("t", n)), nil
		}
		ctx, cancel = context.WithCancelCause(t.Context())
		first = u.later(t, ctx, `{}`)
		cancel(bridge.ErrCancelled)
		first()
		bridgetest.Contains(t, u.list(t), `"t5"`)
	})
}

// A fetch over another connection may fail, or hang: the own connection is there.
func TestCacheOthersConnection(t *testing.T) {
	for _, fails := range []bool{true, false} {
		f := &fake{answer: func(c *conn, _ *bridge.Request, _ int) (string, error) {
			if c.n == 1 {
				return never, nil
			}
			return tools("t2"), nil
		}}
		f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
			one, two := f.open(c, ""), f.open(c, "")
			began := time.Now()
			if fails {
				f.after, f.answer = time.Second, func(c *conn, _ *bridge.Request, _ int) (string, error) {
					if c.n == 1 {
						return "", &bridge.Error{Kind: bridge.ErrLost, Public: "lost"}
					}
					return tools("t2"), nil
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			first := one.later(t, ctx, `{}`)
			bridgetest.Contains(t, two.list(t), `"t2"`)
			if took := time.Since(began); took > 2*time.Second && fails || took != joinPatience && !fails {
				t.Errorf("it took %v", took)
			}
			cancel()
			bridgetest.Lacks(t, first(), "t2")
		})
	}
}

// However many connections of others hang, a caller whose own works gets the list.
func TestCacheAllOthersHang(t *testing.T) {
	f := &fake{answer: func(c *conn, _ *bridge.Request, _ int) (string, error) {
		if c.n <= 6 {
			return never, nil
		}
		return tools("t"), nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		ctx, cancel := context.WithCancel(t.Context())
		var others []func() string
		for range 6 {
			others = append(others, f.open(c, "").later(t, ctx, `{}`))
		}
		began := time.Now()
		bridgetest.Contains(t, f.open(c, "").list(t), `"t"`)
		if took := time.Since(began); took > joinPatience {
			t.Errorf("it took %v", took)
		}
		cancel()
		for _, o := range others {
			o()
		}
	})
}

// A slow server is asked once for many connections.
func TestCacheSlowServer(t *testing.T) {
	f := &fake{after: 3 * time.Second}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		var wg sync.WaitGroup
		for i := range 100 {
			u := f.open(c, "")
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				bridgetest.Contains(t, u.list(t), `"t1"`)
			})
		}
		wg.Wait()
		if n := f.times(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A slow answer does not replace a newer one.
func TestCacheOldAnswer(t *testing.T) {
	f := &fake{}
	f.start(t, Options{Lists: time.Hour}, Server{}, func(t *testing.T, c *Cache) {
		one, two := f.open(c, ""), f.open(c, "")
		f.after = 5 * time.Second
		first := one.later(t, t.Context(), `{}`)
		f.after = 0
		bridgetest.Contains(t, two.list(t), `"t2"`)
		bridgetest.Contains(t, first(), `"t1"`)
		bridgetest.Contains(t, two.list(t), `"t2"`)
	})
}

// an answer from before a change is neither stored nor shared after it.
func TestCacheChangeDuringFetch(t *testing.T) {
	for _, own := range []bool{true, false} {
		f := &fake{}
		f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "")
			change := func() { c.Heard(jsonrpc.NewNotification("notifications/tools/list_changed", nil)) }
			if own {
				change = u.changes
			}
			f.after = time.Second
			before := u.later(t, t.Context(), `{}`)
			change()
			f.after = 2 * time.Second
			after := u.later(t, t.Context(), `{}`)
			bridgetest.Contains(t, before(), `"t1"`)
			joined := u.list(t) // nothing from before is stored
			bridgetest.Contains(t, joined, `"t2"`)
			bridgetest.Contains(t, after(), `"t2"`)
			change()
			bridgetest.Contains(t, u.list(t), `"t3"`)
		})
	}
}

// A change announced over one principal's connection drops no other principal's list.
func TestCacheChangeOfAnotherPrincipal(t *testing.T) {
	f := &fake{}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		a, b := f.open(c, "a"), f.open(c, "b")
		bridgetest.Contains(t, a.list(t), `"t1"`)
		b.changes()
		bridgetest.Contains(t, a.list(t), `"t1"`)
	})
}

// A connection that announced a change has lists of its own. Others do not see them, also if
// they wait for a fetch meanwhile.
func TestCacheOwnFromNowOn(t *testing.T) {
	f := &fake{after: time.Second, answer: func(c *conn, _ *bridge.Request, _ int) (string, error) {
		return tools(fmt.Sprint("of", c.n)), nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		one, two, three := f.open(c, ""), f.open(c, ""), f.open(c, "")
		first, second := one.later(t, t.Context(), `{}`), two.later(t, t.Context(), `{}`)
		one.changes()
		bridgetest.Contains(t, first(), `"of1"`)
		bridgetest.Contains(t, second(), `"of2"`)
		bridgetest.Contains(t, one.list(t), `"of1"`)
		bridgetest.Lacks(t, three.list(t), `"of1"`)
		one.source.Ended()
		if st := c.Status(); st.Entries != 1 {
			t.Errorf("%d entries are left of an ended connection and the others", st.Entries)
		}
	})
}

// A connection that reopens after a loss drops the lists. Without a loss it drops its own.
func TestCacheReopenedLane(t *testing.T) {
	f := &fake{}
	f.start(t, Options{Lists: time.Hour}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		bridgetest.Contains(t, u.list(t), `"t1"`)
		u.source.Reopened(false)
		bridgetest.Contains(t, u.list(t), `"t1"`)
		u.source.Reopened(true)
		bridgetest.Contains(t, u.list(t), `"t2"`)
		u.changes()
		bridgetest.Contains(t, u.list(t), `"t3"`)
		u.source.Reopened(false)
		bridgetest.Contains(t, u.list(t), `"t4"`)
	})
}

// The first page of a list is not followed by pages of an older one. B13: all pages go with
// a cursor that the server refuses.
func TestCachePages(t *testing.T) {
	fail := false
	f := &fake{answer: func(_ *conn, _ *bridge.Request, n int) (string, error) {
		if fail {
			return `"error":{"code":-32602,"message":"bad cursor"}`, nil
		}
		return tools(fmt.Sprint("t", n)), nil
	}}
	f.start(t, Options{Lists: time.Minute}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		page := func(cursor string) string { return u.call(t, "tools/list", `{"cursor":"`+cursor+`"}`) }
		u.list(t)
		time.Sleep(50 * time.Second)
		bridgetest.Contains(t, page("2"), `"t2"`)
		time.Sleep(15 * time.Second)
		bridgetest.Contains(t, page("2"), `"t2"`)
		bridgetest.Contains(t, u.list(t), `"t3"`)
		bridgetest.Contains(t, page("2"), `"t4"`)
		fail = true
		bridgetest.Contains(t, page("3"), `bad cursor`)
		fail = false
		bridgetest.Contains(t, u.list(t), `"t6"`)
	})
}

// B13: all pages go with a refused cursor, also those that another caller asked for.
func TestCachePublicPages(t *testing.T) {
	now, steady := 1, false
	f := &fake{modern: true, answer: func(_ *conn, r *bridge.Request, _ int) (string, error) {
		next := fmt.Sprintf(`"c%d"`, now)
		if steady {
			next = `"2"`
		}
		const terms = `"ttlMs":60000,"cacheScope":"public"`
		switch params := string(r.Params); {
		case !strings.Contains(params, `"cursor"`):
			return fmt.Sprintf(`{"tools":[{"name":"a%d"}],"nextCursor":%s,%s}`, now, next, terms), nil
		case strings.Contains(params, next):
			return fmt.Sprintf(`{"tools":[{"name":"b%d"}],%s}`, now, terms), nil
		}
		return `"error":{"code":-32602,"message":"bad cursor"}`, nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		a, b := f.open(c, "a"), f.open(c, "b")
		a.list(t)
		now = 2
		bridgetest.Contains(t, b.list(t), `"a1"`)
		bridgetest.Contains(t, b.call(t, "tools/list", `{"cursor":"c1"}`), "bad cursor")
		bridgetest.Contains(t, b.list(t), `"a2"`)
		bridgetest.Contains(t, b.call(t, "tools/list", `{"cursor":"c2"}`), `"b2"`)
	})
	now, steady = 1, true
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		a, b := f.open(c, "a"), f.open(c, "b")
		a.list(t)
		time.Sleep(50 * time.Second)
		bridgetest.Contains(t, b.call(t, "tools/list", `{"cursor":"2"}`), `"b1"`)
		time.Sleep(15 * time.Second)
		now = 2
		bridgetest.Contains(t, a.list(t), `"a2"`)
		bridgetest.Contains(t, a.call(t, "tools/list", `{"cursor":"2"}`), `"b2"`)
	})
}

// A stale answer shows in the status until the server answers again.
func TestCacheStaleReadsEnd(t *testing.T) {
	dead := false
	f := &fake{modern: true, answer: func(*conn, *bridge.Request, int) (string, error) {
		if dead {
			return "", &bridge.Error{Kind: bridge.ErrLost, Public: "lost"}
		}
		return `{"contents":[],"ttlMs":1000,"cacheScope":"private"}`, nil
	}}
	f.start(t, Options{}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		for _, dead = range []bool{false, true, false, true} {
			bridgetest.Contains(t, u.call(t, "resources/read", `{"uri":"a:"}`), `"contents":[]`)
			if stale := c.Status().Stale; stale != dead {
				t.Errorf("the server is dead: %t, and stale answers are served: %t", dead, stale)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Rejected credentials and the like never lead to a stale answer.
func TestCacheNotStaleFor(t *testing.T) {
	for _, kind := range []error{bridge.ErrCredentials, bridge.ErrDenied, bridge.ErrCancelled, bridge.ErrReplaced} {
		var err error
		f := &fake{answer: func(*conn, *bridge.Request, int) (string, error) { return tools("t"), err }}
		f.start(t, Options{Lists: time.Second}, Server{}, func(t *testing.T, c *Cache) {
			u := f.open(c, "")
			u.list(t)
			time.Sleep(2 * time.Second)
			err = &bridge.Error{Kind: kind, Public: "no"}
			bridgetest.Lacks(t, u.list(t), `"t"`)
			err = &bridge.Error{Kind: bridge.ErrUnavailable, Public: "no"}
			bridgetest.Contains(t, u.list(t), `"t"`)
		})
	}
}

// The entries take no more bytes than configured, and one answer no more than a quarter.
func TestCacheBytes(t *testing.T) {
	const bound = 64 << 10
	size := 1000
	f := &fake{answer: func(*conn, *bridge.Request, int) (string, error) { return tools(strings.Repeat("x", size)), nil }}
	f.start(t, Options{Bytes: bound, Lists: time.Hour}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "")
		for i := range 500 {
			u.call(t, "tools/list", fmt.Sprintf(`{"cursor":"%d"}`, i))
			if st := c.Status(); st.Bytes > bound || st.Bytes < int64(st.Entries*size) {
				t.Fatalf("%+v", st)
			}
		}
		before := f.times()
		u.call(t, "tools/list", `{"cursor":"499"}`)
		if f.times() != before {
			t.Error("the last one is not stored")
		}
		size = bound / 4
		for range 2 {
			u.call(t, "tools/list", `{"cursor":"large"}`)
		}
		if n := f.times(); n != before+2 {
			t.Errorf("it was asked %d times for an answer that is too large", n-before)
		}
		u.source.Replaced()
		if st := c.Status(); st.Entries != 0 || st.Bytes != 0 {
			t.Errorf("nothing is stored any more, and %+v", st)
		}
	})
}

// New options drop everything, also what was asked for under the old ones.
func TestCacheSet(t *testing.T) {
	f := &fake{modern: true, after: time.Second, answer: hinted(`"tools":[{"name":"t%d"}],"ttlMs":60000`)}
	f.start(t, Options{Shared: true}, Server{}, func(t *testing.T, c *Cache) {
		a, b := f.open(c, "a"), f.open(c, "b")
		bridgetest.Contains(t, a.list(t), `"t1"`)
		bridgetest.Contains(t, b.list(t), `"t1"`)
		c.Forget()
		first := a.later(t, t.Context(), `{}`)
		c.Set(Options{})
		bridgetest.Contains(t, b.list(t), `"t3"`)
		bridgetest.Contains(t, first(), `"t2"`)
		bridgetest.Contains(t, a.list(t), `"t4"`)
	})
}

// A request whose key is from before new options stores nothing.
func TestCacheSetBetween(t *testing.T) {
	f := &fake{}
	f.start(t, Options{Shared: true}, Server{}, func(t *testing.T, c *Cache) {
		u := f.open(c, "a")
		up := u.up.(*Cached)
		r := &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), From: u.from}
		k, _ := up.key(r, list.Tools, u.Server())
		c.Set(Options{})
		if _, err := up.list(t.Context(), r, k); err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, f.open(c, "b").list(t), `"t2"`)
	})
}
