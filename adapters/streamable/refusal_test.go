package streamable

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// as makes the requests of a site come from principals, by the header X-Who.
func as(d *Downstream) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.Serve("fake", w, r.WithContext(auth.WithPrincipal(r.Context(), r.Header.Get("X-Who"))))
	})
}

// What HTTP says of a call, or of a session, that is refused because of a limit, to clients of either era (protocol.md F, R-178).
func TestRefusals(t *testing.T) {
	const who = "X-Who"
	hold := func(n int) func(m *modernRig) {
		return func(m *modernRig) {
			for i := range n {
				m.send(modernCallBody(fmt.Sprint(i), "wait", "{}"), who, "p")
			}
			synctest.Wait()
		}
	}
	once := limits.Rate{PerSecond: 0.4, Burst: 1}
	for _, test := range []struct {
		name           string
		limits         limits.Options
		each           limits.PerPrincipal
		before         func(m *modernRig)
		modern, legacy int // statuses of a call
		after, word    string
		text           string
	}{
		{"rate of a server", limits.Options{Rate: once}, limits.PerPrincipal{}, nil, 429, 200, "3", "rate_limited", "server fake: it may be called 24/m by one caller (limits: rate); try again in 3 s"},
		{"rate of a tool", limits.Options{Tools: map[string]limits.Rate{"ec*": once}}, limits.PerPrincipal{}, nil, 429, 200, "3", "rate_limited", "server fake: tools ec* may be called 24/m by one caller (limits: tools: ec*); try again in 3 s"},
		{"queue", limits.Options{Calls: 1, Queue: 1}, limits.PerPrincipal{}, hold(2), 503, 200, "1", "overloaded", "server fake: it has 1 calls under way and 1 more that wait (limits: calls, queue)"},
		{"principal at a server", limits.Options{PerPrincipal: 1}, limits.PerPrincipal{}, hold(1), 503, 200, "1", "overloaded", "server fake: one caller may have 1 calls under way or waiting (limits: per_principal)"},
		{"calls of a principal", limits.Options{}, limits.PerPrincipal{Calls: 1}, hold(1), 503, 200, "1", "overloaded", "one caller may have 1 calls under way (per_principal: calls)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModernRig(t, gateway.Options{Servers: []gateway.ServerOptions{{ServerSettings: gateway.ServerSettings{Limits: test.limits}}}, Grants: map[string]filter.Grant{"p": {}, "q": {}}, Common: gateway.Common{PerPrincipal: test.each}}, Options{})
				m.Site = wiretest.NewSite(t, as(m.d))
				began := m.Do("POST", "/mcp", fmt.Sprintf(initialize, "2025-11-25"), who, "p").Wait()
				if test.before != nil {
					test.before(m)
				} else if r := m.send(modernCallBody("1", "echo", "1"), who, "p").Wait(); r.Status() != 200 {
					t.Fatalf("the first call = %d %s", r.Status(), r.Body())
				}
				check := func(what string, r *wiretest.Reply, status int) {
					t.Helper()
					r.Wait()
					after := test.after
					if status == 200 {
						after = ""
					}
					body := gjson.Parse(r.Body())
					data := body.Get("error.data")
					if r.Status() != status || r.Header("Retry-After") != after || body.Get("id").Raw != "7" || body.Get("error.code").Int() != -32603 || data.Get("bridge").Str != test.word ||
						!data.Get("retryAfterMs").Exists() || data.Get("server").Str == "" == strings.HasPrefix(test.text, "server") || !strings.HasPrefix(body.Get("error.message").Str, test.text) {
						t.Errorf("%s: %d, Retry-After %q, %s\nwant %d, %q, %s with %q", what, r.Status(), r.Header("Retry-After"), r.Body(), status, after, test.word, test.text)
					}
				}
				check("modern", m.send(modernCallBody("7", "echo", "1"), who, "p"), test.modern)
				check("legacy", m.Do("POST", "/mcp", call("7", "echo", "1"), sessionHeader, began.Header(sessionHeader), who, "p"), test.legacy)
				if r := m.send(modernCallBody("7", "echo", "1"), who, "q").Wait(); (r.Status() == 200) != (test.name != "queue") {
					t.Errorf("another principal's call = %d %s", r.Status(), r.Body())
				}
				for range 2 {
					m.m.Answer(`{"resultType":"complete","content":[]}`)
					synctest.Wait()
				}
			})
		})
	}
}

// A temporary refusal of a session has a status that shows it, and that of discovery has none that would show a client
// that the bridge is of the other era.
func TestRefusedAtTheDoor(t *testing.T) {
	const who = "X-Who"
	synctest.Test(t, func(t *testing.T) {
		m := newModernRig(t, gateway.Options{Grants: map[string]filter.Grant{"p": {}, "q": {}}, Common: gateway.Common{PerPrincipal: limits.PerPrincipal{Sessions: 2, Rate: limits.Rate{PerSecond: 0.1, Burst: 3}}}, Sessions: session.NewMemory(3)}, Options{})
		m.Site = wiretest.NewSite(t, as(m.d))
		begin := func(who string) *wiretest.Reply {
			return m.Do("POST", "/mcp", fmt.Sprintf(initialize, "2025-11-25"), "X-Who", who).Wait()
		}
		check := func(what string, r *wiretest.Reply, status int, after, text string) {
			t.Helper()
			if r.Wait(); r.Status() != status || r.Header("Retry-After") != after || !strings.Contains(r.Body(), text) || r.Header(sessionHeader) != "" || !gjson.Get(r.Body(), "id").Exists() {
				t.Errorf("%s = %d, Retry-After %q, %s\nwant %d, %q, %s", what, r.Status(), r.Header("Retry-After"), r.Body(), status, after, text)
			}
		}
		for range 2 {
			if r := begin("p"); r.Status() != 200 {
				t.Fatalf("initialize = %d %s", r.Status(), r.Body())
			}
		}
		check("one session too many", begin("p"), 503, "1", "one caller may have 2 sessions open (per_principal: sessions)")
		check("a session too soon", begin("p"), 429, "10", "the bridge may be called 6/m burst 3 by one caller (per_principal: rate); try again in 10 s")
		check("discovery too soon", m.send(modernBody("7", discover, ""), who, "p"), 503, "10", `"bridge":"rate_limited"`)
		check("a subscription too soon", m.send(modernBody("7", listen, `"notifications":{}`), who, "p"), 429, "10", `"bridge":"rate_limited"`)
		if r := begin("q"); r.Status() != 200 {
			t.Errorf("another's session = %d %s", r.Status(), r.Body())
		}
		check("one too many in all", begin("q"), 503, "5", "the bridge is at its limit of sessions (max_sessions)")
	})
}
