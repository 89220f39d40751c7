package aggregate_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Errors of one server leave its part of a list out. A cursor of one list is none of another.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := `{"code":-5,"message":"broken"}`
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"a"}],"nextCursor":"c"}`, "prompts/list": broken})
		two := newActor(t, "two", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "prompts/list": broken})
		s := play(t, true, one, two)
		next := cursorIn(t, s.call("tools/list", `{}`))
		for _, cursor := range []string{"bm9uZQ", next} {
			bridgetest.Contains(t, s.call("resources/list", `{"cursor":"`+cursor+`"}`), `"code":-32602,"message":"params.cursor is not a nextCursor of resources/list"`)
		}
		bridgetest.Contains(t, s.call("prompts/list", `{}`), `"message":"broken"`)
		one.set(func() { one.fails = errors.New("down") })
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"two__x"}]`)
		two.set(func() { two.fails = errors.New("down too") })
		bridgetest.Contains(t, s.call("tools/list", `{}`), "error: down")
		s.heard()
		two.set(func() { two.fails = nil })
		two.told()
		bridgetest.Contains(t, strings.Join(s.client.Got(), "\n"), "notifications/tools/list_changed", "notifications/resources/list_changed")
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"tools":[{"name":"two__x"}]`)
		s.end()
	})
}

// Two servers with the same user interface: a warning says once that the tools of one show that of the other.
func TestSameInterface(t *testing.T) {
	var log bytes.Buffer
	uis := map[string]string{"resources/list": `{"resources":[{"uri":"ui://widget/main"},{"uri":"both:1"}]}`}
	one, two := newActor(t, "one", era.Rev20251125, caps, uis), newActor(t, "two", era.Rev20251125, caps, uis)
	one.Log = slog.New(slog.NewTextHandler(&log, nil))
	two.Log = one.Log
	s := play(t, true, one, two)
	for range 2 {
		bridgetest.Contains(t, s.call("resources/list", `{}`), `"resources":[{"uri":"ui://widget/main"},{"uri":"both:1"}]`)
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "uri=ui://widget/main earlier=one") {
		t.Errorf("the log: %s", got)
	}
	s.end()
}

// A list that goes in a circle is cut off, and the log says so once as a warning.
func TestCutOff(t *testing.T) {
	var log bytes.Buffer
	one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{
		"tools/list":   `{"tools":[{"name":"a"}],"nextCursor":"c"}`,
		"tools/list c": `{"tools":[{"name":"b"}],"nextCursor":"c"}`,
	}).logged(&log)
	s := play(t, true, one)
	for i := range 2 {
		log.Reset()
		next := cursorIn(t, s.call("tools/list", `{}`))
		next = cursorIn(t, s.call("tools/list", `{"cursor":"`+next+`"}`))
		same(t, "the page that was there before", s.call("tools/list", `{"cursor":"`+next+`"}`), `{"jsonrpc":"2.0","result":{"tools":[]}}`)
		bridgetest.Contains(t, log.String(), "level="+[]string{"WARN", "DEBUG"}[i]+` msg="list cut off"`)
	}
	s.end()
}
