package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// hang is what happens in the opening of a server that never gets ready.
func hang(ctx context.Context, _ int) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A client is not kept waiting by the one server of which nothing is known yet.
func TestMergeGreetsWithWhatIsKnown(t *testing.T) {
	good, slow := shop("good", nil), shop("slow", nil)
	slow.before = hang
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, g *gateway) {
		enter(t, g)
		began := time.Now()
		enter(t, g)
		if took := time.Since(began); took != greetPatience {
			t.Errorf("the second client's initialize took %v, want %v", took, greetPatience)
		}
	})
}

// When no server can be had, the second client is told so too.
func TestMergeNothingStays(t *testing.T) {
	no := &fake{before: func(context.Context, int) error {
		return &bridge.Error{Server: "x", Kind: bridge.ErrUnavailable, Public: "it could not be started"}
	}}
	all(t, []stock{{name: "a", prefix: "a__", f: no}, {name: "b", prefix: "b__", f: no}}, func(t *testing.T, g *gateway) {
		for i := range 2 {
			_, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+bridgetest.InitializeParams+`}`), SessionOptions{ID: "x"})
			if err == nil || !strings.Contains(bridgetest.Text(m), "it could not be started") {
				t.Errorf("client %d: Initialize = %s, %v", i+1, bridgetest.Text(m), err)
			}
			synctest.Wait()
		}
	})
}

// A page that came late is shown though nothing else can be had, and does not
// wait for the slow.
func TestMergeLatePageCounts(t *testing.T) {
	good, slow := shop("good", nil), shop("slow", nil)
	var hangs bool
	good.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" && !hangs {
			f.answer(m, toolList("a"))
		}
		return m.Method == "tools/list"
	}
	slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			time.AfterFunc(25*time.Second, func() { f.answer(m, toolList("s")) })
		}
		return m.Method == "tools/list"
	}
	all(t, []stock{{name: "good", prefix: "good__", f: good, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}, {name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		same(t, "at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		hangs = true
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`), nil)
		})
		same(t, "then", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"slow__s"})
		if took := time.Since(began); took != listPatience {
			t.Errorf("the list took %v, want %v", took, listPatience)
		}
		time.Sleep(2 * time.Minute)
	})
	hangs = false
	all(t, []stock{{name: "good", prefix: "good__", f: good, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}, {name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		same(t, "at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
		time.Sleep(30 * time.Second)
		good.before = func(context.Context, int) error { return errors.New("no") }
		good.wire(good.opened()).die()
		synctest.Wait()
		same(t, "then", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"slow__s"})
	})
}

// While no server can be had, no list is empty.
func TestMergeNoEmptyList(t *testing.T) {
	one, two := shop("one", map[string]string{"tools/list": toolList("a")}), shop("two", map[string]string{"tools/list": toolList("b")})
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		for _, f := range []*fake{one, two} {
			f.before = func(context.Context, int) error { return errors.New("no") }
			f.wire(1).die()
		}
		synctest.Wait()
		for range 2 {
			if got := do(t, s, "1", "tools/list", `{}`); !strings.Contains(got, `"error"`) {
				t.Errorf("the list: %s", got)
			}
		}
		if got := do(t, s, "1", "tools/list", `{"cursor":"`+base64.RawURLEncoding.EncodeToString([]byte(`{"k":0,"at":{"gone":{"c":""}}}`))+`"}`); strings.Contains(got, `"error"`) {
			t.Errorf("the cursor of a server that is gone: %s", got)
		}
	})
}

// A page after the first that takes too long is asked for again with the same
// cursor: nothing is missing in the end.
func TestMergeSlowLaterPage(t *testing.T) {
	good, slow := shop("good", nil), shop("slow", nil)
	pages := func(pause time.Duration) func(f *fakeWire, m *jsonrpc.Message) bool {
		return func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/list" {
				return false
			}
			if !strings.Contains(string(m.Params), "cursor") {
				f.answer(m, `{"tools":[{"name":"first"}],"nextCursor":"2"}`)
			} else {
				time.AfterFunc(pause, func() { f.answer(m, toolList("second")) })
			}
			return true
		}
	}
	good.serve, slow.serve = pages(0), pages(25*time.Second)
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		var got []string
		for params := `{}`; ; {
			a := do(t, s, "1", "tools/list", params)
			got = append(got, names(t, a)...)
			next := gjson.Get(a, "result.nextCursor")
			if !next.Exists() {
				break
			}
			params = `{"cursor":` + next.Raw + `}`
		}
		same(t, "tools", got, []string{"good__first", "slow__first", "good__second", "slow__second"})
		same(t, "again", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__first", "slow__first"})
		time.Sleep(time.Minute)
	})
}

// A page that came late is not shown when the server has said since that the
// list is another one.
func TestMergeLatePageGoesStale(t *testing.T) {
	good, slow := shop("good", map[string]string{"tools/list": toolList("a")}), shop("slow", nil)
	tool, pause := "old", 25*time.Second
	slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			list := toolList(tool)
			time.AfterFunc(pause, func() { f.answer(m, list) })
		}
		return m.Method == "tools/list"
	}
	for _, changed := range []time.Duration{5 * time.Second, 30 * time.Second} { // before the page comes, and after
		tool, pause = "old", 25*time.Second
		all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, g *gateway) {
			s, _, _ := enter(t, g)
			same(t, "at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
			time.Sleep(changed)
			synctest.Wait()
			tool, pause = "new", 0
			slow.wire(slow.opened()).say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			time.Sleep(time.Minute)
			same(t, "then", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"good__a", "slow__new"})
		})
	}
}

// A request is not read any more when its call has returned.
func TestMergeCancelledListIsLeftAlone(t *testing.T) {
	one, two := shop("one", nil), shop("two", nil)
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 100 {
			m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":1}}`)
			_, _ = s.bindings.Current().Chain.Call(ctx, &bridge.Request{Message: m, From: s.caller})
			m.Release()
		}
	})
}

// A server that cannot be had does not keep another one's resource from being
// read, nor do servers that do not answer.
func TestMergeReadsPastTheBad(t *testing.T) {
	one := shop("one", map[string]string{"resources/list": `{"resources":[{"uri":"file:1"}]}`})
	two := shop("two", map[string]string{"resources/list": `{"resources":[{"uri":"file:2"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`})
	mute := shop("mute", nil)
	mute.serve = func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method != "initialize" }
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		do(t, s, "1", "resources/list", `{}`)
		one.before = func(context.Context, int) error {
			return &bridge.Error{Server: "one", Kind: bridge.ErrUnavailable, Public: "it is gone"}
		}
		one.wire(1).die()
		synctest.Wait()
		if got := do(t, s, "2", "resources/read", `{"uri":"file:unlisted"}`); gjson.Get(got, "result.by").Str != "two" {
			t.Errorf("read: %s", got)
		}
		two.before = one.before
		two.wire(1).die()
		synctest.Wait()
		if got := do(t, s, "3", "resources/read", `{"uri":"file:unlisted"}`); !strings.Contains(got, "it is gone") {
			t.Errorf("read: %s", got)
		}
	})
	all(t, []stock{{name: "mute", f: mute}, {name: "two", f: two}}, func(t *testing.T, g *gateway) {
		two.before = nil
		s, _, _ := enter(t, g)
		for _, test := range []struct{ method, params string }{
			{"resources/read", `{"uri":"file:2"}`},
			{"resources/read", `{"uri":"file:unlisted"}`},
			{"tools/call", `{"name":"t"}`},
			{"logging/setLevel", `{"level":"info"}`},
		} {
			p := start(t, s, `{"jsonrpc":"2.0","id":9,"method":"`+test.method+`","params":`+test.params+`}`)
			time.Sleep(listPatience)
			if !p.over() {
				t.Errorf("%s %s waits for a server that does not answer", test.method, test.params)
				s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`), nil)
				<-p.done
			}
		}
	})
}

// The next call to a server that has ended for good tells it the subscriptions
// again, before anything else.
func TestMergeSubscribesAnew(t *testing.T) {
	one, two := shop("one", map[string]string{"resources/list": `{"resources":[{"uri":"a:1"},{"uri":"a:2"}]}`}), shop("two", nil)
	all(t, []stock{{name: "one", prefix: "one__", f: one, o: ServerOptions{EndWithServer: true, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}}}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, g *gateway) {
		s, _, _ := enter(t, g)
		do(t, s, "1", "resources/subscribe", `{"uri":"a:1"}`)
		do(t, s, "1", "resources/subscribe", `{"uri":"a:2"}`)
		one.wire(1).die()
		synctest.Wait()
		do(t, s, "1", "resources/unsubscribe", `{"uri":"a:2"}`)
		do(t, s, "2", "resources/list", `{}`)
		do(t, s, "3", "resources/list", `{}`)
		got := strings.Join(one.wire(2).received(), "\n")
		if strings.Count(got, `"resources/subscribe","params":{"uri":"a:1"}`) != 1 || strings.Count(got, `"resources/subscribe"`) != 1 || strings.Index(got, "subscribe") > strings.Index(got, "list") {
			t.Errorf("the server was told\n%s", got)
		}
	})
}

// A slow server's list is waited for once. Sessions after that get the others' at
// once, with what the slow one listed last, and are told when that is not true any
// more; so are clients without sessions that listen.
func TestMergeWaitsOnce(t *testing.T) {
	good := shop("good", map[string]string{"tools/list": toolList("a")})
	slow, tools, delay := shop("slow", nil), atomic.Pointer[string]{}, atomic.Int64{}
	first := toolList("s")
	tools.Store(&first)
	delay.Store(int64(12 * time.Second))
	changed := func(st *stream) int { return strings.Count(strings.Join(st.take(), ""), "tools/list_changed") }
	slow.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			a := *tools.Load()
			time.AfterFunc(time.Duration(delay.Load()), func() { f.answer(m, a) })
			return true
		}
		return false
	}
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Lists: time.Millisecond}}}}}, func(t *testing.T, g *gateway) {
		list := func(s *sitting) ([]string, time.Duration) {
			began := time.Now()
			return names(t, do(t, s, "1", "tools/list", `{}`)), time.Since(began)
		}
		for i := range 7 {
			s, st, _ := enter(t, g)
			got, took := list(s)
			switch {
			case i == 0 && took != listPatience, i > 0 && took != slowPatience:
				t.Errorf("session %d waited %v", i, took)
			case i == 0:
				same(t, "the first list", got, []string{"good__a"})
			default:
				same(t, "a later list", got, []string{"good__a", "slow__s"})
			}
			time.Sleep(time.Minute)
			if n := changed(st); n != map[bool]int{true: 1, false: 0}[i == 0] {
				t.Errorf("session %d was told %d times that the list has changed", i, n)
			}
			if i == 0 {
				got, _ := list(s)
				same(t, "the list of the first after that", got, []string{"good__a", "slow__s"})
			}
		}
		second := toolList("s", "t")
		tools.Store(&second)
		s, st, _ := enter(t, g)
		got, took := list(s)
		same(t, "what was known", got, []string{"good__a", "slow__s"})
		time.Sleep(time.Minute)
		if n := changed(st); took != slowPatience || n != 1 {
			t.Errorf("it took %v, and the client was told %d times of what is new", took, n)
		}
		got, _ = list(s)
		same(t, "what is new", got, []string{"good__a", "slow__s", "slow__t"})
		delay.Store(0) // it is well again
		s, _, _ = enter(t, g)
		list(s)
		time.Sleep(time.Minute)
		delay.Store(int64(time.Second))
		s, _, _ = enter(t, g)
		if got, took := list(s); took != time.Second {
			t.Errorf("a server that is well again was not waited for: %v, %q", took, got)
		}
	})
	// Without sessions.
	delay.Store(int64(12 * time.Second))
	tools.Store(&first)
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow, o: ServerOptions{ServerSettings: ServerSettings{Cache: cache.Options{Lists: time.Millisecond}}}}}, func(t *testing.T, g *gateway) {
		v := visitor{}.ask(t, g, `"l"`, era.Listen, `"notifications":{"toolsListChanged":true}`)
		time.Sleep(time.Minute)
		v.take()
		for i := range 3 {
			began := time.Now()
			got := names(t, visitor{}.call(t, g, "tools/list", ""))
			if took := time.Since(began); i == 0 && took != listPatience || i > 0 && took > slowPatience { // the page that came late is there at once
				t.Errorf("request %d took %v", i, took)
			}
			if i > 0 {
				same(t, "a later list", got, []string{"good__a", "slow__s"})
			}
			time.Sleep(time.Minute)
			if n := changed(&v.stream); n != map[bool]int{true: 1, false: 0}[i == 0] {
				t.Errorf("after request %d the listener was told %d times", i, n)
			}
		}
		v.cancel(bridge.ErrCancelled)
		<-v.done
	})
}
