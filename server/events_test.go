package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/adapters/wiretest"
	"github.com/mcp-bridge/bridge/internal/admin"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/observe/report/calls"
)

// eventsOf returns the events of a stream as TYPE DATA.
func eventsOf(a *wiretest.Reply) (all []string) {
	for _, e := range a.Events() {
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

// A page that looks is told what happens of what its caller may see, until that one may
// not look any more.
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
		if a := x.Wait(); !strings.Contains(a.Body(), "an operator has cancelled the call") {
			t.Errorf("the client is told: %s", a.Body())
		}
		synctest.Wait()
		if !has(eventsOf(all), "call.end ", `"outcome":"cancelled"`) {
			t.Error("its end is not told")
		}

		// The session: likewise; and its own caller may end it.
		for _, tc := range []struct {
			key  string
			want int
		}{{devKey, 404}, {sinKey, 403}, {oneKey, 200}} {
			rows := r.s.b.Sessions(func(string) bool { return true })
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
		counted := r.s.keys.Count(token.OK)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if now := r.s.keys.Count(token.OK); now != counted || has(eventsOf(page), "bye ") {
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

// So many pages may be open, and each caller has its part.
func TestAdminStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, operators, "one")
		var pages []*wiretest.Reply
		for n := range admin.MaxStreamsEach + 1 {
			a := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", devKey)
			synctest.Wait()
			if refused := n == admin.MaxStreamsEach; refused != (len(a.Events()) == 0) {
				t.Errorf("page %d: %d", n, a.Status())
			}
			pages = append(pages, a)
		}
		if a := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", opsKey); true {
			synctest.Wait()
			if len(a.Events()) != 1 {
				t.Error("another caller has no place")
			}
		}
		pages[0].Leave()
		synctest.Wait()
		a := r.Do("GET", "/ui/api/v1/events?topics=calls", "", "X-API-Key", devKey)
		synctest.Wait()
		if len(a.Events()) != 1 {
			t.Error("a page that has gone keeps its place")
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
		_, _, of := r.s.b.Operated("one")
		all := of.List()
		if len(all) != 1 || all[0].Calls != 1 || all[0].Client != "c 1" {
			t.Fatalf("%+v", all)
		}
		if w := r.ask("POST", "/ui/api/v1/servers/one/connections/"+all[0].ID+"/stop", "{}", "X-API-Key", opsKey); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if a := x.Wait(); !strings.Contains(a.Body(), "upstream_lost") {
			t.Errorf("its call: %s", a.Body())
		}
		synctest.Wait()
		if code, body := r.as(devKey, "/one/mcp", id, call("2", "echo")); code != 200 || !strings.Contains(body, "result") {
			t.Errorf("the session: %d %s", code, body)
		}
		if now := of.List(); len(now) != 1 || now[0].ID == all[0].ID {
			t.Errorf("connections: %+v", now)
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
