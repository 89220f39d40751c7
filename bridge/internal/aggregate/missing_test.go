package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// logged returns a server that writes its log to the buffer.
func (a *actor) logged(to *bytes.Buffer) *actor {
	a.Log = slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return a
}

// lacks returns what the sessions' lists of tools lack.
func (s *stage) lacks() (all []string) {
	s.all.Lacking(func(server, why string) { all = append(all, server+": "+why) })
	return all
}

// A list says which servers it lacks, and why. The log warns when a server begins to be lacking; the aggregate knows it
// until the next list of tools has the server.
func TestMissing(t *testing.T) {
	const missing = `"dev.mcp-bridge/missing":[{"server":"two","why":"`
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		one := newActor(t, "one", era.Rev20251125, `{"tools":{},"prompts":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "prompts/list": `{"prompts":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{},"prompts":{}}`, map[string]string{}).logged(&log)
		s := play(t, true, one, two)
		for i, tc := range []struct {
			name   string
			opened bool
			answer string
			after  time.Duration
			want   string
			lacks  string
			level  string
		}{
			{"starting", false, "", 20 * time.Second, missing + `it is still starting"`, "two: it is still starting", "WARN"},
			{"starting still", false, "", 20 * time.Second, missing + `it has not answered in time"`, "two: it has not answered in time", "DEBUG"},
		} {
			log.Reset()
			began := time.Now()
			done := s.ask("tools/list", `{}`)
			if i == 0 {
				two.Next() // and is not asked again
			}
			bridgetest.Contains(t, <-done, `"tools":[{"name":"one__x"}]`, tc.want)
			if took := time.Since(began); took != tc.after {
				t.Errorf("%s: it took %v", tc.name, took)
			}
			same(t, tc.name, strings.Join(s.lacks(), ", "), tc.lacks)
			bridgetest.Contains(t, log.String(), "level="+tc.level+` msg="left out of the list of all servers" method=tools/list`)
		}
		s.end()

		log.Reset()
		two.results["tools/list"] = `{"code":-5,"message":"broken"}`
		s = play(t, true, one, two)
		bridgetest.Contains(t, s.call("tools/list", `{}`), missing+`it answered with an error"`)
		same(t, "after an error", strings.Join(s.lacks(), ", "), "two: it answered with an error")
		two.results["prompts/list"] = `{"code":-5,"message":"broken"}`
		two.results["tools/list"] = `{"tools":[]}`
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		bridgetest.Contains(t, s.call("prompts/list", `{}`), missing)
		same(t, "with all tools, and without prompts", strings.Join(s.lacks(), ", "), "")
		log.Reset()
		two.results["tools/list"] = `{"code":-32601,"message":"none"}`
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		bridgetest.Contains(t, log.String(), `level=WARN msg="left out of the list of all servers" method=tools/list`)
		s.end()

		// One that fails is lacking at once, and in the next lists, until it works again.
		two.results["tools/list"] = `{"tools":[{"name":"y"}]}`
		two.set(func() { two.fails = &bridge.Error{Kind: bridge.ErrUnavailable, Public: "it is down"} })
		s = play(t, true, one, two)
		for range 2 {
			log.Reset()
			bridgetest.Contains(t, s.call("tools/list", `{}`), `"why":"it is down"`)
			same(t, "while it is down", strings.Join(s.lacks(), ", "), "two: it is down")
		}
		bridgetest.Contains(t, log.String(), `msg="left out of the list of all servers" method=tools/list err=`)
		same(t, "unknown", s.call("tools/call", `{"name":"z"}`), `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: z (these servers do not work now: two)"}}`)
		two.set(func() { two.fails = nil })
		two.told()
		bridgetest.Lacks(t, s.call("tools/list", `{}`), "missing")
		same(t, "when it works", strings.Join(s.lacks(), ", "), "")
		same(t, "unknown", s.call("tools/call", `{"name":"z"}`), `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Unknown tool: z"}}`)
		s.end()
	})
}

// A list that took long is waited for only shortly the next time, with its last page in its place, until it is quick again
// or has changed.
func TestSlowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, nil)
		s := play(t, true, one, two)
		list := func(takes time.Duration, page string, want string, waits time.Duration) {
			t.Helper()
			began := time.Now()
			done := s.ask("tools/list", `{}`)
			c := two.Next()
			c.Opened()
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				time.Sleep(takes)
				c.Answer(t, `{"tools":[{"name":"`+page+`"}]}`)
			}()
			got := <-done
			if took := time.Since(began); took != waits || !strings.Contains(got, want) {
				t.Errorf("%s after %v, want %s after %v", got, took, want, waits)
			}
			<-answered
			synctest.Wait()
		}
		list(3*time.Second, "a", "two__a", 3*time.Second)
		list(3*time.Second, "a", "two__a", 250*time.Millisecond)
		same(t, "the client got", s.heard(), "") // it has that page
		list(100*time.Millisecond, "b", "two__b", 100*time.Millisecond)
		list(3*time.Second, "c", "two__c", 3*time.Second) // it was quick
		list(3*time.Second, "d", "two__c", 250*time.Millisecond)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		two.to.Notify(bridgetest.Notification(t, "notifications/prompts/list_changed", ""))
		began := time.Now()
		bridgetest.Contains(t, s.call("tools/list", `{}`), "two__d") // which came late
		if took := time.Since(began); took != 0 {
			t.Errorf("a page that is there took %v", took)
		}
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		list(3*time.Second, "e", "two__e", 3*time.Second)
		s.end()
	})
}

// A page that comes late is shown once, and not if the list has changed since, nor does a request that its client cancelled
// go on.
func TestLatePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`})
		two := newActor(t, "two", era.Rev20251125, `{"tools":{}}`, nil)
		s := play(t, true, one, two)
		done := s.ask("tools/list", `{}`)
		c := two.Next()
		c.Opened()
		<-done
		two.to.Notify(bridgetest.Notification(t, "notifications/tools/list_changed", ""))
		s.heard()
		c.Answer(t, `{"tools":[{"name":"stale"}]}`)
		same(t, "the client got", s.heard(), "")
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		bridgetest.Lacks(t, <-done, "stale")
		c.Answer(t, `{"tools":[{"name":"late"}]}`)
		bridgetest.Contains(t, s.heard(), "notifications/tools/list_changed")
		bridgetest.Contains(t, s.call("tools/list", `{}`), "two__late")

		// One that fails late is left out of the next list.
		done = s.ask("tools/list", `{}`)
		c = two.Next()
		c.Opened()
		<-done
		c.Fail(&bridge.Error{Kind: bridge.ErrLost, Public: "it died"})
		synctest.Wait()
		two.Got()
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"why":"it died"`)
		same(t, "the server that failed got", two.lines(), "")
		two.told()
		s.heard()

		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := s.up.Call(ctx, bridgetest.Request(t, s.from, s.client, "tools/list", `{}`))
			ended <- err
		}()
		c = two.Next()
		cancel(bridge.ErrCancelled)
		if err := <-ended; !errors.Is(err, bridge.ErrCancelled) {
			t.Errorf("cancelled: %v", err)
		}
		<-c.Ctx.Done()
		s.end()
	})
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

func cursorIn(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `"nextCursor":"`)
	if !ok {
		t.Fatalf("no cursor in %s", page)
	}
	next, _, _ := strings.Cut(rest, `"`)
	return next
}

// A message of a server that names no call goes to the only call in flight. With none or several, it goes to the session.
func TestMessagesBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, nil)
		s := play(t, true, one)
		call := func(back bridge.Client) *bridgetest.Call {
			go func() {
				_, _ = s.up.Call(t.Context(), bridgetest.Request(t, s.from, back, "tools/call", `{"name":"one__x"}`))
			}()
			return one.Next()
		}
		says := func(what string) {
			one.to.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"info","data":"`+what+`"}`))
			one.to.Notify(bridgetest.Notification(t, "notifications/resources/updated", `{"uri":"`+what+`"}`))
			one.to.Ask(bridgetest.Question(t, "roots/list", `{"of":"`+what+`"}`), func(*jsonrpc.Message) {})
		}
		about := func(what string) string {
			return `notifications/message {"level":"info","data":"` + what + `"}|notifications/resources/updated {"uri":"` + what + `"}|asked roots/list {"of":"` + what + `"}`
		}
		var first, second bridgetest.Client
		a := call(&first)
		says("one call")
		same(t, "the call got", strings.Join(first.Got(), "|"), `notifications/message {"level":"info","data":"one call"}|asked roots/list {"of":"one call"}`)
		same(t, "the session got", s.heard(), `notifications/resources/updated {"uri":"one call"}`)
		b := call(&second)
		says("two calls")
		same(t, "the calls got", strings.Join(append(first.Got(), second.Got()...), "|"), "")
		same(t, "the session got", strings.ReplaceAll(s.heard(), "\n", "|"), about("two calls"))
		a.Answer(t, `{}`)
		b.Answer(t, `{}`)
		synctest.Wait()
		says("no call")
		same(t, "the session got", strings.ReplaceAll(s.heard(), "\n", "|"), about("no call"))
		s.end()
	})
}

// A subscription that was ended is not made again over the next connection. One that was not is, once, and its resource may
// have changed meanwhile.
func TestSubscribedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, caps, map[string]string{
			"resources/list": `{"resources":[{"uri":"a:1"},{"uri":"a:2"}]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "resources/subscribe": `{}`,
			"resources/unsubscribe": `{}`, "tools/call": `{}`,
		})
		s := play(t, true, one)
		for _, uri := range []string{"a:1", "a:2"} {
			s.call("resources/subscribe", `{"uri":"`+uri+`"}`)
		}
		s.call("resources/unsubscribe", `{"uri":"a:2"}`)
		one.to.Gone(bridge.ErrLost)
		s.heard()
		one.Got()
		s.call("tools/call", `{"name":"one__x"}`)
		same(t, "the server got", one.lines(), "resources/subscribe {\"uri\":\"a:1\"}\ntools/call {\"name\":\"x\"}")
		same(t, "the client got", s.heard(), `notifications/resources/updated {"uri":"a:1"}`)
		s.call("tools/call", `{"name":"one__x"}`)
		same(t, "the server got", one.lines(), `tools/call {"name":"x"}`)
		s.end()
	})
}

// When all servers fail, each client gets the error. A server without a kind of list gets no request for it.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newActor(t, "one", era.Rev20251125, `{"tools":{}}`, map[string]string{"prompts/list": `{"prompts":[]}`, "tools/list": `{"tools":[{"name":"a0 z9"}],"_meta":{"k":1}}`})
		silent := newActor(t, "silent", era.Rev20251125, `{}`, map[string]string{"prompts/list": `{"prompts":[]}`})
		for _, known := range []bool{true, false} { // that it fails
			one.set(func() { one.fresh, one.fails = true, errors.New("one is down") })
			if !known {
				one.set(func() { one.fails = nil })
				one.Serve = func(*bridge.Request) *jsonrpc.Message { return nil }
			}
			s := play(t, true, one)
			done := s.ask("initialize", bridgetest.InitializeParams)
			if !known {
				one.Next().Fail(errors.New("one is down"))
			}
			bridgetest.Contains(t, <-done, "one is down")
			s.end()
		}
		one.Serve = func(r *bridge.Request) *jsonrpc.Message { return one.serve(t, r) }
		one.set(func() { one.fresh, one.fails = false, nil })
		s := play(t, true, one, silent)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"name":"one__a0_z9_`)
		one.Got()
		silent.Got()
		bridgetest.Contains(t, s.call("prompts/list", `{}`), `"prompts":[]`)
		same(t, "the server without prompts got", one.lines(), "")
		same(t, "the server that announces nothing got", silent.lines(), "prompts/list {}")
		s.end()
		s = play(t, false, one)
		bridgetest.Contains(t, s.call("tools/list", `{}`), `"k":1`, `"io.modelcontextprotocol/serverInfo":{"name":"bridge"}`)
		s.end()
	})
}

// A session that has listed nothing finds the names of servers without a prefix.
func TestNamesUnlisted(t *testing.T) {
	one := newActor(t, "one", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"x"}]}`, "tools/call": `{}`})
	two := newActor(t, "two", era.Rev20251125, caps, map[string]string{"tools/list": `{"tools":[{"name":"y"}]}`, "tools/call": `{}`})
	one.Prefix, two.Prefix = "", ""
	s := play(t, true, one, two)
	s.call("tools/call", `{"name":"y"}`)
	bridgetest.Contains(t, two.lines(), `tools/call {"name":"y"}`)
	bridgetest.Lacks(t, one.lines(), "tools/call")
	s.end()
}
