package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// What a principal has ends when its key is taken away, whatever state it is in,
// and is reported as refused; another's goes on.
func TestRevoke(t *testing.T) {
	f := inquisitive()
	var ready chan struct{}
	f.before = func(ctx context.Context, n int) error {
		if n < 5 {
			return nil
		}
		select { // an opening that takes its time
		case <-ready:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ready = make(chan struct{})
		l := &ledger{}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Watch: l.take,
			Grants: map[string]filter.Grant{"p": {}, "q": {}}})
		defer g.Close(context.Background())
		const asks, hangs = `"name":"ask","arguments":{}`, `"name":"slow"`
		var states []string
		var guests []*visiting
		var sessions []*sitting
		var calls []*pendingCall
		for _, principal := range []string{"p", "q"} {
			v := visitor{principal: principal}
			states = append(states, stateOf(t, v.call(t, g, "tools/call", asks)))
			guests = append(guests, v.ask(t, g, "1", "tools/call", hangs))
			s, _ := begin(t, g, principal)
			sessions = append(sessions, s)
			calls = append(calls, start(t, s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`))
		}
		opened := make(chan error)
		go func() {
			_, _, err := initialize(t, g, "p", bridgetest.InitializeParams)
			opened <- err
		}()
		l.got()

		g.Revoke("p")
		if err := <-opened; !errors.Is(err, bridge.ErrRevoked) {
			t.Errorf("a session that was being opened: %v", err)
		}
		const reason = `"code":-32600,"message":"the caller's key is no longer valid","data":{"bridge":"unauthorized"}`
		synctest.Wait()
		for i, gone := range []bool{true, false} {
			if guests[i].over() != gone || calls[i].over() != gone {
				t.Fatalf("calls of %d have ended: %v, %v, want %v", i, guests[i].over(), calls[i].over(), gone)
			}
		}
		bridgetest.Contains(t, guests[0].answer, reason)
		bridgetest.Contains(t, calls[0].answer, reason)
		l.want(t, "revoked", `"fake" initialize: denied`, `"fake" tools/call slow: denied`, `"fake" tools/call slow: denied`)
		if st := g.Status()[0]; st.Parked != 1 {
			t.Errorf("%d calls are parked, want 1", st.Parked)
		}

		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", hangs), reason)
		if _, a, err := initialize(t, g, "p", bridgetest.InitializeParams); !errors.Is(err, bridge.ErrRevoked) || !strings.Contains(a, reason) {
			t.Errorf("a new session: %s, %v", a, err)
		}
		bridgetest.Contains(t, do(t, sessions[1], "2", "tools/call", tool("x")), `"result"`)

		g.Restore("p")
		close(ready)
		retry := `"inputResponses":{"r1":{"action":"cancel"}},"requestState":"`
		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", asks+","+retry+states[0]+`"`), `"error"`)
		bridgetest.Contains(t, visitor{principal: "q"}.call(t, g, "tools/call", asks+","+retry+states[1]+`"`), `"content":[]`)
		bridgetest.Contains(t, visitor{principal: "p"}.call(t, g, "tools/call", `"name":"x"`), `"result"`)
		if s, _ := begin(t, g, "p"); s.Principal() != "p" {
			t.Error("no session")
		}
		for i := range guests[1:] {
			guests[i+1].cancel(bridge.ErrCancelled)
			<-guests[i+1].done
		}
		for _, principal := range []string{"p", "q"} {
			if calls := g.revoked.Revoke(principal); calls != 0 {
				t.Errorf("%d calls of %s are left", calls, principal)
			}
		}
	})
}

// callers are the access rules of the tests: of the servers one and two.
var callers = map[string]filter.Grant{
	"both":  {},
	"one":   {Servers: []string{"one"}},
	"some":  {Servers: []string{"o*", "two"}, Allow: []string{"read_*", "shown"}, Deny: []string{"read_secret"}},
	"other": {Servers: []string{"other"}},
}

// ruled runs f in a bubble with a bridge to the servers one and two, of which
// only callers may use something.
func ruled(t *testing.T, f func(t *testing.T, g *gateway)) {
	t.Helper()
	lists := func(more ...string) map[string]string {
		return map[string]string{
			"tools/list":     toolList(append([]string{"read_all", "read_secret", "write"}, more...)...),
			"prompts/list":   `{"prompts":[{"name":"greet"}]}`,
			"resources/list": `{"resources":[{"uri":"x:` + more[0] + `","name":"x"}]}`,
		}
	}
	one, two := shop("one", lists("read_one")), shop("two", lists("hidden", "hideous"))
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: callers, Servers: []ServerOptions{
			{Name: "one", ServerSettings: ServerSettings{Prefix: "one__"}, Adapter: one},
			{Name: "two", ServerSettings: ServerSettings{Prefix: "two__", Lists: filter.Lists{Tools: filter.Rules{Rename: map[string]string{"hidden": "shown", "read_all": "all"}, Deny: []string{"hideous"}}}}, Adapter: two},
		}})
		f(t, g)
		g.Close(context.Background())
	})
}

// asks returns what makes requests to a server on behalf of a principal, in either era. A session that cannot be had answers
// them all with the reason.
func asks(t *testing.T, g *gateway, principal, server string, modern bool) (ask func(method, params string) string, err error) {
	t.Helper()
	if modern {
		return func(method, params string) string {
			return visitor{server: server, principal: principal}.call(t, g, method, params)
		}, nil
	}
	s, a, err := join(t, g, SessionOptions{Server: server, Principal: principal})
	if err != nil {
		return func(string, string) string { return a }, err
	}
	if s.Principal() != principal {
		t.Errorf("the session of %s is %s's", principal, s.Principal())
	}
	return func(method, params string) string { return do(t, s, "1", method, "{"+params+"}") }, nil
}

// A principal uses only the servers and tools that its rules grant: at the address of a server and at the joint address,
// in both eras.
func TestGrants(t *testing.T) {
	ruled(t, func(t *testing.T, g *gateway) {
		for _, tc := range []struct {
			principal, server string
			tools             string // as they are listed; empty means that nothing may be used
			unknown           string // tools that are answered as if they did not exist
			good              string // tools that can be called
		}{
			{"both", "one", "read_all read_secret write read_one", "", "write read_secret unlisted"},
			{"both", "", "one__read_all one__read_secret one__write one__read_one two__all two__read_secret two__write two__shown", "two__hidden two__hideous", "one__write two__shown"},
			{"one", "one", "read_all read_secret write read_one", "", "write"},
			{"one", "", "one__read_all one__read_secret one__write one__read_one", "two__write two__shown two__all", "one__write"},
			{"one", "two", "", "", ""},
			{"some", "one", "read_all read_one", "write read_secret", "read_all read_one read_unlisted"},
			{"some", "two", "shown", "all hidden read_all write read_secret", "shown"}, // its names are those that clients see
			{"some", "", "one__read_all one__read_one two__shown", "one__write one__read_secret two__all two__hidden two__write", "one__read_one two__shown"},
			{"other", "one", "", "", ""},
			{"other", "", "", "", ""},
			{"stranger", "one", "", "", ""},
			{"stranger", "", "", "", ""},
			{"", "one", "", "", ""},
			{"", "", "", "", ""},
		} {
			for _, modern := range []bool{false, true} {
				where := tc.principal + " at " + tc.server + map[bool]string{false: ", legacy", true: ", modern"}[modern]
				ask, err := asks(t, g, tc.principal, tc.server, modern)
				if tc.tools == "" {
					no := ask("tools/list", "")
					if !strings.Contains(no, `"code":-32600`) || !strings.Contains(no, "may") || !strings.Contains(no, `"bridge":"denied"`) {
						t.Errorf("%s: %s, want a refusal", where, no)
					}
					if !modern && !errors.Is(err, bridge.ErrDenied) {
						t.Errorf("%s: %v, want ErrDenied", where, err)
					}
					continue
				}
				list := ask("tools/list", "")
				same(t, where, names(t, list), strings.Fields(tc.tools))
				for _, tool := range strings.Fields(tc.unknown) {
					got := ask("tools/call", `"name":"`+tool+`"`)
					if want := `"error":{"code":-32602,"message":"Unknown tool: ` + tool + `"}`; !strings.Contains(got, want) {
						t.Errorf("%s: call of %s: %s, want %s", where, tool, got, want)
					}
				}
				for _, tool := range strings.Fields(tc.good) {
					if got := ask("tools/call", `"name":"`+tool+`"`); gjson.Get(got, "result.by").Str == "" {
						t.Errorf("%s: call of %s: %s", where, tool, got)
					}
				}
			}
		}
	})
}

// A server that the principal may not use is in nothing that it is told.
func TestGrantsNothingElse(t *testing.T) {
	ruled(t, func(t *testing.T, g *gateway) {
		full, _ := asks(t, g, "both", "", false) // somebody else has been there before
		for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
			if got := full(method, ""); !strings.Contains(got, "two__") && !strings.Contains(got, "x:hidden") {
				t.Fatalf("%s of both: %s", method, got)
			}
		}
		for _, modern := range []bool{false, true} {
			ask, err := asks(t, g, "one", "", modern)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range [][2]string{
				{"prompts/list", ""}, {"resources/list", ""}, {"resources/templates/list", ""},
				{"prompts/get", `"name":"two__greet"`},
				{"resources/read", `"uri":"x:hidden"`},
				{"completion/complete", `"ref":{"type":"ref/prompt","name":"two__greet"},"argument":{"name":"a","value":""}`},
			} {
				got := ask(q[0], q[1])
				if strings.Contains(got, `"by":"two"`) || strings.Contains(strings.ReplaceAll(got, "Unknown prompt: two__greet", ""), "two") || q[0] == "resources/list" && strings.Contains(got, "hidden") {
					t.Errorf("%s %s (modern: %t) reaches the other server: %s", q[0], q[1], modern, got)
				}
			}
			if modern {
				if got := ask("server/discover", ""); strings.Contains(got, "two") || !strings.Contains(got, "ask one") {
					t.Errorf("server/discover: %s", got)
				}
			}
		}
		s, m, err := join(t, g, SessionOptions{ID: "greeted", Principal: "one"})
		if err != nil || strings.Contains(m, "two") {
			t.Errorf("initialize: %s, %v", m, err)
		}
		s.End(bridge.ErrEnded)
	})
}

// Without rules everybody may use everything, whoever that is, and nothing is in
// the way of a call: a new wrapper that is always on, too. The message names the
// outermost one, and what is in the way may stand below that.
func TestGrantsNone(t *testing.T) {
	one := shop("one", map[string]string{"tools/list": toolList("a")})
	all(t, []stock{{name: "one", f: one}}, func(t *testing.T, g *gateway) {
		for _, principal := range []string{"", "anybody"} {
			if err := g.Allowed("one", principal); err != nil {
				t.Errorf("%q: %v", principal, err)
			}
		}
		if err := g.Allowed("two", ""); !errors.Is(err, bridge.ErrUnknownServer) {
			t.Errorf("an unknown server: %v", err)
		}
		s := g.table.Load().at("one")
		up := s.statelessCalls
		for _, on := range []bridge.Upstream{s.check.Wrap(nil), s.filter.Wrap(nil), s.results.Wrap(nil)} { // they can be switched on while the bridge runs
			if reflect.TypeOf(up) != reflect.TypeOf(on) {
				t.Fatalf("nothing is switched on, and calls pass a %T: a wrapper that is off returns what it was given", up)
			}
			up = reflect.ValueOf(up).Elem().FieldByName("Upstream").Interface().(bridge.Upstream)
		}
		if up != bridge.Upstream(s.pool) {
			t.Errorf("nothing is switched on, and calls pass a %T: a wrapper that is off returns what it was given", up)
		}
	})
}

// What a server says of itself to one principal is told to nobody else, also
// where several servers are one and are asked only once: it may depend on who
// asks (D0.7, D1.3).
func TestGreetingOfOthers(t *testing.T) {
	personal := func(name string) *fake {
		f := shop(name, map[string]string{"tools/list": toolList("a")})
		serve := f.serve
		f.serve = func(w *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "initialize" {
				return serve(w, m)
			}
			w.answer(m, strings.Replace(f.result, `"ask `+name+`"`, `"the secrets of [`+w.from.Principal+`]"`, 1))
			return true
		}
		return f
	}
	for _, share := range []Share{ShareSession, SharePrincipal, ShareCall, ShareAll} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(Options{Log: slog.New(slog.DiscardHandler), Grants: map[string]filter.Grant{"alice": {}, "bob": {}}, Servers: []ServerOptions{
				{Name: "one", ServerSettings: ServerSettings{Prefix: "one__", Share: share}, Adapter: personal("one")},
				{Name: "two", ServerSettings: ServerSettings{Prefix: "two__", Share: share}, Adapter: personal("two")},
			}})
			defer g.Close(context.Background())
			for _, principal := range []string{"alice", "bob", "alice"} {
				whose := "[" + principal + "]"
				if share == ShareAll { // its operator says that it is the same for all
					whose = "[]"
				}
				s, m, err := join(t, g, SessionOptions{ID: string(share) + rand.Text(), Principal: principal})
				if err != nil {
					t.Fatal(err)
				}
				discover, err := asks(t, g, principal, "", true)
				if err != nil {
					t.Fatal(err)
				}
				for wire, got := range map[string]string{"initialize": m, "server/discover": discover("server/discover", "")} {
					if n := strings.Count(got, "the secrets of "); n != 2 || strings.Count(got, "the secrets of "+whose) != n {
						t.Errorf("share %s: %s of %s says %s", share, wire, principal, gjson.Get(got, "result.instructions"))
					}
				}
				s.End(bridge.ErrEnded)
			}
		})
	}
}

// The calls of a principal end in any order.
func TestCalls(t *testing.T) {
	p := &principals{}
	stopped := 0
	stop := func(err error) {
		if stopped++; !errors.Is(err, bridge.ErrRevoked) {
			t.Error(err)
		}
	}
	all := make([]*principalCall, 5)
	for i := range all {
		all[i] = &principalCall{}
		if err := p.Enter(all[i], "p", stop); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{4, 2, 0} { // the newest, one between, the oldest
		p.Leave(all[i], "p")
	}
	if n := p.Revoke("q"); n != 0 || stopped != 0 {
		t.Errorf("%d calls of another were stopped", stopped)
	}
	if n := p.Revoke("p"); n != 2 || stopped != 2 {
		t.Errorf("%d calls were stopped, want 2", stopped)
	}
	p.Leave(all[1], "p")
	p.Leave(all[3], "p")
	if len(p.calls) != 0 || p.Enter(all[0], "p", stop) == nil {
		t.Errorf("left: %v", p.calls)
	}
}
