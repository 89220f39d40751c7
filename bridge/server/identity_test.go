package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// here is how clients in these tests reach the bridge.
const here = "http://127.0.0.1:8808"

// users are access rules for those of an issuer, beside alice and bob of private: its
// group eng may use everything, and guests the server one without its tool echo.
func users(i *authtest.Issuer) func(c *config.Config) {
	return func(c *config.Config) {
		private(c)
		c.OAuth = []config.OAuth{{Issuer: i.URL, Transport: i, Scopes: []string{"mcp:use"}}}
		c.Access = append(c.Access,
			config.Access{Name: "staff", Claims: map[string]config.Words{"groups": {"eng"}}},
			config.Access{Name: "guests", Users: config.Words{"guest-*"}, Servers: []string{"one"}, Tools: config.Choice{Deny: []string{"echo"}}})
	}
}

// eng makes a token of a member of the group eng.
func eng(i *authtest.Issuer, sub, audience string, life time.Duration) []string {
	return as(i.Token(audience, authtest.Claims{"sub": sub, "groups": []string{"eng"}, "exp": time.Now().Add(life).Unix()}))
}

// identified runs f in a bubble with an issuer and a bridge that takes its tokens.
func identified(t *testing.T, change func(*config.Config), f func(t *testing.T, r *rig, i *authtest.Issuer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		f(t, newRig(t, func(c *config.Config) {
			users(i)(c)
			if change != nil {
				change(c)
			}
		}, "one", "two"), i)
	})
}

// Who is not let in is told how to get in, at each endpoint with the address of its own
// metadata; what is wrong with a token only in few words (I-007 to I-009).
func TestChallenges(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		other := authtest.New(t, "https://other.example.com")
		for n, e := range endpoints {
			where := strings.ReplaceAll(strings.SplitN(e.path, "?", 2)[0], "messages", "sse")
			if e.path == "/metrics" {
				where = ""
			}
			challenge := func(fault, why string) string {
				text := `Bearer realm="mcp-bridge"`
				if fault != "" {
					text += `, error="` + fault + `", error_description="` + why + `"`
				}
				return text + `, resource_metadata="` + here + "/.well-known/oauth-protected-resource" + where + `", scope="mcp:use"`
			}
			const invalid, not = "invalid_token", "the token is not valid"
			for _, tc := range []struct {
				name   string
				header []string
				status int
				want   string
			}{
				{"N-01 nothing", nil, 401, challenge("", "")},
				{"N-02 an empty token", as(""), 401, challenge(invalid, not)},
				{"N-04 key and token", append(eng(i, "ann", here, time.Hour), "X-API-Key", aliceKey), 401, challenge(invalid, not)},
				{"too old", eng(i, "ann", here, -time.Hour), 401, challenge(invalid, "the token has expired")},
				{"N-27 for another server", eng(i, "ann", here+"/three/mcp", time.Hour), 401, challenge(invalid, "the token is not for this resource ("+here+where+")")},
				{"of another issuer", eng(other, "ann", here, time.Hour), 401, challenge(invalid, not)},
				{"no rule", as(i.Token(here)), 403, ""},
			} {
				q := from(peerOf(n), loopback, e.method, e.path, tc.header...)
				a := r.answer(q)
				if got := a.Header().Get("WWW-Authenticate"); a.Code != tc.status || got != tc.want {
					t.Errorf("%s %s with %s: %d %s, want %s", e.method, e.path, tc.name, a.Code, got, tc.want)
				}
				kind := map[int]string{401: "unauthorized", 403: "denied"}[tc.status]
				if got := gjson.Get(a.Body.String(), "error.data.bridge").Str; got != kind {
					t.Errorf("%s %s with %s: %s", e.method, e.path, tc.name, a.Body)
				}
			}
		}
		// N-05: a token in the query is none.
		q := from(peer, loopback, "POST", "/mcp?access_token="+i.Token(here, authtest.Claims{"groups": "eng"}))
		if a := r.answer(q); a.Code != 401 || strings.Contains(a.Header().Get("WWW-Authenticate"), "error") {
			t.Errorf("in the query: %d %v", a.Code, a.Header())
		}
		if r.f.Opened() > 0 {
			t.Error("a server was started")
		}
	})
}

// Each endpoint says for which address tokens have to be, and who issues them: to all,
// at the place where the standard has it, and below the base (I-001 to I-006).
func TestMetadata(t *testing.T) {
	const own = "/.well-known/oauth-protected-resource"
	for _, tc := range []struct {
		public, base, path, resource, name string
	}{
		{"", "", own, here, "mcp-bridge"}, {"", "", own + "/", here, "mcp-bridge"}, {"", "", own + "/mcp", here + "/mcp", "mcp-bridge"},
		{"", "", own + "/one/mcp", here + "/one/mcp", "one"}, {"", "", own + "/two/sse", here + "/two/sse", "two"}, {"", "", own + "/sse", here + "/sse", "mcp-bridge"},
		{"", "", own + "/three/mcp", "", ""}, {"", "", own + "/one", "", ""}, {"", "", own + "/one/messages", "", ""}, {"", "", own + "/one/mcp/", here + "/one/mcp", "one"},
		{"", "", own + "one/mcp", "", ""}, {"", "", own + "/healthz", "", ""}, {"", "", own + "//mcp", "", ""},
		{"https://mcp.example.com", "", own + "/one/mcp", "https://mcp.example.com/one/mcp", "one"},
		{"https://mcp.example.com", "/a/b", own + "/a/b/one/mcp", "https://mcp.example.com/a/b/one/mcp", "one"},
		{"https://mcp.example.com", "/a/b", "/a/b" + own + "/one/mcp", "https://mcp.example.com/a/b/one/mcp", "one"},
		{"https://mcp.example.com", "/a/b", own + "/a/b", "https://mcp.example.com/a/b", "mcp-bridge"},
		{"https://mcp.example.com", "/a/b", "/a/b" + own, "https://mcp.example.com/a/b", "mcp-bridge"},
		{"https://mcp.example.com", "/a/b", own, "", ""}, {"https://mcp.example.com", "/a/b", own + "/one/mcp", "", ""},
		{"https://mcp.example.com", "/a/b", own + "/a/bc/one/mcp", "", ""},
	} {
		identified(t, func(c *config.Config) { c.PublicURL, c.BasePath = tc.public, tc.base }, func(t *testing.T, r *rig, i *authtest.Issuer) {
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST"} {
				// A page of any site may look; what proxies say of names is not believed.
				a := r.answer(from(peer, loopback, method, tc.path, "Origin", "https://inspector.example.com", "X-Forwarded-Host", "evil.example.com", "Sec-Fetch-Site", "cross-site"))
				want := map[string]int{"GET": 200, "HEAD": 200, "OPTIONS": 204, "POST": 405}[method]
				if tc.resource == "" && (method == "GET" || method == "HEAD") {
					want = a.Code
					if a.Code != 404 && a.Code != 403 { // 403 where the guard has not taken it for metadata
						t.Errorf("%s %s below %q: %d %s", method, tc.path, tc.base, a.Code, a.Body)
					}
				}
				if tc.resource == "" {
					continue
				}
				if a.Code != want || a.Header().Get("Access-Control-Allow-Origin") != "*" || strings.Contains(a.Body.String(), "evil") {
					t.Errorf("%s %s: %d %v %s", method, tc.path, a.Code, a.Header(), a.Body)
				}
				if method == "OPTIONS" && !strings.Contains(a.Header().Get("Access-Control-Allow-Headers"), "MCP-Protocol-Version") {
					t.Errorf("OPTIONS %s: %v", tc.path, a.Header())
				}
				if method != "GET" {
					continue
				}
				body := fmt.Sprintf(`{"resource":%q,"authorization_servers":["https://idp.example.com"],"bearer_methods_supported":["header"],"scopes_supported":["mcp:use"],"resource_name":%q}`, tc.resource, tc.name)
				if a.Body.String() != body || a.Header().Get("Content-Type") != "application/json" || a.Header().Get("Cache-Control") != "max-age=300" {
					t.Errorf("%s: %v %s, want %s", tc.path, a.Header(), a.Body, body)
				}
				// The challenge names an address that has it.
				if tc.name == "one" {
					a := r.answer(from(peer, loopback, "POST", tc.base+"/one/mcp"))
					if got := a.Header().Get("WWW-Authenticate"); !strings.Contains(got, `resource_metadata="`+strings.TrimSuffix(tc.resource, "/one/mcp")+own+`/one/mcp"`) {
						t.Errorf("below %q: %s", tc.base, got)
					}
				}
			}
			if a := r.answer(from(peer, loopback, "GET", tc.path, "Host", "evil.example.com")); a.Code != 403 {
				t.Errorf("under another name: %d", a.Code)
			}
		})
	}
}

// Without public_url the caller does not choose for which address its token has to be:
// only the bridge's own address on loopback counts (I-002).
func TestOwnHost(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		const beyond = "192.0.2.1:8808"
		for _, tc := range []struct {
			at, host string
			status   int
		}{
			{loopback, "127.0.0.1:8808", 200}, {loopback, "localhost:8808", 200}, {loopback, "[::1]:8808", 200},
			{loopback, "localhost:9000", 401}, {loopback, "localhost", 401}, {beyond, "localhost:8808", 401}, {beyond, "mcp.example.com", 401}, {beyond, "192.0.2.1:8808", 401},
		} {
			token := i.Token("http://"+tc.host, authtest.Claims{"groups": "eng"})
			q := from(peer, tc.at, "GET", "/metrics", append(as(token), "Host", tc.host)...)
			a := r.answer(q)
			if a.Code != tc.status {
				t.Errorf("at %s for %s: %d %s, want %d", tc.at, tc.host, a.Code, a.Body, tc.status)
			}
			if got := a.Header().Get("WWW-Authenticate"); a.Code == 401 && (strings.Contains(got, tc.host) || !strings.Contains(got, "public_url")) {
				t.Errorf("at %s for %s: %s", tc.at, tc.host, got)
			}
			a = r.answer(from(peer, tc.at, "GET", "/.well-known/oauth-protected-resource/one/mcp", "Host", tc.host))
			if want := map[int]int{200: 200, 401: 404}[tc.status]; a.Code != want {
				t.Errorf("the metadata at %s for %s: %d %s, want %d", tc.at, tc.host, a.Code, a.Body, want)
			}
		}
		q := from(peer, loopback, "GET", "/metrics", as(i.Token(here, authtest.Claims{"groups": "eng"}))...)
		if a := r.answer(q.WithContext(t.Context())); a.Code != 401 { // a program that does not say where it came in
			t.Errorf("at an address that is not known: %d", a.Code)
		}
	})
}

// A rule of a program that has no text for its key lets nobody in.
func TestRuleForNobody(t *testing.T) {
	identified(t, func(c *config.Config) { c.Access = []config.Access{{Name: "ci"}} }, func(t *testing.T, r *rig, i *authtest.Issuer) {
		if a := r.answer(from(peer, loopback, "GET", "/metrics", as(i.Token(here))...)); a.Code != 403 {
			t.Errorf("%d %s", a.Code, a.Body)
		}
	})
}

// Bad tokens are no guesses at keys: their clients are told each time how to get in.
func TestTokenIsNoGuess(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		other := authtest.New(t, i.URL)
		foreign := authtest.New(t, "https://other.example.com")
		for n := range 2 * access.WrongAtOnce {
			for _, who := range [][]string{eng(other, "ann", here, time.Hour), eng(foreign, "ann", here, time.Hour)} {
				if a := r.answer(from(peer, loopback, "POST", "/one/mcp", who...)); a.Code != 401 || !strings.Contains(a.Header().Get("WWW-Authenticate"), "resource_metadata") {
					t.Fatalf("token %d: %d %v", n, a.Code, a.Header())
				}
			}
		}
		for _, guess := range []string{wrongKey, "YWJj.YWJj.YWJj"} {
			other := peerOf(len(guess))
			for range access.WrongAtOnce {
				r.answer(from(other, loopback, "POST", "/one/mcp", as(guess)...))
			}
			if a := r.answer(from(other, loopback, "POST", "/one/mcp", as(guess)...)); a.Code != 429 {
				t.Errorf("%s: %d", guess, a.Code)
			}
		}
	})
}

// A token is good at its endpoint, and one of the bridge as a whole everywhere. What its
// rule is for is what it gets (I-016, I-050, N-53).
func TestUsers(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		guest := func(audience string) []string { return as(i.Token(audience, authtest.Claims{"sub": "guest-1"})) }
		for _, tc := range []struct {
			path   string
			header []string
			status int
		}{
			{"/one/mcp", eng(i, "ann", here+"/one/mcp", time.Hour), 200}, {"/one/mcp", eng(i, "ann", here, time.Hour), 200}, {"/one/mcp", eng(i, "ann", here+"/", time.Hour), 200},
			{"/two/mcp", eng(i, "ann", here+"/one/mcp", time.Hour), 401}, {"/mcp", eng(i, "ann", here+"/mcp", time.Hour), 200}, {"/one/mcp", eng(i, "ann", here+"/mcp", time.Hour), 401},
			{"/one/mcp", guest(here), 200}, {"/two/mcp", guest(here), 404}, {"/mcp", guest(here), 200},
			{"/one/mcp", as(aliceKey), 200}, {"/one/mcp", []string{"X-API-Key", bobKey}, 200}, {"/two/mcp", as(bobKey), 404},
		} {
			if a := r.Do("POST", tc.path, initialize, tc.header...).Wait(); a.Status() != tc.status {
				t.Errorf("%s with %.60q: %d %s, want %d", tc.path, tc.header, a.Status(), a.Body(), tc.status)
			}
		}
		for _, tc := range []struct {
			who  []string
			want string
		}{{guest(here), "Unknown tool"}, {eng(i, "ann", here, time.Hour), `"result":{"echo"`}} {
			a := r.Do("POST", "/one/mcp", initialize, tc.who...).Wait()
			a = r.Do("POST", "/one/mcp", call("1", "echo"), append(tc.who, "Mcp-Session-Id", a.Header("Mcp-Session-Id"))...).Wait()
			if !strings.Contains(a.Body(), tc.want) {
				t.Errorf("echo: %s, want %s", a.Body(), tc.want)
			}
		}
	})
}

// The log says of each cause why requests were turned away, and what an aud is that does not
// count. A client begins without a token: that hides nothing else.
func TestTurnedAwayLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		var out bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), users(i), "one")
		said := func() (lines []string) {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, "request rejected") {
					lines = append(lines, line)
				}
			}
			out.Reset()
			return lines
		}
		for _, tc := range []struct {
			name   string
			header []string
			want   []string // parts of the one line; nil for none
		}{
			{"nothing", nil, []string{"level=DEBUG", "the request has no key"}},
			{"for somebody else", eng(i, "ann", "my-api", time.Hour), []string{"level=INFO", `its aud [\"my-api\"] must have`, "more=0"}},
			{"the same", eng(i, "ann", "my-api", time.Hour), nil},
			{"too old", eng(i, "ann", here, -time.Hour), []string{"level=INFO", "the token has expired"}},
			{"a wrong key", []string{"X-API-Key", "s3cr3t-that-is-wrong"}, []string{"level=INFO", "the key of the request is not valid"}},
		} {
			if a := r.Do("POST", "/one/mcp", initialize, tc.header...).Wait(); a.Status() != 401 {
				t.Errorf("%s: %d %s", tc.name, a.Status(), a.Body())
			}
			lines := said()
			if len(lines) != min(len(tc.want), 1) {
				t.Errorf("%s: %q, want %q", tc.name, lines, tc.want)
				continue
			}
			for _, part := range tc.want {
				if !strings.Contains(lines[0], part) || strings.Contains(lines[0], "s3cr3t") {
					t.Errorf("%s: %s, want %s", tc.name, lines[0], part)
				}
			}
		}
		time.Sleep(access.RejectedLogEvery)
		r.Do("POST", "/one/mcp", initialize, eng(i, "ann", "my-api", time.Hour)...).Wait()
		if lines := said(); len(lines) != 1 || !strings.Contains(lines[0], "more=1") {
			t.Errorf("later: %q", lines)
		}
	})
}

// A session is its user's, whatever token of its own that shows; nobody else's can use
// it (I-010, N-50). Calls under way are answered when the token ends meanwhile; streams
// end with the last one that was shown (I-027, N-51).
func TestTokenSessions(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		ann := eng(i, "ann", here, 10*time.Minute)
		id := r.Do("POST", "/one/mcp", initialize, ann...).Wait().Header("Mcp-Session-Id")
		in := func(who []string) []string { return append(who[:2:2], "Mcp-Session-Id", id) }
		for name, tc := range map[string]struct {
			who    []string
			status int
		}{
			"the same token": {ann, 200}, "a newer one": {eng(i, "ann", here, 20*time.Minute), 200}, "N-50 another user": {eng(i, "bob", here, time.Hour), 404},
			"a key": {as(aliceKey), 404}, "nothing": {[]string{"X", "y"}, 401}, "one that has ended": {eng(i, "ann", here, -time.Minute), 401},
			"another rule": {as(i.Token(here, authtest.Claims{"sub": "guest-1"})), 404},
		} {
			if a := r.Do("POST", "/one/mcp", call("1", "echo"), in(tc.who)...).Wait(); a.Status() != tc.status {
				t.Errorf("with %s: %d %s, want %d", name, a.Status(), a.Body(), tc.status)
			}
		}

		late := r.Do("POST", "/one/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"late","arguments":{"after":"4m"}}}`, in(eng(i, "ann", here, time.Minute))...)
		stream := r.Do("GET", "/one/mcp", "", in(ann)...)
		other := eng(i, "bob", here, 3*time.Minute)
		otherID := r.Do("POST", "/one/mcp", initialize, other...).Wait().Header("Mcp-Session-Id")
		short := r.Do("GET", "/one/mcp", "", append(other, "Mcp-Session-Id", otherID)...)
		time.Sleep(4*time.Minute - time.Second)
		synctest.Wait()
		if !short.Over() || stream.Over() || stream.Status() != 200 {
			t.Fatalf("after 4 minutes the stream of bob is over: %t; that of ann: %t (%d)", short.Over(), stream.Over(), stream.Status())
		}
		time.Sleep(2 * time.Second)
		if r := late.Wait(); !strings.Contains(r.Body(), `"late":true`) {
			t.Errorf("a call that its token ended in: %d %s", r.Status(), r.Body())
		}
		// A newer token moves the end on.
		r.Do("POST", "/one/mcp", call("3", "echo"), in(eng(i, "ann", here, 10*time.Minute))...).Wait() // until about 14 min
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		if stream.Over() {
			t.Error("the stream has ended although a newer token was shown")
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if !stream.Over() {
			t.Error("the stream goes on without a good token")
		}
	})
	// A token for another server does not move the end on, and a key that its issuer takes
	// back ends streams.
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		open := func(life time.Duration) (id string, stream *wiretest.Reply) {
			who := eng(i, "ann", here+"/one/mcp", life)
			id = r.Do("POST", "/one/mcp", initialize, who...).Wait().Header("Mcp-Session-Id")
			return id, r.Do("GET", "/one/mcp", "", append(who, "Mcp-Session-Id", id)...)
		}
		id, short := open(5 * time.Minute)
		_, long := open(time.Hour)
		r.Do("POST", "/two/mcp", call("1", "echo"), append(eng(i, "ann", here+"/two/mcp", time.Hour), "Mcp-Session-Id", id)...).Wait()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if !short.Over() || long.Over() {
			t.Errorf("after a token for another server the stream is over: %t; the other one: %t", short.Over(), long.Over())
		}
		i.Set(authtest.NewKey(t, "k2", "ES256"))
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		if !long.Over() {
			t.Error("the stream goes on without the key of its token")
			long.Leave()
		}
	})
	// HTTP+SSE: the stream is the session, and a POST renews it.
	for _, renewed := range []bool{true, false} {
		identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
			stream := r.Do("GET", "/one/sse", "", eng(i, "ann", here, 5*time.Minute)...)
			synctest.Wait()
			_, endpoint, _ := strings.Cut(stream.Body(), "data: ")
			endpoint, _, _ = strings.Cut(endpoint, "\n")
			if renewed {
				if a := r.Do("POST", endpoint, initialize, eng(i, "ann", here, 15*time.Minute)...).Wait(); a.Status() != 202 {
					t.Fatalf("initialize at %q: %d %s", endpoint, a.Status(), a.Body())
				}
			}
			if a := r.Do("POST", endpoint, initialize, eng(i, "bob", here, time.Hour)...).Wait(); a.Status() != 404 {
				t.Errorf("another user's session: %d %s", a.Status(), a.Body())
			}
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			if stream.Over() == renewed {
				t.Errorf("renewed %t: the stream is over %t", renewed, stream.Over())
			}
			stream.Leave()
		})
	}
	// Clients without a session: a subscription ends, a call does not.
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		body, header := modernCall("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
		stream := r.Do("POST", "/one/mcp", body, append(header, eng(i, "ann", here, 2*time.Minute)...)...)
		for n := range header {
			header[n] = strings.ReplaceAll(header[n], "subscriptions/listen", "=?base64?c3Vic2NyaXB0aW9ucy9saXN0ZW4=?=")
		}
		encoded := r.Do("POST", "/one/mcp", body, append(header, eng(i, "ann", here, 2*time.Minute)...)...)
		body, header = modernCall("tools/call", `"name":"late","arguments":{"after":"4m"},`)
		late := r.Do("POST", "/one/mcp", body, append(append(header, "Mcp-Name", "late"), eng(i, "ann", here, 2*time.Minute)...)...)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if stream.Over() || encoded.Over() || encoded.Status() != 200 {
			t.Fatalf("the subscription is over too early: %d %s; %d %s", stream.Status(), stream.Body(), encoded.Status(), encoded.Body())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !stream.Over() || !encoded.Over() || late.Over() {
			t.Errorf("after its token, the subscription is over: %t; in the other form: %t; the call: %t", stream.Over(), encoded.Over(), late.Over())
		}
		if r := late.Wait(); !strings.Contains(r.Body(), `"late":true`) {
			t.Errorf("the call: %d %s", r.Status(), r.Body())
		}
	})
}

// N-48 and I-022: tokens that cannot be checked are not refused, and who has a key does
// not notice. Operators see it (I-030).
func TestIssuerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		i.Answer("/jwks", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, nil)), users(i), "one", "two")
		a := r.Do("POST", "/one/mcp", initialize, eng(i, "ann", here, time.Hour)...).Wait()
		if a.Status() != 503 || a.Header("Retry-After") == "" || a.Header("WWW-Authenticate") != "" || gjson.Get(a.Body(), "error.data.bridge").Str != "unavailable_identity" {
			t.Errorf("%d %s", a.Status(), a.Body())
		}
		if a := r.Do("POST", "/one/mcp", initialize, as(aliceKey)...).Wait(); a.Status() != 200 {
			t.Errorf("with a key: %d %s", a.Status(), a.Body())
		}
		look := func(who []string) string {
			return r.Do("GET", "/readyz", "", append([]string{"Accept", "application/json"}, who...)...).Wait().Body()
		}
		if got := look(as(aliceKey)); gjson.Get(got, "issuers.0.state").Str != "unreachable" || !strings.Contains(got, "500") {
			t.Errorf("/readyz: %s", got)
		}
		if got := look(as(bobKey)); strings.Contains(got, "idp.example.com") {
			t.Errorf("/readyz for one who is no operator: %s", got)
		}
		i.Answer("/jwks", nil)
		time.Sleep(31 * time.Second)
		if a := r.Do("POST", "/one/mcp", initialize, eng(i, "ann", here, time.Hour)...).Wait(); a.Status() != 200 {
			t.Errorf("when it is back: %d %s", a.Status(), a.Body())
		}
		if got := look(eng(i, "ann", here, time.Hour)); gjson.Get(got, "issuers.0.state").Str != "ok" {
			t.Errorf("/readyz: %s", got)
		}
		metrics := r.Do("GET", "/metrics", "", eng(i, "ann", here, time.Hour)...).Wait().Body()
		for _, want := range []string{
			`mcp_bridge_auth_total{result="unavailable"} 1`, `mcp_bridge_auth_total{result="ok"} `, `mcp_bridge_jwks_age_seconds{issuer="https://idp.example.com"} `,
			`mcp_bridge_jwks_fetches_total{issuer="https://idp.example.com"} `, `mcp_bridge_jwks_fetch_failures_total{issuer="https://idp.example.com"} `,
		} {
			if !strings.Contains(metrics, "\n"+want) {
				t.Errorf("/metrics has no %s", want)
			}
		}
		if strings.Contains(log.String(), "eyJ") {
			t.Errorf("the log has a token:\n%s", &log)
		}
	})
}

// N-84: a token that a client shows reaches nobody: no server, no log, no answer (I-029, I-058).
func TestTokenStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), users(i), "one", "two")
		who := eng(i, "ann", here, time.Hour)
		parts := strings.Split(strings.TrimPrefix(who[1], "Bearer "), ".")
		a := r.Do("POST", "/one/mcp", initialize, who...).Wait()
		id := a.Header("Mcp-Session-Id")
		answers := a.Body()
		for _, body := range []string{call("1", "echo"), call("2", "quit"), call("3", "none"), `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`, "junk"} {
			answers += r.Do("POST", "/one/mcp", body, append(who[:2:2], "Mcp-Session-Id", id)...).Wait().Body()
		}
		bad := append(who[:1:1], who[1]+"x")
		answers += r.Do("POST", "/one/mcp", initialize, bad...).Wait().Body() + r.Do("GET", "/readyz", "", who...).Wait().Body() + r.Do("GET", "/metrics", "", who...).Wait().Body()
		sent := strings.Join(r.f.Got(), "\n")
		if sent == "" || answers == "" || log.Len() == 0 {
			t.Fatal("nothing was looked at")
		}
		for what, text := range map[string]string{"a server": sent, "a client": answers, "the log": log.String()} {
			for _, part := range parts {
				if strings.Contains(text, part) {
					t.Errorf("%s has got a part of the token", what)
				}
			}
		}
	})
}

// Tokens that only their issuer can read let users in as others do. When it cannot be
// asked, that is said, and nobody else notices (I-024, I-025, N-48). Neither the tokens
// nor the secret of the bridge are in the log.
func TestOpaque(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		status := 200
		i.Answer("/introspect", func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			raw := r.PostForm.Get("token")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(i.Claims(here, authtest.Claims{"active": strings.HasPrefix(raw, "opaque"), "sub": raw, "groups": []string{"eng"}}))
		})
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), func(c *config.Config) {
			users(i)(c)
			c.OAuth[0].Introspection = config.Introspection{Client: config.OAuthClient{ID: "bridge", Secret: "the-bridges-secret"}}
		}, "one", "two")
		for who, want := range map[string]int{"opaque-of-ann": 200, "opaque-of-bob": 200, "nothing-of-eve": 401, i.Token(here, authtest.Claims{"groups": "eng"}): 200, aliceKey: 200} {
			if a := r.Do("POST", "/one/mcp", initialize, as(who)...).Wait(); a.Status() != want {
				t.Errorf("%s: %d %s", who, a.Status(), a.Body())
			}
		}
		id := r.Do("POST", "/one/mcp", initialize, as("opaque-of-ann")...).Wait().Header("Mcp-Session-Id")
		for who, want := range map[string]int{"opaque-of-ann": 200, "opaque-of-bob": 404, aliceKey: 404} {
			if a := r.Do("POST", "/one/mcp", call("1", "echo"), append(as(who), "Mcp-Session-Id", id)...).Wait(); a.Status() != want {
				t.Errorf("the session of ann with %s: %d %s", who, a.Status(), a.Body())
			}
		}
		status = 500
		a := r.Do("POST", "/one/mcp", initialize, as("opaque-of-cid")...).Wait()
		if a.Status() != 503 || a.Header("Retry-After") == "" || a.Header("WWW-Authenticate") != "" || gjson.Get(a.Body(), "error.data.bridge").Str != "unavailable_identity" {
			t.Errorf("when it cannot be asked: %d %s", a.Status(), a.Body())
		}
		for _, who := range []string{"opaque-of-ann", i.Token(here, authtest.Claims{"groups": "eng"}), aliceKey} {
			if a := r.Do("POST", "/one/mcp", initialize, as(who)...).Wait(); a.Status() != 200 {
				t.Errorf("meanwhile, %s: %d %s", who, a.Status(), a.Body())
			}
		}
		ready := r.Do("GET", "/readyz", "", "Accept", "application/json", "Authorization", "Bearer "+aliceKey).Wait().Body()
		if gjson.Get(ready, "issuers.0.state").Str != "unreachable" || !strings.Contains(ready, "500") {
			t.Errorf("/readyz: %s", ready)
		}
		metrics := r.Do("GET", "/metrics", "", as(aliceKey)...).Wait().Body()
		for _, want := range []string{`mcp_bridge_introspections_total{issuer="https://idp.example.com"} 4`, `mcp_bridge_introspection_failures_total{issuer="https://idp.example.com"} 1`} {
			if !strings.Contains(metrics, "\n"+want) {
				t.Errorf("/metrics has no %s", want)
			}
		}
		if text := log.String(); strings.Contains(text, "Bearer") || strings.Contains(text, "nothing-of-eve") || strings.Contains(text, "the-bridges-secret") || !strings.Contains(text, "introspection fails") {
			t.Errorf("the log:\n%s", text)
		}
	})
}

// Who makes tokens up has the issuer asked about so many only; tokens that were good count
// meanwhile, and so do users whose tokens have ended.
func TestMadeUp(t *testing.T) {
	identified(t, func(c *config.Config) {
		c.OAuth[0].Introspection = config.Introspection{Client: config.OAuthClient{ID: "bridge", Secret: "the-bridges-secret"}, Always: true}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		good := true
		i.Answer("/introspect", func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			raw := r.PostForm.Get("token")
			_ = json.NewEncoder(w).Encode(i.Claims(here, authtest.Claims{"active": good && strings.HasPrefix(raw, "opaque"), "sub": raw, "groups": []string{"eng"}}))
		})
		ask := func(raw string) int { return r.Do("POST", "/one/mcp", initialize, as(raw)...).Wait().Status() }
		if got := ask("opaque-of-ann"); got != 200 {
			t.Fatal(got)
		}
		other := authtest.NewKey(t, "k", "ES256")
		for _, form := range []string{"nothing-%d", "a JSON Web Token"} {
			before, refused := i.Asked("/introspect"), 0
			for n := range 3 * access.WrongAtOnce {
				raw := fmt.Sprintf("nothing-%d", n)
				if form != "nothing-%d" {
					raw = other.Sign(t, nil, i.Claims(here, authtest.Claims{"jti": fmt.Sprint(n)}))
				}
				if ask(raw) == 429 {
					refused++
				}
			}
			if asked := i.Asked("/introspect") - before; asked != access.WrongAtOnce+1 && asked != access.WrongAtOnce || refused+access.WrongAtOnce != 3*access.WrongAtOnce {
				t.Errorf("%s: %d questions, %d refused", form, asked, refused)
			}
			if got := ask("opaque-of-bob"); got != 429 {
				t.Errorf("%s: one that was never shown before: %d", form, got)
			}
			time.Sleep(config.Default().SessionIdle / 30)
			if got := ask("opaque-of-ann"); got != 200 {
				t.Errorf("%s: one that was good: %d", form, got)
			}
			time.Sleep(access.WrongAtOnce * access.WrongEvery)
		}
		good = false
		for n := range 3 * access.WrongAtOnce {
			if got := ask("opaque-of-ann"); got != 401 {
				t.Fatalf("one that was revoked, for the %d. time: %d", n, got)
			}
			time.Sleep(time.Second)
		}
	})
}

// Made-up tokens that come all at once have the issuer asked about so many only, too, also
// if their sender does not wait for the answers. Good ones wait for their turn.
func TestMadeUpAtOnce(t *testing.T) {
	identified(t, func(c *config.Config) {
		c.OAuth[0].Introspection = config.Introspection{Client: config.OAuthClient{ID: "bridge", Secret: "the-bridges-secret"}}
	}, func(t *testing.T, r *rig, i *authtest.Issuer) {
		var hold chan struct{}
		i.Answer("/introspect", func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			raw := r.PostForm.Get("token")
			<-hold
			_ = json.NewEncoder(w).Encode(i.Claims(here, authtest.Claims{"active": strings.HasPrefix(raw, "opaque"), "sub": raw, "groups": []string{"eng"}}))
		})
		// wave shows tokens at once, and returns how many answers have which status.
		wave := func(method, name string, n int, leave bool) map[int]int {
			hold = make(chan struct{})
			before := i.Asked("/introspect")
			var all []*wiretest.Reply
			for k := range n {
				all = append(all, r.Do(method, "/one/mcp", map[string]string{"POST": initialize}[method], as(fmt.Sprintf("%s-%d", name, k))...))
			}
			synctest.Wait()
			if asked := i.Asked("/introspect") - before; asked != access.WrongAtOnce {
				t.Errorf("%s: %d questions are under way, want %d", name, asked, access.WrongAtOnce)
			}
			if leave {
				for _, r := range all {
					r.Leave()
				}
				synctest.Wait()
			}
			close(hold)
			got := map[int]int{}
			for _, r := range all {
				got[r.Wait().Status()]++
			}
			synctest.Wait()
			return got
		}
		before := i.Asked("/introspect")
		if got := wave("POST", "nothing", 100, false); got[401] != access.WrongAtOnce || got[429] != 100-access.WrongAtOnce {
			t.Errorf("made up: %v", got)
		}
		if asked := i.Asked("/introspect") - before; asked != access.WrongAtOnce {
			t.Errorf("made up: %d questions", asked)
		}
		time.Sleep(access.WrongAtOnce * access.WrongEvery)
		if got := wave("POST", "opaque", 60, false); got[200] != 60 {
			t.Errorf("good: %v", got)
		}
		wave("GET", "left", access.WrongAtOnce, true)
		if got := r.Do("POST", "/one/mcp", initialize, as("one-more")...).Wait().Status(); got != 429 {
			t.Errorf("after many whose sender has left: %d", got)
		}
	})
}

// The bridge says what it makes of a key or a token, or why that does not count.
func TestWhoami(t *testing.T) {
	identified(t, nil, func(t *testing.T, r *rig, i *authtest.Issuer) {
		guest := as(i.Token(here, authtest.Claims{"sub": "guest-1", "scope": "b a", "exp": time.Now().Add(time.Minute).Unix()}))
		for _, tc := range []struct {
			path   string
			who    []string
			status int
			want   string
		}{
			{"/whoami", guest, 200, `{"principal":"guests/https://idp.example.com#guest-1","rule":"guests","issuer":"https://idp.example.com","subject":"guest-1","client":"app","scopes":["a","b"],"until":"2000-01-01T00:01:30Z","servers":["one"]}`},
			{"/whoami", as(aliceKey), 200, `{"principal":"alice","rule":"alice","servers":["one","two"]}`},
			{"/whoami", eng(i, "ann", here+"/one/mcp", time.Hour), 401, "not for this resource (" + here + ")"},
			{"/whoami?for=/one/mcp", eng(i, "ann", here+"/one/mcp", time.Hour), 200, `"subject":"ann"`},
			{"/whoami?for=/two/mcp", eng(i, "ann", here+"/one/mcp", time.Hour), 401, "not for this resource (" + here + "/two/mcp)"},
			{"/whoami?for=https://evil.example.com", eng(i, "ann", here+"/one/mcp", time.Hour), 401, "not for this resource (" + here + ")"},
			{"/whoami", eng(i, "ann", here, -time.Hour), 401, "the token has expired"},
			{"/whoami", as(i.Token(here)), 403, "no access rule admits this user"},
			{"/whoami", nil, 401, "missing key or token"},
		} {
			a := r.Do("GET", tc.path, "", tc.who...).Wait()
			body := strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(a.Body())
			if a.Status() != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %d %s, want %s", tc.path, a.Status(), body, tc.want)
			}
		}
		if a := r.Do("POST", "/whoami", "{}", guest...).Wait(); a.Status() != 405 {
			t.Errorf("POST: %d", a.Status())
		}
	})
	run(t, nil, []string{"one"}, func(t *testing.T, r *rig) {
		if a := r.Do("GET", "/whoami", "").Wait(); a.Status() != 200 || strings.Join(strings.Fields(a.Body()), "") != `{"servers":["one"]}` {
			t.Errorf("without access rules: %d %s", a.Status(), a.Body())
		}
	})
}
