package server

import (
	"encoding/json"
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

// Events are written every 100 ms, however many there are: each write has its price, which calls pay.
func TestAdminEventsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		page := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", opsKey)
		code, id := r.as(oneKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code)
		}
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one", "two")
		open := func(key, topics string) *wiretest.Reply {
			a := r.Do("GET", "/ui/api/v1/events?topics="+topics, "", "X-API-Key", key)
			synctest.Wait()
			return a
		}
		for _, tc := range []struct {
			key, topics string
			want        int
		}{{"", "calls", 401}, {newKey, "calls", 401}, {devKey, "log", 403}, {sinKey, "log", 403}, {opsKey, "none", 400}, {opsKey, "", 400}} {
			header := []string{}
			if tc.key != "" {
				header = []string{"X-API-Key", tc.key}
			}
			if a := r.Do("GET", "/ui/api/v1/events?topics="+tc.topics, "", header...).Wait(); a.Status() != tc.want {
				t.Errorf("%q asks for %q: %d %s", tc.key, tc.topics, a.Status(), a.Body())
			}
		}
		if a := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", opsKey, "Origin", "http://localhost:3000").Wait(); a.Status() != 403 {
			t.Errorf("another page: %d", a.Status())
		}

		mine, all := open(devKey, "servers,calls,sessions"), open(sinKey, "servers,calls,sessions")
		ops := open(opsKey, "log")
		code, id := r.as(oneKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code)
		}
		x := r.Do("POST", "/one/mcp", call("1", "wait"), "X-API-Key", oneKey, "Mcp-Session-Id", id)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got := eventsOf(all)
		for _, want := range [][]string{
			{"snapshot ", `"under_way":[]`, `"sessions":`, `"servers":`}, {"call.begin ", `"name":"wait"`, `"principal":"one"`}, {"call.end ", `"method":"initialize"`},
			{"sessions ", `"principal":"one"`}, {"status ", `"name":"one"`, `"sessions":1`},
		} {
			if !has(got, want...) {
				t.Errorf("who may look is not told of %q:\n%s", want, strings.Join(got, "\n"))
			}
		}
		if has(got, `"name":"two"`, "status ") {
			t.Error("what has not changed is told again")
		}
		if got := eventsOf(mine); has(got, "call.") || has(got, `"principal":"one"`) || !has(got, "snapshot ") {
			t.Errorf("what is of others is told:\n%s", strings.Join(got, "\n"))
		}
		if got := eventsOf(ops); !has(got, "log ", "session began") {
			t.Errorf("the log:\n%s", strings.Join(got, "\n"))
		}

		// Another caller does not see the call, nor end it; a viewer sees it; an operator ends it.
		var shown struct {
			Under []struct{ ID, Name string } `json:"under_way"`
		}
		if err := json.Unmarshal(r.ask("GET", "/ui/api/v1/calls", "", "X-API-Key", sinKey).Body.Bytes(), &shown); err != nil || len(shown.Under) != 1 || shown.Under[0].Name != "wait" {
			t.Fatalf("%v %+v", err, shown)
		}
		if w := r.ask("GET", "/ui/api/v1/calls", "", "X-API-Key", devKey); strings.Contains(w.Body.String(), "wait") {
			t.Errorf("another caller sees it: %s", w.Body)
		}
		for _, tc := range []struct {
			key  string
			want int
		}{{devKey, 404}, {sinKey, 403}, {opsKey, 200}} {
			if w := r.ask("POST", "/ui/api/v1/calls/"+shown.Under[0].ID+"/cancel", "{}", "X-API-Key", tc.key); w.Code != tc.want {
				t.Errorf("%s cancels: %d %s", tc.key, w.Code, w.Body)
			}
		}
		if r := x.Wait(); !strings.Contains(r.Body(), "an operator cancelled the call") {
			t.Errorf("the client is told: %s", r.Body())
		}
		synctest.Wait()
		if !has(eventsOf(all), "call.end ", `"outcome":"cancelled"`) {
			t.Error("its end is not told")
		}
		body, header := modernCall("tools/call", `"name":"wait","arguments":{},`) // without a session: likewise
		x = r.Do("POST", "/one/mcp", body, append(header, "Mcp-Name", "wait", "X-API-Key", oneKey)...)
		synctest.Wait()
		shown.Under = nil
		if err := json.Unmarshal(r.ask("GET", "/ui/api/v1/calls", "", "X-API-Key", sinKey).Body.Bytes(), &shown); err != nil || len(shown.Under) != 1 {
			t.Fatalf("%v %+v", err, shown)
		}
		r.ask("POST", "/ui/api/v1/calls/"+shown.Under[0].ID+"/cancel", "{}", "X-API-Key", opsKey)
		if r := x.Wait(); !strings.Contains(r.Body(), "an operator cancelled the call") {
			t.Errorf("the client without a session got %s", r.Body())
		}

		// The session: likewise; and its own caller may end it.
		for _, tc := range []struct {
			key  string
			want int
		}{{devKey, 404}, {sinKey, 403}, {oneKey, 200}} {
			rows := r.s.g.Sessions(func(string) bool { return true })
			if len(rows) != 1 {
				t.Fatalf("%+v", rows)
			}
			if w := r.ask("POST", "/ui/api/v1/sessions/"+rows[0].ID+"/end", "{}", "X-API-Key", tc.key); w.Code != tc.want {
				t.Errorf("%s ends: %d %s", tc.key, w.Code, w.Body)
			}
		}
		synctest.Wait()
		if code, _ := r.as(oneKey, "/one/mcp", id, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); code != 404 {
			t.Errorf("the session goes on: %d", code)
		}

		// Who may not look any more is told so.
		r.apply(func(c *config.Config) { c.Access = append(c.Access[:1:1], c.Access[2:]...); c.Viewers = nil })
		time.Sleep(3 * time.Second)
		if got := eventsOf(all.Wait()); !has(got, "bye ", "signed_out") {
			t.Errorf("after its key was taken away:\n%s", strings.Join(got, "\n"))
		}
		if got := eventsOf(mine); has(got, "bye ") {
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		page := r.Do("GET", "/ui/api/v1/events?topics=sessions", "", "X-API-Key", sinKey)
		synctest.Wait()
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one", "two")
		open := func(key, query string) *wiretest.Reply {
			a := r.Do("GET", "/ui/api/v1/events?"+query, "", "X-API-Key", key)
			synctest.Wait()
			return a
		}
		for _, tc := range []struct {
			key, query string
			want       int
		}{{devKey, "topics=traffic", 403}, {sinKey, "topics=traffic&payloads=true", 403}, {opsKey, "topics=traffic&payloads=true", 409}} {
			if r := open(tc.key, tc.query).Wait(); r.Status() != tc.want {
				t.Errorf("%s asks for %s: %d %s", tc.key, tc.query, r.Status(), r.Body())
			}
		}
		if r.s.calls.Traffic.On() {
			t.Error("messages are looked at although nobody may")
		}
		r.apply(func(c *config.Config) { c.Console = config.ConsolePayloads })
		look, whole := open(sinKey, "topics=traffic"), open(opsKey, "payloads=true&topics=calls,traffic,calls")
		other, plain := open(sinKey, "topics=traffic&server=two"), open(opsKey, "topics=traffic")

		code, id := r.as(devKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code, id)
		}
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
		for _, want := range [][]string{
			{`"side":"server"`, `"to":"server"`, `"kind":"request"`, `"method":"initialize"`, `"server":"one"`},
			{`"side":"client"`, `"to":"server"`, `"kind":"request"`, `"method":"tools/call"`, `"name":"echo"`, `"id":"\"mine\""`, `"principal":"dev"`, `"session":"`},
			{`"side":"server"`, `"to":"server"`, `"kind":"request"`, `"method":"tools/call"`, `"name":"echo"`, `"id":"`},
			{`"side":"server"`, `"to":"client"`, `"kind":"result"`, `"method":"tools/call"`, `"name":"echo"`, `"took_ms":`, `"bytes":`},
			{`"side":"client"`, `"to":"client"`, `"kind":"result"`, `"method":"tools/call"`, `"name":"echo"`, `"id":"\"mine\""`, `"took_ms":`},
			{`"side":"client"`, `"to":"client"`, `"kind":"error"`, `"code":-32602`},
			{`"side":"client"`, `"to":"server"`, `"method":"tools/call"`, `"name":"steps"`, `"id":"7"`},
			{`"side":"server"`, `"to":"client"`, `"kind":"notification"`, `"method":"notifications/message"`},
			{`"side":"server"`, `"to":"client"`, `"kind":"request"`, `"method":"sampling/createMessage"`, `"id":"\"q1\""`},
		} {
			if !has(got, want...) {
				t.Errorf("who may look is not told of %q:\n%s", want, strings.Join(got, "\n"))
			}
		}
		if has(got, "payload") || has(got, "shown") || has(eventsOf(plain), "payload") {
			t.Errorf("what messages carry is told to who has not asked for it, or may not:\n%s", strings.Join(got, "\n"))
		}
		if got := eventsOf(other); has(got, "message ") {
			t.Errorf("messages of another server:\n%s", strings.Join(got, "\n"))
		}
		all := eventsOf(whole)
		if !has(all, `"side":"client"`, `"payload":"`, `shown`, `[redacted]`) || !has(all, `"side":"server"`, `"payload":"`, `shown`, `[redacted]`) || !has(all, "call.end ") {
			t.Errorf("what they carry:\n%s", strings.Join(all, "\n"))
		}
		var known calls.Shown
		if err := json.Unmarshal(r.ask("GET", "/ui/api/v1/calls?server=one", "", "X-API-Key", opsKey).Body.Bytes(), &known); err != nil || len(known.Recent) == 0 {
			t.Fatal(err, known)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		open := func(key, last string, topics ...string) *wiretest.Reply {
			header := []string{"X-API-Key", key}
			if last != "" {
				header = append(header, "Last-Event-ID", last)
			}
			a := r.Do("GET", "/ui/api/v1/events?topics="+strings.Join(append(topics, "calls"), ","), "", header...)
			synctest.Wait()
			return a
		}
		_, id := r.as(devKey, "/one/mcp", "", initialize)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		open := func(key string) (*wiretest.Reply, bool) {
			a := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", key)
			synctest.Wait()
			return a, len(a.Events()) > 0
		}
		var pages []*wiretest.Reply
		for n := range 5 {
			r, ok := open(devKey)
			if ok != (n < 4) {
				t.Errorf("page %d: %d", n, r.Status())
			}
			pages = append(pages, r)
		}
		if r := pages[4].Wait(); r.Status() != 429 || !strings.Contains(r.Body(), "console_streams") {
			t.Errorf("one too many: %d %s", r.Status(), r.Body())
		}
		if _, ok := open(opsKey); !ok {
			t.Error("another caller has no place")
		}
		pages[0].Leave()
		synctest.Wait()
		if _, ok := open(devKey); !ok {
			t.Error("a page that has gone keeps its place")
		}
		if _, err := r.s.Apply(r.s.other(func(c *config.Config) { c.ConsoleStreams = 20 })); err != nil {
			t.Fatal(err)
		}
		_, fifth := open(devKey)
		if _, sixth := open(devKey); !fifth || sixth {
			t.Errorf("a quarter of 20: the fifth page %t, the sixth %t", fifth, sixth)
		}
	})
}

// An operator's decision about a circuit breaker is seen in /readyz, with who has made it,
// and survives that the server's settings change.
func TestAdminBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		force := func(body string) (int, string) {
			w := r.ask("POST", "/ui/api/v1/servers/one/breaker", body, "X-API-Key", opsKey)
			return w.Code, w.Body.String()
		}
		for _, bad := range []string{`{}`, `{"state":"ajar"}`, `{"state":"open","for":"25h"}`, `{"state":"open","for":"soon"}`, `{"state":"auto","for":"1m"}`, `{"state":"open","by":"x"}`} {
			if code, body := force(bad); code != 400 {
				t.Errorf("%s: %d %s", bad, code, body)
			}
		}
		begin := func() int { code, _ := r.as(devKey, "/one/mcp", "", initialize); return code }
		tells := func() string {
			_, got := r.readyz("X-API-Key", opsKey)
			f := got.Servers[0].Forced
			if f == nil {
				return "nothing"
			}
			return fmt.Sprint(f.Breaker, " by ", f.By, " for ", f.Until.Sub(f.Since))
		}
		if code, body := force(`{"state":"open","for":"30m"}`); code != 200 || begin() == 200 || tells() != "open by ops for 30m0s" {
			t.Errorf("%d %s, %s", code, body, tells())
		}
		r.apply(func(c *config.Config) { c.Servers[0].Timeout = time.Minute })
		if begin() == 200 || tells() != "open by ops for 30m0s" {
			t.Errorf("after a change: %s", tells())
		}
		time.Sleep(31 * time.Minute)
		if begin() != 200 || tells() != "nothing" {
			t.Errorf("after its time: %s", tells())
		}
		if code, _ := force(`{"state":"open"}`); code != 200 || tells() != "open by ops for 10m0s" {
			t.Errorf("%d %s", code, tells())
		}
		if code, _ := force(`{"state":"auto"}`); code != 200 || tells() != "nothing" || begin() != 200 {
			t.Errorf("%d %s", code, tells())
		}
		w := r.ask("POST", "/ui/api/v1/servers/one/probe", "{}", "X-API-Key", opsKey)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"ok": true`) {
			t.Errorf("a probe: %d %s", w.Code, w.Body)
		}
	})
}

// A connection that an operator closes takes its calls with it, and no session.
func TestAdminStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		code, id := r.as(devKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code)
		}
		x := r.Do("POST", "/one/mcp", call("1", "wait"), "X-API-Key", devKey, "Mcp-Session-Id", id)
		synctest.Wait()
		_, _, of, _ := r.s.g.Operated("one")
		all := of.List(nil, false)
		if len(all) != 1 || all[0].Calls != 1 || all[0].Client != "c 1" {
			t.Fatalf("%+v", all)
		}
		if w := r.ask("POST", "/ui/api/v1/servers/one/connections/"+all[0].ID+"/stop", "{}", "X-API-Key", opsKey); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if r := x.Wait(); !strings.Contains(r.Body(), "upstream_lost") {
			t.Errorf("its call: %s", r.Body())
		}
		synctest.Wait()
		if code, body := r.as(devKey, "/one/mcp", id, call("2", "echo")); code != 200 || !strings.Contains(body, "result") {
			t.Errorf("the session: %d %s", code, body)
		}
		if now := of.List(nil, false); len(now) != 1 || now[0].ID == all[0].ID {
			t.Errorf("connections: %+v", now)
		}
	})
}

// Connections that no call uses are closed at an operator's word, and others stay. The next call
// opens another one, and what a client subscribes to is opened again at once.
func TestAdminStopIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one", "two")
		var ids []string
		for range 3 {
			code, id := r.as(devKey, "/one/mcp", "", initialize)
			if code != 200 {
				t.Fatal(code)
			}
			if code, body := r.as(devKey, "/one/mcp", id, call("1", "echo")); code != 200 {
				t.Fatal(body)
			}
			ids = append(ids, id)
		}
		busy := r.Do("POST", "/one/mcp", call("2", "wait"), "X-API-Key", devKey, "Mcp-Session-Id", ids[0])
		if code, body := r.as(devKey, "/one/mcp", ids[1], `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:"}}`); code != 200 || !strings.Contains(body, "result") {
			t.Fatal(code, body)
		}
		synctest.Wait()
		_, _, of, _ := r.s.g.Operated("one")
		was := of.List(nil, false)
		w := r.ask("POST", "/ui/api/v1/servers/one/connections/stop", "{}", "X-API-Key", opsKey)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"stopped": 2`) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		synctest.Wait()
		now := of.List(nil, false)
		if len(was) != 3 || len(now) != 2 || now[0].ID != was[0].ID || now[0].Calls != 1 || slices.ContainsFunc(was, func(c health.ConnectionStatus) bool { return c.ID == now[1].ID }) {
			t.Errorf("before %+v, after %+v", was, now)
		}
		if code, body := r.as(devKey, "/one/mcp", ids[2], call("4", "echo")); code != 200 || !strings.Contains(body, "result") {
			t.Errorf("a session whose connection was closed: %d %s", code, body)
		}
		if n := len(of.List(nil, false)); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		r.f.Answer(`{"content":[]}`)
		if r := busy.Wait(); !strings.Contains(r.Body(), "result") {
			t.Errorf("the call under way: %s", r.Body())
		}
		if w := r.ask("POST", "/ui/api/v1/servers/two/connections/stop", "{}", "X-API-Key", opsKey); w.Code != 200 || !strings.Contains(w.Body.String(), `"stopped": 0`) {
			t.Errorf("a server without connections: %d %s", w.Code, w.Body)
		}
		for _, no := range []struct {
			path, body, key string
			want            int
		}{{"none", "{}", opsKey, 404}, {"one", `{"all":true}`, opsKey, 400}, {"one", "{}", sinKey, 403}} {
			if w := r.ask("POST", "/ui/api/v1/servers/"+no.path+"/connections/stop", no.body, "X-API-Key", no.key); w.Code != no.want {
				t.Errorf("%+v: %d %s", no, w.Code, w.Body)
			}
		}
	})
}

// A server that an operator has drained gets no new calls and no new sessions; those under way
// end. Others go on, and nobody tries it meanwhile.
func TestAdminDrainServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one", "two")
		act := func(path, body string) (int, string) {
			w := r.ask("POST", "/ui/api/v1/servers/"+path, body, "X-API-Key", opsKey)
			return w.Code, w.Body.String()
		}
		for _, bad := range []string{`{"for":"25h"}`, `{"for":"soon"}`, `{"by":"x"}`, `[]`} {
			if code, body := act("one/drain", bad); code != 400 {
				t.Errorf("%s: %d %s", bad, code, body)
			}
		}
		if code, _ := act("none/drain", "{}"); code != 404 {
			t.Errorf("no such server: %d", code)
		}
		code, id := r.as(devKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code, id)
		}
		begun := r.Do("POST", "/one/mcp", call("1", "wait"), "X-API-Key", devKey, "Mcp-Session-Id", id)
		synctest.Wait()
		state := func() string {
			_, got := r.readyz("X-API-Key", opsKey)
			if d := got.Servers[0].Drained; d != nil {
				return fmt.Sprint(d.By, " ", d.Until != nil, " ", got.Ready)
			}
			return "not drained"
		}
		if code, body := act("one/drain", "{}"); code != 200 || !strings.Contains(body, `"drained"`) || state() != "ops false true" {
			t.Errorf("%d %s, %s", code, body, state())
		}
		refused := func(what, body string) {
			t.Helper()
			if !strings.Contains(body, `"bridge":"draining","server":"one"`) {
				t.Errorf("%s: %s", what, body)
			}
		}
		a := r.Do("POST", "/one/mcp", initialize, "X-API-Key", devKey).Wait()
		if refused("a new session", a.Body()); a.Status() != 503 {
			t.Errorf("a new session: %d", a.Status())
		}
		_, body := r.as(devKey, "/one/mcp", id, call("2", "echo"))
		refused("a new call of a session", body)
		if got := r.Do("GET", "/metrics", "", "X-API-Key", opsKey).Wait().Body(); !strings.Contains(got, `method="tools/call",outcome="drained",server="one"} 1`) { // not unavailable, for which there are alerts
			t.Error("no call is counted as drained")
		}
		modern, header := modernCall("tools/call", `"name":"echo","arguments":{},`)
		header = append(header, "Mcp-Name", "echo", "X-API-Key", devKey)
		a = r.Do("POST", "/one/mcp", modern, header...).Wait()
		if refused("a call without a session", a.Body()); a.Status() != 503 {
			t.Errorf("a call without a session: %d", a.Status())
		}
		if a := r.Do("POST", "/two/mcp", modern, header...).Wait(); a.Status() != 200 || !strings.Contains(a.Body(), `"result"`) {
			t.Errorf("the other server: %d %s", a.Status(), a.Body())
		}

		// All as one: the other server's tools go on, and this one is left alone.
		code, all := r.as(devKey, "/mcp", "", initialize)
		if code != 200 {
			t.Fatal(code, all)
		}
		_, body = r.as(devKey, "/mcp", all, call("3", "one__echo"))
		refused("all as one", body)
		if _, body := r.as(devKey, "/mcp", all, call("4", "two__echo")); !strings.Contains(body, `"result"`) {
			t.Errorf("the other server among all as one: %s", body)
		}
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
		_, body = r.as(devKey, "/one/mcp", id, call("6", "echo"))
		refused("after its settings have changed", body)
		if code, _ := act("one/resume", "{}"); code != 200 || state() != "not drained" {
			t.Errorf("resumed: %d %s", code, state())
		}
		if _, body := r.as(devKey, "/one/mcp", id, call("7", "echo")); !strings.Contains(body, `"result"`) {
			t.Errorf("resumed: %s", body)
		}
		if _, body := r.as(devKey, "/mcp", all, call("8", "one__echo")); !strings.Contains(body, `"result"`) {
			t.Errorf("resumed, all as one: %s", body)
		}
		if code, _ := act("one/drain", `{"for":"10m"}`); code != 200 || state() != "ops true true" {
			t.Errorf("for a while: %d %s", code, state())
		}
		time.Sleep(11 * time.Minute)
		if _, body := r.as(devKey, "/one/mcp", id, call("9", "echo")); !strings.Contains(body, `"result"`) || state() != "not drained" {
			t.Errorf("after its time: %s, %s", body, state())
		}
	})
}

// A bridge that an operator has drained is not ready, and goes on; what is kept of lists is
// forgotten.
func TestAdminDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		act := func(path string) (int, string) {
			w := r.ask("POST", "/ui/api/v1/"+path, "{}", "X-API-Key", opsKey)
			return w.Code, w.Body.String()
		}
		if code, body := act("drain"); code != 200 || !strings.Contains(body, `"draining": true`) {
			t.Errorf("%d %s", code, body)
		}
		if status, got := r.readyz("X-API-Key", opsKey); status != 503 || got.Drained == nil || got.Drained.By != "ops" {
			t.Errorf("drained: %d %+v", status, got)
		}
		if _, got := r.readyz("X-API-Key", oneKey); got.Drained != nil && got.Drained.By != "" && got.Whole == nil {
			t.Errorf("who may not see all sees who has done it: %+v", got)
		}
		code, id := r.as(devKey, "/one/mcp", "", initialize)
		if code != 200 {
			t.Errorf("a client: %d", code)
		}
		if code, _ := act("resume"); code != 200 {
			t.Errorf("%d", code)
		}
		if status, got := r.readyz("X-API-Key", opsKey); status != 200 || got.Drained != nil {
			t.Errorf("resumed: %d %+v", status, got)
		}
		if code, body := r.as(devKey, "/one/mcp", id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		if code, body := act("servers/one/lists/forget"); code != 200 || !strings.Contains(body, `"forgotten": 1`) {
			t.Errorf("%d %s", code, body)
		}
		if code, body := act("servers/one/lists/forget"); code != 200 || !strings.Contains(body, `"forgotten": 0`) {
			t.Errorf("%d %s", code, body)
		}
	})
}
