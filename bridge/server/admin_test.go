package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const (
	sinKey = "0123456789abcdef-sin" // of somebody who is a viewer
	oneKey = "0123456789abcdef-one" // of somebody who may use one server only
)

// operators are callers of all kinds.
func operators(c *config.Config) {
	kinds(c)
	c.Access = []config.Access{
		{Name: "ops", Token: opsKey}, {Name: "sin", Token: sinKey}, {Name: "dev", Token: devKey}, {Name: "one", Token: oneKey, Servers: []string{"one"}},
	}
	c.Admin, c.Viewers, c.Console = []string{"ops"}, []string{"sin"}, config.ConsoleOn
}

// file has the rig serve a file with that text.
func (r *rig) file(text string) {
	name := filepath.Join(r.t.(*testing.T).TempDir(), "bridge.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	again := reload.New(reload.Options{File: name, Load: func() (*config.Config, error) { return r.s.other(func(*config.Config) {}), nil }, Log: slog.New(slog.DiscardHandler)})
	if _, err := again.Load(); err != nil {
		r.t.Fatal(err)
	}
	r.s.Reloads(again)
}

const closeBy, bridgeAt = "127.0.0.1:5000", "127.0.0.1:8808"

// ask makes a request of a program on the same machine, with a body of JSON unless header has another Content-Type.
func (r *rig) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	q := from(closeBy, bridgeAt, method, path, header...)
	types := q.Header["Content-Type"]
	q.Header["Content-Type"] = types[len(types)-1:]
	q.Body, q.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
	w := httptest.NewRecorder()
	r.s.http.Handler.ServeHTTP(w, q)
	return w
}

// Who may see and do what: nobody without a key sees anything, nobody who may not look
// sees what is of others, and nobody who may not act does anything.
func TestAdminRights(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.file("servers: { one: { stdio: sh } }")
		callers := []struct {
			name   string
			header []string
			right  int // 0: none, 1: own, 2: look, 3: act
		}{
			{"nobody", nil, 0},
			{"a wrong key", []string{"X-API-Key", newKey}, 0},
			{"a forged cookie", []string{"Cookie", admin.CookieName(bridgeAt) + "=AAAA"}, 0},
			{"a caller", []string{"X-API-Key", devKey}, 1},
			{"a caller of one server", []string{"X-API-Key", oneKey}, 1},
			{"a viewer", []string{"X-API-Key", sinKey}, 2},
			{"an operator", []string{"X-API-Key", opsKey}, 3},
		}
		need := map[admin.Right]int{admin.Own: 1, admin.Look: 2, admin.Act: 3}
		seen := 0
		for _, route := range r.s.actions.Routes() {
			if route.Stream != nil {
				continue // see TestAdminEvents
			}
			path := "/ui/api/v1/" + strings.NewReplacer("{name}", "one", "{id}", "none").Replace(route.Path)
			for _, c := range callers {
				seen++
				time.Sleep(5 * time.Second) // wrong keys may be shown so often
				w := r.ask(route.Method, path, "{}", c.header...)
				switch {
				case c.right == 0 && (w.Code != 401 || !strings.Contains(w.Body.String(), `"code": "unauthorized"`) || strings.Contains(w.Body.String(), "jsonrpc")),
					c.right > 0 && c.right < need[route.Right] && w.Code != 403,
					c.right >= need[route.Right] && (w.Code == 401 || w.Code == 403 || w.Code >= 500):
					t.Errorf("%s: %s %s = %d %s", c.name, route.Method, route.Path, w.Code, w.Body)
				}
			}
			other := map[string]string{"GET": "POST", "POST": "GET"}[route.Method]
			if w := r.ask(other, path, "{}", "X-API-Key", opsKey); w.Code != 405 {
				t.Errorf("%s %s = %d", other, path, w.Code)
			}
			for _, foreign := range [][]string{{"Origin", "http://localhost:3000"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
				if w := r.ask(route.Method, path, "{}", append(foreign, "X-API-Key", opsKey)...); w.Code != 403 {
					t.Errorf("%s %s by another page (%s) = %d", route.Method, path, foreign, w.Code)
				}
			}
		}
		if seen < 30 {
			t.Errorf("tried %d", seen)
		}
	})
}

// Where there are no access rules, the API is for programs of the same machine. The page is there where the console is on,
// for anybody: it holds nothing.
func TestAdminAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := newRig(t, kinds, "one")
		below := newRig(t, func(c *config.Config) { kinds(c); c.BasePath = "/tools" }, "one")
		off := newRig(t, func(c *config.Config) { kinds(c); c.Console = config.ConsoleOff }, "one")
		lan := newRig(t, func(c *config.Config) { kinds(c); c.Listen = "0.0.0.0:8808" }, "one")
		keys := newRig(t, func(c *config.Config) { rules(c); c.Admin = []string{"ops"} }, "one")
		on := newRig(t, operators, "one", "two")
		for _, tc := range []struct {
			name       string
			r          *rig
			path, peer string
			header     []string
			want       int
		}{
			{"status", open, "/ui/api/v1/status", closeBy, nil, 200},
			{"from elsewhere", open, "/ui/api/v1/status", "192.0.2.1:5000", nil, 403},
			{"through a proxy", open, "/ui/api/v1/status", closeBy, []string{"Via", "1.1 x"}, 403},
			{"under another name", open, "/ui/api/v1/status", closeBy, []string{"Host", "evil.example.com"}, 403},
			{"by another site", open, "/ui/api/v1/status", closeBy, []string{"Sec-Fetch-Site", "cross-site"}, 403},
			{"where everybody may listen", lan, "/ui/api/v1/status", closeBy, nil, 403},
			{"the page where everybody may listen", lan, "/ui", closeBy, nil, 404},
			{"the page without a slash", open, "/ui", closeBy, nil, 308},
			{"the page", below, "/tools/ui/", closeBy, nil, 200},
			{"no such file of the page", below, "/tools/ui/none", closeBy, nil, 404},
			{"the page when it is off", off, "/ui", closeBy, nil, 404},
			{"status when the page is off", off, "/ui/api/v1/status", closeBy, nil, 200},
			{"no such route", open, "/ui/api/v1/none", closeBy, nil, 404},
			{"no such server", open, "/ui/api/v1/servers/none", closeBy, nil, 404},
			{"with keys, for an operator", keys, "/ui/api/v1/status", closeBy, []string{"X-API-Key", opsKey}, 200},
			{"with keys, for others while the console is off", keys, "/ui/api/v1/status", closeBy, []string{"X-API-Key", devKey}, 403},
			{"the page, with keys, while the console is off", keys, "/ui/", closeBy, nil, 401},
			{"signing in while the console is off", keys, "/ui/login", closeBy, []string{"X-API-Key", opsKey}, 404},
			{"calling while the console is off", keys, "/ui/mcp/one", closeBy, []string{"X-API-Key", opsKey}, 404},
			{"the page, with keys", on, "/ui/", closeBy, nil, 200},
		} {
			method := "GET"
			if strings.HasSuffix(tc.path, "login") || strings.Contains(tc.path, "mcp") {
				method = "POST"
			}
			w := tc.r.answer(from(tc.peer, bridgeAt, method, tc.path, tc.header...))
			if w.Code != tc.want {
				t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.want)
			}
			if csp := w.Header().Get("Content-Security-Policy"); strings.HasSuffix(tc.path, "/ui/") && w.Code == 200 && !strings.Contains(csp, "default-src 'none'") {
				t.Errorf("%s: %q", tc.name, csp)
			}
			if at := w.Header().Get("Location"); w.Code == 308 && at != "ui/" {
				t.Errorf("%s: %q", tc.name, at)
			}
		}
	})
}

// A program that knows its callers says who looks: they see what is their own.
func TestAdminPrincipal(t *testing.T) {
	run(t, kinds, []string{"one"}, func(t *testing.T, r *rig) {
		ask := func(who, method, path, body string) string {
			q := from(closeBy, bridgeAt, method, path)
			q.Body, q.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
			if who != "" {
				q = q.WithContext(WithPrincipal(q.Context(), who))
			}
			w := r.answer(q)
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		ask("alice", "POST", "/one/mcp", initialize)
		ask("bob", "POST", "/one/mcp", initialize)
		var got admin.SessionRows
		if err := json.Unmarshal([]byte(ask("alice", "GET", "/ui/api/v1/sessions", "")), &got); err != nil || got.Total != 1 || got.Sessions[0].Principal != "alice" || got.Sessionless != nil {
			t.Errorf("%v %+v", err, got)
		}
		if own, all := ask("alice", "GET", "/ui/api/v1/status", ""), ask("", "GET", "/ui/api/v1/status", ""); strings.Contains(own, `"process"`) || !strings.Contains(all, `"process"`) {
			t.Errorf("the load of the whole bridge: %s\nand for who is on the machine: %s", own, all)
		}
		if all := ask("", "GET", "/ui/api/v1/sessions", ""); !strings.Contains(all, "bob") {
			t.Errorf("who is on the machine does not see all: %s", all)
		}
	})
}

// Each sees what is its own, and who may look sees all. Nothing has a key, and a session
// cannot be used by what is shown of it.
func TestAdminSees(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.file("access:\n  - { name: ops, token: " + opsKey + " }\nservers:\n  one: { stdio: { command: sh, args: [\"" + newKey + "\"] } }\n")
		ids := map[string]string{}
		for _, key := range []string{devKey, oneKey} {
			code, id := r.as(key, "/one/mcp", "", initialize)
			if code != 200 {
				t.Fatal(code, id)
			}
			ids[key] = id
		}
		var everything strings.Builder
		get := func(key, path string, into any) {
			t.Helper()
			w := r.ask("GET", "/ui/api/v1/"+path, "", "X-API-Key", key)
			everything.WriteString(w.Body.String())
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != 200 {
				t.Fatalf("%s = %d %s", path, w.Code, w.Body)
			}
		}
		var own, all admin.SessionRows
		get(devKey, "sessions", &own)
		get(sinKey, "sessions", &all)
		if own.Total != 1 || own.Sessions[0].Principal != "dev" || own.Sessions[0].Client != "c 1" || own.Sessions[0].Server != "one" || own.Sessionless != nil {
			t.Errorf("its own: %+v", own)
		}
		if all.Total != 2 || all.Sessionless == nil {
			t.Errorf("all: %+v", all)
		}
		var mine, whole status.Overview
		get(oneKey, "status", &mine)
		get(sinKey, "status", &whole)
		if len(mine.Servers) != 1 || mine.Process != nil || mine.Whole != nil {
			t.Errorf("of one server: %+v", mine)
		}
		if len(whole.Servers) != 2 || whole.Process.Goroutines == 0 || whole.Process.Calls != 2 || whole.Whole.Sessions != 2 {
			t.Errorf("of all: %+v", whole)
		}
		var of, ofAll, settings detail
		get(oneKey, "servers/one", &of)
		get(sinKey, "servers/one", &ofAll)
		get(opsKey, "servers/one", &settings)
		if of.Server.Name != "one" || of.Connections != nil || of.Settings != "" {
			t.Errorf("a server: %+v", of)
		}
		if len(ofAll.Connections) != 2 || ofAll.Connections[0].For != "session" || ofAll.Connections[0].Principal != "dev" || ofAll.Connections[0].Revision != "2025-11-25" ||
			ofAll.Settings != "" {
			t.Errorf("a server with what is of others: %+v", ofAll)
		}
		if !strings.Contains(settings.Settings, "command: sh") {
			t.Errorf("settings for an operator: %+v", settings)
		}
		var me admin.Self
		get(opsKey, "me", &me)
		if me.Principal != "ops" || !me.Look || !me.Act || !me.Keys || !slices.Contains(me.Actions, "reload") {
			t.Errorf("me: %+v", me)
		}
		var conf admin.FileShown
		get(opsKey, "config", &conf)
		if !strings.Contains(conf.Text, "token: ***") || conf.Hash == "" {
			t.Errorf("the file: %+v", conf)
		}
		for _, secret := range []string{opsKey, devKey, oneKey, sinKey, newKey, ids[devKey], ids[oneKey]} {
			if strings.Contains(everything.String(), secret) {
				t.Errorf("%s is shown", secret)
			}
		}
		if code, _ := r.as(devKey, "/one/mcp", own.Sessions[0].ID, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); code != 404 {
			t.Errorf("a session can be used by what is shown of it: %d", code)
		}
	})
}

// signIn signs in with a key, and returns the cookie.
func (r *rig) signIn(key string) (int, *http.Cookie) {
	r.t.Helper()
	w := r.ask("POST", "/ui/login", `{"key":"`+key+`"}`, "Origin", "http://127.0.0.1:8808")
	if all := w.Result().Cookies(); len(all) == 1 {
		return w.Code, all[0]
	}
	return w.Code, nil
}

// Whoever has signed in on the page has a cookie that stands for the key, below /ui and
// for as long as the key counts (O-011).
func TestSignIn(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		r.file("servers: { one: { stdio: sh } }")
		if code, c := r.signIn(newKey); code != 401 || c != nil {
			t.Errorf("a wrong key: %d %v", code, c)
		}
		code, c := r.signIn(opsKey)
		if code != 200 || c == nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/ui" || c.Secure || strings.Contains(c.Value, opsKey) {
			t.Fatalf("%d %v", code, c)
		}
		cookie := c.Name + "=" + c.Value
		for _, tc := range []struct {
			name, method, path string
			header             []string
			want               int
		}{
			{"it looks", "GET", "/ui/api/v1/sessions", nil, 200},
			{"it acts", "POST", "/ui/api/v1/reload", []string{admin.PageHeader, "1"}, 200},
			{"a form acts", "POST", "/ui/api/v1/reload", nil, 403},
			{"another page acts", "POST", "/ui/api/v1/reload", []string{admin.PageHeader, "1", "Origin", "http://localhost:1"}, 403},
			{"it calls", "POST", "/ui/mcp/one", []string{admin.PageHeader, "1"}, 200},
			{"it calls all as one", "POST", "/ui/mcp", []string{admin.PageHeader, "1"}, 200},
			{"a form calls", "POST", "/ui/mcp/one", nil, 403},
			{"a stream without the header", "GET", "/ui/mcp/one", nil, 403},
			{"another page calls", "POST", "/ui/mcp/one", []string{admin.PageHeader, "1", "Sec-Fetch-Site", "same-site"}, 403},
			{"no such server", "POST", "/ui/mcp/none", []string{admin.PageHeader, "1"}, 401},
			{"beyond /ui", "POST", "/one/mcp", []string{admin.PageHeader, "1"}, 401},
			{"beside a wrong key", "GET", "/ui/api/v1/sessions", []string{"X-API-Key", newKey}, 401},
		} {
			body := "{}"
			if strings.Contains(tc.path, "mcp") {
				body = initialize
			}
			if w := r.ask(tc.method, tc.path, body, append([]string{"Cookie", cookie, "Accept", "application/json, text/event-stream"}, tc.header...)...); w.Code != tc.want {
				t.Errorf("%s: %d %s, want %d", tc.name, w.Code, w.Body, tc.want)
			}
		}
		if _, one := r.signIn(oneKey); one == nil {
			t.Error("a caller of one server cannot sign in")
		} else if w := r.ask("POST", "/ui/mcp/two", initialize, "Cookie", one.Name+"="+one.Value, admin.PageHeader, "1"); w.Code != 404 {
			t.Errorf("it calls a server that it may not use: %d", w.Code)
		}

		look := func() int { return r.ask("GET", "/ui/api/v1/sessions", "", "Cookie", cookie).Code }
		time.Sleep(50 * time.Minute)
		w := r.ask("GET", "/ui/api/v1/sessions", "", "Cookie", cookie)
		if w.Code != 200 || len(w.Result().Cookies()) != 1 {
			t.Fatalf("after 50 minutes: %d %v", w.Code, w.Result().Cookies())
		}
		renewed := w.Result().Cookies()[0].Value
		time.Sleep(20 * time.Minute)
		if look() != 401 {
			t.Error("it counts after an hour without use")
		}
		if cookie = c.Name + "=" + renewed; look() != 200 {
			t.Error("use has not moved the end on")
		}
		r.apply(func(c *config.Config) { c.Access = slices.Clone(c.Access); c.Access[0].Token = newKey })
		if look() != 401 {
			t.Error("it counts although the key was taken away")
		}
		_, other := r.signIn(newKey)
		if other == nil {
			t.Fatal("nobody can sign in again")
		}
		cookie = other.Name + "=" + other.Value
		if look() != 200 {
			t.Error("who has signed in again may not look")
		}
		page := r.Do("GET", "/ui/api/v1/events?topics=sessions", "", "Cookie", cookie)
		synctest.Wait()
		w = r.ask("POST", "/ui/logout", "{}", "Cookie", cookie)
		if look() != 401 {
			t.Error("a copy of the cookie counts after signing out")
		}
		time.Sleep(3 * time.Second)
		if got := eventsOf(page.Wait()); !has(got, "bye ", "signed_out") {
			t.Errorf("a stream goes on after signing out: %q", got)
		}
		if c := w.Result().Cookies(); w.Code != 200 || len(c) != 1 || c[0].MaxAge >= 0 {
			t.Errorf("signing out: %d %v", w.Code, c)
		}
		for n := range access.WrongAtOnce + 1 {
			w := r.ask("POST", "/ui/login", `{"key":"`+devKey+`x"}`)
			if want := map[bool]int{false: 401, true: 429}[n == access.WrongAtOnce]; w.Code != want || want == 429 && w.Header().Get("Retry-After") == "" {
				t.Errorf("wrong key %d: %d %v", n, w.Code, w.Header())
			}
		}
		if code, _ := r.signIn(newKey); code != 200 {
			t.Errorf("a good key while wrong ones are refused: %d", code)
		}
	})
}

// What a page has open at its endpoints ends when somebody signs out on it, or when its key
// is taken away, in both eras; that of another page of the same caller goes on.
func TestPageStreams(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		open := func() (cookie string, all []*wiretest.Reply) {
			_, c := r.signIn(devKey)
			cookie = c.Name + "=" + c.Value
			page := []string{"Cookie", cookie, admin.PageHeader, "1"}
			a := r.Do("POST", "/ui/mcp/one", initialize, page...).Wait()
			id := a.Header("Mcp-Session-Id")
			if a.Status() != 200 || id == "" {
				t.Fatalf("%d %s", a.Status(), a.Body())
			}
			body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
			all = append(all,
				r.Do("GET", "/ui/mcp/one", "", append(page, "Mcp-Session-Id", id)...),
				r.Do("POST", "/ui/mcp/one", call("1", "wait"), append(page, "Mcp-Session-Id", id)...),
				r.Do("POST", "/ui/mcp/one", body, append(header, page...)...))
			synctest.Wait()
			return cookie, all
		}
		over := func(all []*wiretest.Reply) (n int) {
			synctest.Wait()
			for _, r := range all {
				if r.Over() {
					n++
				}
			}
			return n
		}
		cookie, mine := open()
		_, other := open()
		time.Sleep(time.Minute)
		if n, m := over(mine), over(other); n+m != 0 {
			t.Fatalf("%d and %d have ended by themselves", n, m)
		}
		if w := r.ask("POST", "/ui/logout", "{}", "Cookie", cookie); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(3 * time.Second)
		if n, m := over(mine), over(other); n != len(mine) || m != 0 {
			t.Errorf("after signing out, %d of %d have ended, and %d of another page", n, len(mine), m)
		}
		r.apply(func(c *config.Config) {
			c.Access = slices.DeleteFunc(slices.Clone(c.Access), func(a config.Access) bool { return a.Name == "dev" })
		})
		time.Sleep(3 * time.Second)
		if m := over(other); m != len(other) {
			t.Errorf("after the key was taken away, %d of %d have ended", m, len(other))
		}
		for _, r := range append(mine, other...) {
			r.Leave()
		}
	})
}

// What the API is asked in another way than it reads is refused, as is what it does not have.
func TestAdminMistakes(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for want, asked := range map[int][][2]string{
			400: {
				{"GET sessions?limit=0", ""},
				{"GET events?topics=none", ""},
				{"GET events?topics=", ""},
				{"GET series?from=now", ""},
				{"GET tools?minutes=16", ""},
				{"GET tools?minutes=0", ""},
				{"POST servers/one/breaker", `{}`},
				{"POST servers/one/breaker", `{"state":"ajar"}`},
				{"POST servers/one/breaker", `{"state":"open","for":"25h"}`},
				{"POST servers/one/breaker", `{"state":"open","for":"soon"}`},
				{"POST servers/one/breaker", `{"state":"auto","for":"1m"}`},
				{"POST servers/one/breaker", `{"state":"open","by":"x"}`},
				{"POST servers/one/drain", `{"for":"25h"}`},
				{"POST servers/one/drain", `{"for":"soon"}`},
				{"POST servers/one/drain", `{"by":"x"}`},
				{"POST servers/one/drain", `[]`},
				{"POST servers/one/connections/stop", `{"all":true}`},
			},
			404: {
				{"POST servers/none/drain", "{}"},
				{"POST servers/none/connections/stop", "{}"},
				{"GET series?server=none", ""},
				{"GET tools?server=none", ""},
				{"GET servers/none/tools", ""},
				{"GET metrics?server=none", ""},
			},
		} {
			for _, one := range asked {
				method, path, _ := strings.Cut(one[0], " ")
				if w := r.ask(method, "/ui/api/v1/"+path, one[1], "X-API-Key", opsKey); w.Code != want {
					t.Errorf("%s %s: %d %s, want %d", one[0], one[1], w.Code, w.Body, want)
				}
			}
		}
		for _, path := range []string{"servers/two", "series?server=two", "metrics?server=two", "series?server=none", "metrics?server=none"} {
			if w := r.ask("GET", "/ui/api/v1/"+path, "", "X-API-Key", oneKey); w.Code != 404 {
				t.Errorf("%s for who may not use the server two: %d %s", path, w.Code, w.Body)
			}
		}
	})
}

// docs/admin.md has the routes that there are, with their rights.
func TestAdminDocs(t *testing.T) {
	r := newRig(t, operators, "one")
	r.file("servers: { one: { stdio: sh } }")
	text, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	var said, are []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(GET|POST) ([^`]+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		said = append(said, m[1]+" "+m[2]+" "+m[3])
	}
	for _, route := range r.s.actions.Routes() {
		are = append(are, route.Method+" "+route.Path+" "+string(route.Right))
	}
	slices.Sort(said)
	slices.Sort(are)
	if !slices.Equal(said, are) {
		t.Errorf("docs/admin.md has\n%s\nand there are\n%s", strings.Join(said, "\n"), strings.Join(are, "\n"))
	}
}

// Every action is a line of the access log, with who asked for it and what became of it; also
// of a caller that may not (O-013).
func TestAdminNoted(t *testing.T) {
	to := filepath.Join(t.TempDir(), "access.log")
	r := newRig(t, func(c *config.Config) {
		operators(c)
		c.AccessLog.To = to
	}, "one")
	r.file("x")
	var want []string
	for _, route := range r.s.actions.Routes() {
		if route.Method != "POST" {
			continue
		}
		path := strings.NewReplacer("{name}", "one", "{id}", "1").Replace(route.Path)
		r.ask("POST", "/ui/api/v1/"+path, "no JSON", "X-API-Key", opsKey)
		want = append(want, fmt.Sprintf(`"msg":"console","principal":"ops","action":%q,"outcome":"error"`, path))
		if route.Right == admin.Act {
			r.ask("POST", "/ui/api/v1/"+path, "{}", "X-API-Key", devKey)
			want = append(want, fmt.Sprintf(`"msg":"console","principal":"dev","action":%q,"outcome":"denied"`, path))
		}
	}
	r.s.Close(t.Context())
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range want {
		if strings.Count(string(text), line) != 1 {
			t.Errorf("not once in the log: %s", line)
		}
	}
	if len(want) < 20 {
		t.Errorf("%d actions were tried", len(want))
	}
}

// No server gets the cookie of the page, and behind a trusted proxy with TLS the cookie is for TLS only.
func TestPageCookie(t *testing.T) {
	run(t, func(c *config.Config) {
		operators(c)
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}, []string{"one", "two"}, func(t *testing.T, r *rig) {
		_, c := r.signIn(opsKey)
		q := from(closeBy, bridgeAt, "POST", "/ui/mcp/one", "Cookie", c.Name+"="+c.Value, admin.PageHeader, "1", "Origin", "http://127.0.0.1:8808")
		known, done, ok := r.s.fromPage(httptest.NewRecorder(), q, "", access.TargetOf("", "/one/mcp"))
		if done(); !ok || known.Header.Get("Cookie") != "" {
			t.Errorf("accepted %t, with the cookies %q", ok, known.Header["Cookie"])
		}
		for peer, want := range map[string]bool{"10.1.1.1:5": true, "192.0.2.1:5": false} {
			if _, secure := r.s.PagePath(from(peer, bridgeAt, "GET", "/ui/", "X-Forwarded-Proto", "https"), ""); secure != want {
				t.Errorf("from %s: Secure is %t", peer, secure)
			}
		}
	})
}
