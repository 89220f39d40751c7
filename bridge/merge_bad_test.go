package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, b *Bridge) {
		enter(t, b)
		began := time.Now()
		enter(t, b)
		if took := time.Since(began); took != greetPatience {
			t.Errorf("the second client's initialize took %v, want %v", took, greetPatience)
		}
	})
}

// When no server can be had, the second client is told so too.
func TestMergeNothingStays(t *testing.T) {
	no := &fake{before: func(context.Context, int) error {
		return &Error{Server: "x", Kind: ErrUnavailable, Public: "it could not be started"}
	}}
	all(t, []stock{{name: "a", prefix: "a__", f: no}, {name: "b", prefix: "b__", f: no}}, func(t *testing.T, b *Bridge) {
		for i := range 2 {
			_, a, err := b.Initialize(context.Background(), "", "x", "", nil, parse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+params+`}`))
			if err == nil || !strings.Contains(text(a), "it could not be started") {
				t.Errorf("client %d: Initialize = %s, %v", i+1, text(a), err)
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
	good.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" && !hangs {
			w.answer(m, toolList("a"))
		}
		return m.Method == "tools/list"
	}
	slow.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
		if m.Method == "tools/list" {
			time.AfterFunc(25*time.Second, func() { w.answer(m, toolList("s")) })
		}
		return m.Method == "tools/list"
	}
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, b *Bridge) {
		s, _, _ := enter(t, b)
		same(t, "at first", names(t, do(t, s, "1", "tools/list", `{}`)), []string{"good__a"})
		time.Sleep(30 * time.Second)
		hangs = true
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			s.Notify(parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`), nil)
		})
		same(t, "then", names(t, do(t, s, "2", "tools/list", `{}`)), []string{"slow__s"})
		if took := time.Since(began); took != listPatience {
			t.Errorf("the list took %v, want %v", took, listPatience)
		}
		time.Sleep(2 * time.Minute)
	})
	hangs = false
	all(t, []stock{{name: "good", prefix: "good__", f: good}, {name: "slow", prefix: "slow__", f: slow}}, func(t *testing.T, b *Bridge) {
		s, _, _ := enter(t, b)
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
	all(t, []stock{{name: "one", prefix: "one__", f: one}, {name: "two", prefix: "two__", f: two}}, func(t *testing.T, b *Bridge) {
		s, _, _ := enter(t, b)
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
		if got := do(t, s, "1", "tools/list", `{"cursor":"`+(&cursor{tools, map[string]*mark{"gone": {}}}).String()+`"}`); strings.Contains(got, `"error"`) {
			t.Errorf("the cursor of a server that is gone: %s", got)
		}
	})
}
