package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Clients see other servers at once: lists change, old prefixes still work, and subscriptions move.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]string{
			"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{"by":"it"}`, "resources/list": `{"resources":[{"uri":"a:1"}]}`,
			"resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
		}
		one, two := newActor(t, "one", era.Rev20251125, caps, results), newActor(t, "two", era.Rev20251125, `{"tools":{}}`, results)
		s := play(t, true, one, two)
		s.call("resources/subscribe", `{"uri":"a:1"}`)
		changed := newActor(t, "one", era.Rev20251125, caps, results)
		changed.Prefix = "new__"
		leave := s.serve(changed)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed", "notifications/resources/list_changed")
		bridgetest.Contains(t, changed.lines(), `resources/subscribe {"uri":"a:1"}`)
		s.serve(changed) // it stays, and its subscription with it
		bridgetest.Lacks(t, changed.lines(), "resources/subscribe")
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"new__x"}]`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"two__x"}`), "-32602")
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), `"by":"it"`)
		time.Sleep(6 * time.Minute)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), "-32602")
		if one.Closed() != 0 {
			t.Error("the removed server's connection was closed before its time")
		}
		leave(t.Context(), one.Server)
		if one.Closed() != 1 || changed.Closed() != 0 {
			t.Errorf("closed %d and %d times", one.Closed(), changed.Closed())
		}
		s.end()
	})
}

// A server with another prefix keeps its connection. The client hears of it, and the old names still work.
func TestSetPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{"by":"it"}`}
		one, two := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, results), newActor(t, "two", era.Rev20251125, `{"tools":{}}`, results)
		s := play(t, true, one, two)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"one__x"`)
		one.Prefix = "new__"
		leave := s.serve(one, two)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"new__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"new__x"`)
		three := newActor(t, "three", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"y"}]}`, "tools/call": `{"by":"three"}`})
		three.Prefix = "one__" // which is not the first one's any more
		s.serve(one, two, three)
		for _, name := range []string{"one__y", "one__x"} {
			bridgetest.Contains(t, s.call("tools/call", `{"name":"`+name+`"}`), `"by":"three"`)
		}
		s.serve(one, two)
		time.Sleep(6 * time.Minute)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"one__x"}`), "-32602")
		for n := range 9 { // only so many old prefixes are kept
			one.Prefix = fmt.Sprint(n, "__")
			s.serve(one, two)
		}
		bridgetest.Contains(t, s.call("tools/call", `{"name":"0__x"}`), `"by":"it"`)
		bridgetest.Contains(t, s.call("tools/call", `{"name":"new__x"}`), "-32602")
		leave(t.Context(), one.Server)
		if one.Closed() != 0 || two.Closed() != 0 {
			t.Errorf("closed %d and %d times", one.Closed(), two.Closed())
		}
		s.end()
	})
}

// A name that clients could not use is made again, and a hidden name is unknown.
func TestNames(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"odd name"}]}`, "tools/call": `{"by":"one"}`})
	s := play(t, true, one)
	odd := gjson.Get(s.call("tools/list", `{}`), "result.tools.0.name").Str
	bridgetest.Contains(t, odd, "one__odd_name_")
	one.Got()
	bridgetest.Contains(t, s.call("tools/call", `{"name":"`+odd+`"}`), `"by":"one"`)
	same(t, "the server got", one.lines(), `tools/call {"name":"odd name"}`)
	bridgetest.Contains(t, s.call("tools/call", `{"name":"one__secret"}`), `-32602`)
	s.end()
}

// Without prefixes the first server has a name that both have, and the other's is made with the server's name.
func TestConflictingNames(t *testing.T) {
	tools := map[string]string{"tools/list": `{"tools":[{"name":"x"},{"name":"b_y"}]}`, "tools/call": `{}`}
	one, two, three := newActor(t, "one", era.Rev20251125, caps, tools), newActor(t, "two", era.Rev20251125, caps, tools), newActor(t, "three", era.Rev20251125, caps, tools)
	one.Prefix, two.Prefix, three.Prefix = "", "", "b_"
	s := play(t, true, one, two, three)
	bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"x"},{"name":"one__b_y"},{"name":"two__x"},{"name":"two__b_y"},{"name":"b_x"},{"name":"b_b_y"}]`)
	for name, want := range map[string]string{"x": `1 {"name":"x"}`, "one__b_y": `1 {"name":"b_y"}`, "two__x": `2 {"name":"x"}`, "b_b_y": `3 {"name":"b_y"}`} {
		for _, a := range []*actor{one, two, three} {
			a.Got()
		}
		s.call("tools/call", `{"name":"`+name+`"}`)
		got := ""
		for i, a := range []*actor{one, two, three} {
			for _, line := range a.Got() {
				if rest, ok := strings.CutPrefix(line, "tools/call "); ok {
					got = string(rune('1'+i)) + " " + rest
				}
			}
		}
		same(t, name, got, want)
	}
	s.end()
}
