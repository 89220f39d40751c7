package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// eventsOf returns the events of a stream as TYPE DATA.
func eventsOf(r *wiretest.Reply) (all []string) {
	for _, e := range r.Events() {
		all = append(all, e.Type+" "+e.Data)
	}
	return all
}

// has reports whether one of the texts has all of the parts.
func has(all []string, parts ...string) bool {
	for _, one := range all {
		n := 0
		for _, p := range parts {
			if strings.Contains(one, p) {
				n++
			}
		}
		if n == len(parts) {
			return true
		}
	}
	return false
}

// look opens a stream of events.
func (r *rig) look(key, query string, header ...string) *wiretest.Reply {
	a := r.Do("GET", "/ui/api/v1/events?"+query, "", append(header, "X-API-Key", key)...)
	synctest.Wait()
	return a
}

// act is a POST of an operator to the API.
func (r *rig) act(path, body string) (int, string) {
	w := r.ask("POST", "/ui/api/v1/"+path, body, "X-API-Key", opsKey)
	return w.Code, w.Body.String()
}

// join begins a session with a key.
func (r *rig) join(key, path string) (session string) {
	r.t.Helper()
	code, id := r.as(key, path, "", initialize)
	if code != 200 {
		r.t.Fatal(code, id)
	}
	return id
}

// toldOf fails the test unless, for each list of parts, one of the events has all of the parts.
func toldOf(t *testing.T, what string, got []string, wants ...[]string) {
	t.Helper()
	for _, want := range wants {
		if !has(got, want...) {
			t.Errorf("%s is not told of %q:\n%s", what, want, strings.Join(got, "\n"))
		}
	}
}

// Events are written every 100 ms, however many there are: each write has its price, which calls pay.
func TestAdminEventsTogether(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		page := r.look(opsKey, "topics=calls")
		id := r.join(oneKey, "/one/mcp")
		time.Sleep(time.Second)
		calls := func() (events int) {
			for range 20 {
				r.as(oneKey, "/one/mcp", id, call("1", "echo"))
			}
			synctest.Wait()
			return len(eventsOf(page))
		}
		first, second := calls(), calls()
		if first != second {
			t.Errorf("%d events, and %d at the same time", first, second)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := eventsOf(page); len(got) < second+20 || has(got, "dropped ") {
			t.Errorf("%d events, and %d after a pause", second, len(got))
		}
	})
}

// A page that looks is told what happens of what its caller may see, until that one may
// not look any more (O-040).
func TestAdminEvents(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			key, topics string
			want        int
		}{{newKey, "calls", 401}, {devKey, "log", 403}, {sinKey, "log", 403}} {
			if a := r.look(tc.key, "topics="+tc.topics).Wait(); a.Status() != tc.want {
				t.Errorf("%q asks for %q: %d %s", tc.key, tc.topics, a.Status(), a.Body())
			}
		}
		if a := r.Do("GET", "/ui/api/v1/events?topics=calls", "").Wait(); a.Status() != 401 {
			t.Errorf("without a key: %d", a.Status())
		}
		if a := r.look(opsKey, "topics=calls", "Origin", "http://localhost:3000").Wait(); a.Status() != 403 {
			t.Errorf("another page: %d", a.Status())
		}

		mine, all, ops := r.look(devKey, "topics=servers,calls,sessions"), r.look(sinKey, "topics=servers,calls,sessions"), r.look(opsKey, "topics=log")
		id := r.join(oneKey, "/one/mcp")
		x := r.Do("POST", "/one/mcp", call("1", "wait"), "X-API-Key", oneKey, "Mcp-Session-Id", id)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		toldOf(t, "who may look", eventsOf(all),
			[]string{"snapshot ", `"under_way":[]`, `"sessions":`, `"servers":`}, []string{"call.begin ", `"name":"wait"`, `"principal":"one"`}, []string{"call.end ", `"method":"initialize"`},
			[]string{"sessions ", `"principal":"one"`}, []string{"status ", `"name":"one"`, `"sessions":1`})
		toldOf(t, "an operator", eventsOf(ops), []string{"log ", "session began"})
		if has(eventsOf(all), `"name":"two"`, "status ") {
			t.Error("what has not changed is told again")
		}
		if got := eventsOf(mine); has(got, "call.") || has(got, `"principal":"one"`) || !has(got, "snapshot ") {
			t.Errorf("what is of others is told:\n%s", strings.Join(got, "\n"))
		}

		// each tries what only some may do, and returns the answers.
		each := func(what, path string, wants map[string]int, keys ...string) {
			t.Helper()
			for _, key := range keys {
				if w := r.ask("POST", "/ui/api/v1/"+path, "{}", "X-API-Key", key); w.Code != wants[key] {
					t.Errorf("%s %s: %d %s", key, what, w.Code, w.Body)
				}
			}
		}
		// Another caller does not see the call, nor end it; a viewer sees it; an operator ends it.
		if w := r.ask("GET", "/ui/api/v1/calls", "", "X-API-Key", devKey); strings.Contains(w.Body.String(), "wait") {
			t.Errorf("another caller sees it: %s", w.Body)
		}
		underWay := func() string {
			t.Helper()
			var shown struct {
				Under []struct{ ID, Name string } `json:"under_way"`
			}
			if r.read("GET", "calls", "", sinKey, 200, &shown); len(shown.Under) != 1 || shown.Under[0].Name != "wait" {
				t.Fatalf("%+v", shown)
			}
			return shown.Under[0].ID
		}
		each("cancels", "calls/"+underWay()+"/cancel", map[string]int{devKey: 404, sinKey: 403, opsKey: 200}, devKey, sinKey, opsKey)
		if r := x.Wait(); !strings.Contains(r.Body(), "an operator cancelled the call") {
			t.Errorf("the client is told: %s", r.Body())
		}
		synctest.Wait()
		toldOf(t, "who may look", eventsOf(all), []string{"call.end ", `"outcome":"cancelled"`})
		body, header := modernCall("tools/call", `"name":"wait","arguments":{},`) // without a session: likewise
		x = r.Do("POST", "/one/mcp", body, append(header, "Mcp-Name", "wait", "X-API-Key", oneKey)...)
		synctest.Wait()
		each("cancels", "calls/"+underWay()+"/cancel", map[string]int{opsKey: 200}, opsKey)
		if r := x.Wait(); !strings.Contains(r.Body(), "an operator cancelled the call") {
			t.Errorf("the client without a session got %s", r.Body())
		}

		// The session: likewise; and its own caller may end it.
		rows := r.s.g.Sessions(func(string) bool { return true })
		if len(rows) != 1 {
			t.Fatalf("%+v", rows)
		}
		each("ends", "sessions/"+rows[0].ID+"/end", map[string]int{devKey: 404, sinKey: 403, oneKey: 200}, devKey, sinKey, oneKey)
		synctest.Wait()
		if code, _ := r.as(oneKey, "/one/mcp", id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); code != 404 {
			t.Errorf("the session goes on: %d", code)
		}

		// Who may not look any more is told so.
		r.apply(func(c *config.Config) { c.Access = append(c.Access[:1:1], c.Access[2:]...); c.Viewers = nil })
		time.Sleep(3 * time.Second)
		toldOf(t, "whose key was taken away", eventsOf(all.Wait()), []string{"bye ", "signed_out"})
		if has(eventsOf(mine), "bye ") {
			t.Error("another page ends")
		}
		time.Sleep(2 * time.Minute)
		if r.s.calls.Show(10, func(*calls.Row) bool { return true }).Since == nil {
			t.Error("it ends while a page is open")
		}
	})
}

// A stream that was opened with a key ends when the key is somebody else's; looking whose it
// is counts as no request.
func TestAdminEventsOther(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		page := r.look(sinKey, "topics=sessions")
		counted := r.s.access.Door().Count(token.OK)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if now := r.s.access.Door().Count(token.OK); now != counted || has(eventsOf(page), "bye ") {
			t.Errorf("a stream counts as %d requests: %q", now-counted, eventsOf(page))
		}
		r.apply(func(c *config.Config) {
			c.Access = slices.Clone(c.Access)
			c.Access[1].Token, c.Access[2].Token = devKey, sinKey // those of sin and dev
		})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := eventsOf(page); !has(got, "bye ", "signed_out") {
			t.Errorf("a viewer's stream goes on with another one's key: %q", got)
		}
	})
}

// Who may look sees messages on both sides of the bridge. What they carry is for operators
// where the configuration says so, and has no secrets then.
func TestAdminTraffic(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			key, query string
			want       int
		}{{devKey, "topics=traffic", 403}, {sinKey, "topics=traffic&payloads=true", 403}, {opsKey, "topics=traffic&payloads=true", 409}} {
			if r := r.look(tc.key, tc.query).Wait(); r.Status() != tc.want {
				t.Errorf("%s asks for %s: %d %s", tc.key, tc.query, r.Status(), r.Body())
			}
		}
		if r.s.calls.Traffic.On() {
			t.Error("messages are looked at although nobody may")
		}
		r.apply(func(c *config.Config) { c.Console = config.ConsolePayloads })
		look, whole := r.look(sinKey, "topics=traffic"), r.look(opsKey, "payloads=true&topics=calls,traffic,calls")
		other, plain := r.look(sinKey, "topics=traffic&server=two"), r.look(opsKey, "topics=traffic")

		id := r.join(devKey, "/one/mcp")
		const args = `{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"echo","arguments":{"password":"hunter22","x":"shown"}}}`
		if code, body := r.as(devKey, "/one/mcp", id, args); code != 200 || !strings.Contains(body, "hunter22") {
			t.Fatal(code, body)
		}
		if code, body := r.as(devKey, "/one/mcp", id, call("2", "none")); code != 200 || !strings.Contains(body, "error") {
			t.Fatal(code, body)
		}
		body, header := modernCall("tools/call", `"name":"steps","arguments":{},`)
		if a := r.Do("POST", "/one/mcp", body, append(header, "Mcp-Name", "steps", "X-API-Key", devKey)...).Wait(); a.Status() != 200 {
			t.Fatal(a.Status(), a.Body())
		}
		r.f.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"<b>"}}`)
		asks := r.Do("POST", "/one/mcp", call("3", "ask"), "X-API-Key", devKey, "Mcp-Session-Id", id)
		synctest.Wait()
		asks.Leave()
		time.Sleep(time.Second)
		synctest.Wait()

		got := eventsOf(look)
		toldOf(t, "who may look", got,
			[]string{`"side":"server"`, `"to":"server"`, `"kind":"request"`, `"method":"initialize"`, `"server":"one"`},
			[]string{`"side":"client"`, `"to":"server"`, `"kind":"request"`, `"method":"tools/call"`, `"name":"echo"`, `"id":"\"mine\""`, `"principal":"dev"`, `"session":"`},
			[]string{`"side":"server"`, `"to":"server"`, `"kind":"request"`, `"method":"tools/call"`, `"name":"echo"`, `"server":"one"`, `"id":"`},
			[]string{`"side":"server"`, `"to":"client"`, `"kind":"result"`, `"method":"tools/call"`, `"name":"echo"`, `"took_ms":`, `"bytes":`},
			[]string{`"side":"client"`, `"to":"client"`, `"kind":"result"`, `"method":"tools/call"`, `"name":"echo"`, `"id":"\"mine\""`, `"took_ms":`},
			[]string{`"side":"client"`, `"to":"client"`, `"kind":"error"`, `"code":-32602`},
			[]string{`"side":"client"`, `"to":"server"`, `"method":"tools/call"`, `"name":"steps"`, `"id":"7"`},
			[]string{`"side":"server"`, `"to":"client"`, `"kind":"notification"`, `"method":"notifications/message"`},
			[]string{`"side":"server"`, `"to":"client"`, `"kind":"request"`, `"method":"sampling/createMessage"`, `"id":"\"q1\""`})
		if has(got, "payload") || has(got, "shown") || has(eventsOf(plain), "payload") {
			t.Errorf("what messages carry is told to who has not asked for it, or may not:\n%s", strings.Join(got, "\n"))
		}
		if got := eventsOf(other); has(got, "message ") {
			t.Errorf("messages of another server:\n%s", strings.Join(got, "\n"))
		}
		all := eventsOf(whole)
		toldOf(t, "who has asked for what they carry", all, []string{`"side":"client"`, `"payload":"`, `shown`, `[redacted]`}, []string{`"side":"server"`, `"payload":"`, `shown`, `[redacted]`}, []string{"call.end "})
		var known calls.Shown
		if r.read("GET", "calls?server=one", "", opsKey, 200, &known); len(known.Recent) == 0 {
			t.Fatal(known)
		}
		kept := 0
		for _, one := range known.Recent {
			path := "/ui/api/v1/calls/" + one.ID
			own, viewer, act := r.ask("GET", path, "", "X-API-Key", devKey), r.ask("GET", path, "", "X-API-Key", sinKey), r.ask("GET", path, "", "X-API-Key", opsKey).Body.String()
			if strings.Contains(own.Body.String()+viewer.Body.String(), "shown") || strings.Contains(act, "hunter22") {
				t.Errorf("a call: %s %s %s", own.Body, viewer.Body, act)
			}
			if strings.Contains(act, `"arguments": "{`) && strings.Contains(act, "shown") && strings.Contains(act, `"result": "{`) {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("%d calls have what they carried, want 1 of %+v", kept, known.Recent)
		}
		if has(all, "hunter22") || has(got, "hunter22") {
			t.Error("a secret is told")
		}

		// Switched off, the page goes on without; and when nobody looks any more, nobody is told.
		r.apply(func(c *config.Config) { c.Console = config.ConsoleOn })
		before := len(eventsOf(whole))
		if code, _ := r.as(devKey, "/one/mcp", id, args); code != 200 {
			t.Fatal(code)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if late := eventsOf(whole)[before:]; !has(late, "message ", `"name":"echo"`) || has(late, "payload") {
			t.Errorf("switched off:\n%s", strings.Join(late, "\n"))
		}
		for _, r := range []*wiretest.Reply{look, whole, other, plain} {
			r.Leave()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if r.s.calls.Traffic.On() {
			t.Error("messages are looked at although everybody has left")
		}
	})
}

// A page whose connection was lost goes on where it was, or is told how much it has missed
// and how all is.
func TestAdminEventsAgain(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		open := func(key, last string, topics ...string) *wiretest.Reply {
			return r.look(key, "topics="+strings.Join(append(topics, "calls"), ","), "Last-Event-ID", last)
		}
		id := r.join(devKey, "/one/mcp")
		calls := func(n int) {
			t.Helper()
			for range n {
				if code, body := r.as(devKey, "/one/mcp", id, call("1", "echo")); code != 200 {
					t.Fatal(code, body)
				}
			}
			time.Sleep(time.Second) // events are written every 100 ms
			synctest.Wait()
		}
		ids := func(r *wiretest.Reply) (all []string) {
			for _, e := range r.Events() {
				all = append(all, e.ID)
			}
			return all
		}
		first := open(opsKey, "")
		calls(2)
		seen := ids(first)
		// The first event is written at once, so it may be the beginning of a call, without its end.
		ended := func(r *wiretest.Reply) []string {
			return slices.DeleteFunc(eventsOf(r), func(e string) bool { return strings.HasPrefix(e, "call.begin ") })
		}
		if len(ended(first)) != 3 { // snapshot, and the end of each call
			t.Fatalf("%q", eventsOf(first))
		}
		first.Leave()
		synctest.Wait()
		calls(2)
		time.Sleep(30 * time.Second)
		second := open(opsKey, seen[len(seen)-2]) // the end of the second call has not arrived
		if got := ended(second); len(got) != 4 || !has(got[:1], "resumed ", `"missed":0`) || !has(got[1:2], "call.end ") || !has(got[2:3], "call.end ") || has(got, "snapshot") {
			t.Errorf("%q", got)
		}
		all := ids(second)
		newest := all[len(all)-1]
		for name, r := range map[string]*wiretest.Reply{
			"a stream that has a reader": open(opsKey, newest), "one that there is not": open(opsKey, "XX.1"), "nonsense": open(opsKey, "1"),
		} {
			if got := eventsOf(r); len(got) != 1 || !has(got, "snapshot ") {
				t.Errorf("%s: %q", name, got)
			}
			r.Leave()
		}
		second.Leave()
		synctest.Wait()
		for name, r := range map[string]*wiretest.Reply{
			"of another caller": open(sinKey, newest), "about something else": open(opsKey, newest, "sessions"), "a number to come": open(opsKey, strings.Split(newest, ".")[0]+".99"),
		} {
			if got := eventsOf(r); len(got) != 1 || !has(got, "snapshot ") {
				t.Errorf("%s: %q", name, got)
			}
			r.Leave()
		}
		calls(300)
		third := open(opsKey, seen[0])
		if got := eventsOf(third); !has(got[:1], "resumed ", `"missed":0`) || !has(got, "dropped ", `"count":`) {
			t.Errorf("%q", got[:3])
		}
		last := ids(third)
		third.Leave()
		synctest.Wait()
		fourth := open(opsKey, seen[0])
		if got := eventsOf(fourth); len(got) < 2 || !has(got[:1], "resumed ") || has(got[:1], `"missed":0}`) || !has(got[1:2], "snapshot ") {
			t.Errorf("%q", got[:2])
		}
		fourth.Leave()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		if got := eventsOf(open(opsKey, last[len(last)-1])); len(got) != 1 || !has(got, "snapshot ") {
			t.Errorf("after two minutes: %q", got)
		}
	})
}

// So many pages may be open, and each caller has its part: a quarter, of as many as the
// configuration says, from the next page on.
func TestAdminStreams(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		var pages []*wiretest.Reply
		opens := func(what, key string, want bool) {
			t.Helper()
			a := r.look(key, "topics=calls")
			if ok := len(a.Events()) > 0; ok != want || !ok && (a.Wait().Status() != 429 || !strings.Contains(a.Body(), "console_streams")) {
				t.Errorf("%s: %d %s", what, a.Status(), a.Body())
			}
			pages = append(pages, a)
		}
		for n := range 5 {
			opens(fmt.Sprint("page ", n), devKey, n < 4)
		}
		opens("another caller's page", opsKey, true)
		pages[0].Leave()
		synctest.Wait()
		opens("in place of one that has gone", devKey, true)
		r.apply(func(c *config.Config) { c.ConsoleStreams = 20 })
		opens("the fifth of a quarter of 20", devKey, true)
		opens("the sixth", devKey, false)
	})
}

// An operator's decision about a circuit breaker is seen in /readyz, with who has made it,
// and survives that the server's settings change (O-042).
func TestAdminBreaker(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		is := func(when, want string) {
			t.Helper()
			_, got := r.readyz("X-API-Key", opsKey)
			tells := "nothing"
			if f := got.Servers[0].Forced; f != nil {
				tells = fmt.Sprint(f.Breaker, " by ", f.By, " for ", f.Until.Sub(f.Since))
			}
			if code, body := r.as(devKey, "/one/mcp", "", initialize); (code == 200) != (want == "nothing") || tells != want {
				t.Errorf("%s: %s, want %s; a client: %d %s", when, tells, want, code, body)
			}
		}
		force := func(body string) {
			t.Helper()
			if code, text := r.act("servers/one/breaker", body); code != 200 {
				t.Errorf("%s: %d %s", body, code, text)
			}
		}
		force(`{"state":"open","for":"30m"}`)
		is("for a time", "open by ops for 30m0s")
		r.apply(func(c *config.Config) { c.Servers[0].Timeout = time.Minute })
		is("after a change", "open by ops for 30m0s")
		time.Sleep(31 * time.Minute)
		is("after its time", "nothing")
		force(`{"state":"open"}`)
		is("without a time", "open by ops for 10m0s")
		force(`{"state":"auto"}`)
		is("taken back", "nothing")
		if code, body := r.act("servers/one/probe", "{}"); code != 200 || !strings.Contains(body, `"ok": true`) {
			t.Errorf("a probe: %d %s", code, body)
		}
	})
}

// A connection that an operator closes takes its calls with it, and no session. Those that no call uses are closed at an
// operator's word, and others stay. The next call opens another one, and what a client subscribes to is opened again at
// once.
func TestAdminStop(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		_, _, of, _ := r.s.g.Operated("one")
		list := func(want int) []health.ConnectionStatus {
			t.Helper()
			synctest.Wait()
			all := of.List(nil, false)
			if len(all) != want {
				t.Fatalf("%d connections, want %d: %+v", len(all), want, all)
			}
			return all
		}
		var ids []string
		works := func(n int) {
			t.Helper()
			if code, body := r.as(devKey, "/one/mcp", ids[n], call("9", "echo")); code != 200 || !strings.Contains(body, "result") {
				t.Errorf("session %d: %d %s", n, code, body)
			}
		}
		for n := range 3 {
			ids = append(ids, r.join(devKey, "/one/mcp"))
			works(n)
		}
		waits := func(id string) *wiretest.Reply {
			return r.Do("POST", "/one/mcp", call(id, "wait"), "X-API-Key", devKey, "Mcp-Session-Id", ids[0])
		}
		lost := waits("1")
		was := list(3)
		if was[0].Calls != 1 || was[0].Client != "c 1" {
			t.Fatalf("%+v", was)
		}
		if code, body := r.act("servers/one/connections/"+was[0].ID+"/stop", "{}"); code != 200 {
			t.Fatal(code, body)
		}
		if r := lost.Wait(); !strings.Contains(r.Body(), "upstream_lost") {
			t.Errorf("its call: %s", r.Body())
		}
		synctest.Wait()
		works(0)

		busy := waits("2")
		if code, body := r.as(devKey, "/one/mcp", ids[1], `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:"}}`); code != 200 || !strings.Contains(body, "result") {
			t.Fatal(code, body)
		}
		was = list(3)
		if code, body := r.act("servers/one/connections/stop", "{}"); code != 200 || !strings.Contains(body, `"stopped": 2`) {
			t.Fatal(code, body)
		}
		known := func(c health.ConnectionStatus) bool {
			return slices.ContainsFunc(was, func(w health.ConnectionStatus) bool { return w.ID == c.ID })
		}
		now := list(2)
		if slices.IndexFunc(now, func(c health.ConnectionStatus) bool { return known(c) && c.Calls == 1 }) < 0 || known(now[0]) && known(now[1]) {
			t.Errorf("before %+v, after %+v", was, now)
		}
		works(2)
		list(3)
		r.f.Answer(`{}`) // to the call that was lost
		r.f.Answer(`{"content":[]}`)
		if r := busy.Wait(); !strings.Contains(r.Body(), "result") {
			t.Errorf("the call under way: %s", r.Body())
		}
		if code, body := r.act("servers/two/connections/stop", "{}"); code != 200 || !strings.Contains(body, `"stopped": 0`) {
			t.Errorf("a server without connections: %d %s", code, body)
		}
	})
}

// A server that an operator has drained gets no new calls and no new sessions; those under way
// end. Others go on, and nobody tries it meanwhile.
func TestAdminDrainServer(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		orders := func(path, body, want string) {
			t.Helper()
			code, text := r.act("servers/one/"+path, body)
			_, got := r.readyz("X-API-Key", opsKey)
			state := "not drained"
			if d := got.Servers[0].Drained; d != nil {
				state = fmt.Sprint(d.By, " ", d.Until != nil)
			}
			if code != 200 || state != want || !got.Ready {
				t.Errorf("%s %s: %d %s, %s, want %s", path, body, code, text, state, want)
			}
		}
		refused := func(what, body string) {
			t.Helper()
			if !strings.Contains(body, `"bridge":"draining","server":"one"`) {
				t.Errorf("%s: %s", what, body)
			}
		}
		served := func(what, body string) {
			t.Helper()
			if !strings.Contains(body, `"result"`) {
				t.Errorf("%s: %s", what, body)
			}
		}
		calls := func(path, id, tool string) string {
			_, body := r.as(devKey, path, id, call("2", tool))
			return body
		}
		id := r.join(devKey, "/one/mcp")
		begun := r.Do("POST", "/one/mcp", call("1", "wait"), "X-API-Key", devKey, "Mcp-Session-Id", id)
		synctest.Wait()
		orders("drain", "{}", "ops false")
		a := r.Do("POST", "/one/mcp", initialize, "X-API-Key", devKey).Wait()
		if refused("a new session", a.Body()); a.Status() != 503 {
			t.Errorf("a new session: %d", a.Status())
		}
		refused("a new call of a session", calls("/one/mcp", id, "echo"))
		if got := r.Do("GET", "/metrics", "", "X-API-Key", opsKey).Wait().Body(); !strings.Contains(got, `method="tools/call",outcome="drained",server="one"} 1`) { // not unavailable, for which there are alerts
			t.Error("no call is counted as drained")
		}
		modern, header := modernCall("tools/call", `"name":"echo","arguments":{},`)
		header = append(header, "Mcp-Name", "echo", "X-API-Key", devKey)
		a = r.Do("POST", "/one/mcp", modern, header...).Wait()
		if refused("a call without a session", a.Body()); a.Status() != 503 {
			t.Errorf("a call without a session: %d", a.Status())
		}
		served("the other server", r.Do("POST", "/two/mcp", modern, header...).Wait().Body())

		// All as one: the other server's tools go on, and this one is left alone.
		all := r.join(devKey, "/mcp")
		refused("all as one", calls("/mcp", all, "one__echo"))
		served("the other server among all as one", calls("/mcp", all, "two__echo"))
		r.as(devKey, "/mcp", all, `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
		opened := r.f.Opened()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if n := r.f.Opened(); n != opened {
			t.Errorf("%d connections were opened to it meanwhile", n-opened)
		}

		r.f.Answer(`{"done":true}`)
		if r := begun.Wait(); !strings.Contains(r.Body(), `"done":true`) {
			t.Errorf("a call under way: %s", r.Body())
		}
		r.apply(func(c *config.Config) { c.Servers[0].Timeout = time.Minute })
		refused("after its settings have changed", calls("/one/mcp", id, "echo"))
		orders("resume", "{}", "not drained")
		served("resumed", calls("/one/mcp", id, "echo"))
		served("resumed, all as one", calls("/mcp", all, "one__echo"))
		orders("drain", `{"for":"10m"}`, "ops true")
		time.Sleep(11 * time.Minute)
		served("after its time", calls("/one/mcp", id, "echo"))
		if _, got := r.readyz("X-API-Key", opsKey); got.Servers[0].Drained != nil {
			t.Errorf("after its time: %+v", got.Servers[0].Drained)
		}
	})
}

// A bridge that an operator has drained is not ready, and goes on; what is kept of lists is
// forgotten.
func TestAdminDrain(t *testing.T) {
	run(t, operators, []string{"one"}, func(t *testing.T, r *rig) {
		acts := func(path, want string) {
			t.Helper()
			if code, body := r.act(path, "{}"); code != 200 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		acts("drain", `"draining": true`)
		if status, got := r.readyz("X-API-Key", opsKey); status != 503 || got.Drained == nil || got.Drained.By != "ops" {
			t.Errorf("drained: %d %+v", status, got)
		}
		if _, got := r.readyz("X-API-Key", oneKey); got.Drained != nil && got.Drained.By != "" && got.Whole == nil {
			t.Errorf("who may not see all sees who has done it: %+v", got)
		}
		id := r.join(devKey, "/one/mcp")
		acts("resume", "")
		if status, got := r.readyz("X-API-Key", opsKey); status != 200 || got.Drained != nil {
			t.Errorf("resumed: %d %+v", status, got)
		}
		if code, body := r.as(devKey, "/one/mcp", id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); code != 200 {
			t.Fatal(code, body)
		}
		acts("servers/one/lists/forget", `"forgotten": 1`)
		acts("servers/one/lists/forget", `"forgotten": 0`)
	})
}
