package server

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

var update = flag.Bool("update", false, "write testdata/answers.txt anew")

// asked are paths below the base, or whole ones where they begin with a space: each way to
// write those that there are, and what is nearly one of them.
var asked = []string{
	"", "/", "//", "/.", "/..",
	"/mcp", "/mcp/", "/mcp//", "//mcp", "/MCP", "/mcp/x", "/mcpx", "/mc", "/./mcp", "/x/../mcp", "/%6dcp", "/mcp?x=/y", "/mcp%2f", "/mcp%00",
	"/sse", "/sse/", "/messages", "/messages/", "/message",
	"/one/mcp", "/one/mcp/", "/one//mcp", "//one/mcp", "/one/mcp/x", "/one/mcp/mcp", "/one", "/one/", "/One/mcp", "/one/x", "/one%2fmcp", "/one/sse", "/one/sse/", "/one/messages", "/one/messages/",
	"/two/mcp", "/three/mcp", "/three/sse", "/three/messages", "/three/x", "/three", "/one/two/mcp", "/:server/mcp", "/one%0A/mcp", "/o%FFne/mcp", "/%20/mcp", "/ui/%0A", "/ui/mcp/%0A", "/*/mcp", "/é/mcp",
	// Servers whose names are those of other paths, or begin as these do.
	"/h/mcp", "/health/mcp", "/health/sse", "/whoami/mcp", "/ready/mcp", "/u/mcp", "/ui-x/mcp", "/m/mcp", "/mc/mcp", "/metric/mcp", "/metricsx/mcp", "/hook/mcp", "/s/mcp", "/ss/sse", "/o/mcp", "/on/mcp", "/tok/mcp", "/token/mcp", "/authorize/mcp", "/register/mcp",
	"/mcp/mcp", "/sse/sse", "/healthz/mcp", "/readyz/sse", "/metrics/mcp",
	"/healthz", "/healthz/", "/health", "/health/", "/readyz", "/readyz/", "/ready", "/healthzz", "/health/z", "/HEALTHZ",
	"/whoami", "/whoami/", "/whoami?for=/one/mcp", "/whoami?for=/three/mcp", "/whoami/x", "/metrics", "/metrics/", "/metrics/x",
	"/hooks", "/hooks/", "/hooks/one", "/hooks/one/", "/hooks/one/x", "/hooks/two", "/hooks/three", "/hooks/mcp", "/hooks/mcp/", "/hooks/%6fne", "/hooks//one",
	"/ui", "/ui/", "/ui//", "/ui/login", "/ui/login/", "/ui/logout", "/ui/nothing.js", "/ui/a/b/c", "/ui/a/", "/ui/mcp", "/ui/mcp/", "/ui/mcp/one", "/ui/mcp/one/", "/ui/mcp/two", "/ui/mcp/three", "/ui/mcp/one/mcp", "/ui/mcp//one", "/ui/sse", "/ui/sse/", "/ui/messages",
	"/ui/api", "/ui/api/", "/ui/api/v1", "/ui/api/v1/", "/ui/api/v1/me", "/ui/api/v1/me/", "/ui/api/v1/nothing", "/ui/api/v1/servers/one", "/ui/api/v1/drain", "/ui/api/v2/me", "/ui//api/v1/me", "/uix", "/ui.", "/ui/mcpx",
	"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource//", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp/", "/.well-known/oauth-protected-resource/one/mcp", "/.well-known/oauth-protected-resource/one/sse", "/.well-known/oauth-protected-resource/one/messages", "/.well-known/oauth-protected-resource/three/mcp", "/.well-known/oauth-protected-resource/one", "/.well-known/oauth-protected-resourcemcp", "/.well-known/oauth-protected-resource/one%2fmcp",
	"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/", "/.well-known/oauth-authorization-server/one/mcp", "/.well-known/openid-configuration", "/.well-known/", "/.well-known", "/.well-known/mcp", "/one/.well-known/oauth-protected-resource",
	"/authorize", "/authorize/", "/oauth/consent", "/oauth/callback", "/token", "/token/", "//token", "/register", "/oauth/revoke", "/oauth/jwks", "/oauth", "/oauth/", "/oauth/mcp",
	" /", " /tools", " /toolsx", " /tool", " /tools/tools/mcp", " /mcp", " /one/mcp", " /healthz", " /ui/",
	" /.well-known/oauth-protected-resource/tools", " /.well-known/oauth-protected-resource/tools/", " /.well-known/oauth-protected-resource/tools/one/mcp", " /.well-known/oauth-protected-resource/toolsx", " /.well-known/oauth-authorization-server/tools", " /.well-known/oauth-authorization-server/toolsx",
}

// ways are methods, and a preflight and what other pages send.
var ways = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW", "CONNECT", "preflight", "cross-site", "rebound"}

// varies is what no two answers have in common.
var varies = regexp.MustCompile(`sessionId=[^"\\\s]*|name=\\?"request\\?" value=\\?"[^"]*|v?[0-9]+\.[0-9]+\.[0-9]+-[0-9a-z.-]+|"(since|started_at|loaded_at)":"[^"]*"`)

// answersOf returns the answers to all that is asked, with those headers: one line for what
// paths have in common, in which each kind of answer has a number.
func answersOf(h http.Handler, base string, kinds *[]string, header ...string) (lines []string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // streams end behind their first event
	at := map[string]int{}
	for _, path := range asked {
		whole, ok := strings.CutPrefix(path, " ")
		if !ok {
			whole = base + path
		}
		var line, last string
		for _, way := range ways {
			method, more := way, header
			switch way {
			case "preflight":
				method, more = "OPTIONS", append(slices.Clone(header), "Origin", "http://localhost:1", "Access-Control-Request-Method", "POST")
			case "cross-site":
				method, more = "POST", append(slices.Clone(header), "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.com")
			case "rebound":
				method, more = "POST", append(slices.Clone(header), "Host", "evil.example.com")
			}
			target := cmp.Or(whole, "/")
			q := from(peer, loopback, method, "http://127.0.0.1:8808"+target, more...)
			q = q.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, q.Context().Value(http.LocalAddrContextKey)))
			if q.RequestURI = target; whole == "" {
				q.URL.Path, q.RequestURI = "", ""
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			got := kindOf(w)
			n := slices.Index(*kinds, got)
			if n < 0 {
				n = len(*kinds)
				*kinds = append(*kinds, got)
			}
			if now := fmt.Sprintf("=%d", n); now == last {
				line += "," + way
			} else {
				line += last + " " + way
				last = now
			}
		}
		line += last + ":"
		if _, was := at[line]; !was {
			at[line] = len(lines)
			lines = append(lines, line[1:])
		}
		lines[at[line]] += fmt.Sprintf(" %q", whole)
	}
	return lines
}

// kindOf returns what an answer is made of.
func kindOf(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprint(&b, w.Code)
	header := w.Result().Header
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name != "Mcp-Session-Id" && name != "Etag" && name != "Content-Length" {
			fmt.Fprintf(&b, "; %s: %s", name, strings.Join(header[name], " & "))
		}
	}
	text := w.Body.String()
	if w.Code == 200 && len(text) > 120 { // its shape is for other tests
		text = text[:20] + " ..."
	}
	fmt.Fprintf(&b, "; %q", text)
	if known[b.String()] == "" {
		known[b.String()] = varies.ReplaceAllString(b.String(), "~")
	}
	return known[b.String()]
}

// known has the kinds of answers as they came: most are the same as one before.
var known = map[string]string{}

// Each path is answered as it is written in testdata/answers.txt, to each method and to each
// kind of caller. Programs rely on it: clients that look whether there is OAuth, probes,
// and proxies whose rules are about paths. "make soak" asks in every set-up; other runs ask
// where each kind of route and of refusal is.
func TestAnswers(t *testing.T) {
	names := []string{"one", "two", "h", "health", "whoami", "ready", "u", "ui-x", "m", "mc", "metric", "hook", "s", "ss", "on", "tok", "token"}
	i := authtest.New(t, "https://idp.example.com")
	front := func(c *config.Config) {
		users(i)(c)
		c.PublicURL = here
		c.OAuth[0].Front = &config.Front{Client: &oauth.Client{ID: "bridge", Secret: "the-secret"}}
	}
	const file = "testdata/answers.txt"
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kinds, lines []string
	wrong := 0
	if !*update {
		for line := range strings.Lines(string(written)) {
			_, kind, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if !ok || line[0] < '0' || line[0] > '9' {
				break
			}
			kinds = append(kinds, kind)
		}
	}
	before := len(kinds)
	for _, tc := range []struct {
		name   string
		always bool
		change func(*config.Config)
		header []string
	}{
		{"open", true, nil, nil},
		{"open, below a path", false, func(c *config.Config) { c.BasePath = "/tools" }, nil},
		{"open, below a path with colons", false, func(c *config.Config) { c.BasePath = "/:a/b:c" }, nil},
		{"open, console off", false, func(c *config.Config) { c.Console = config.ConsoleOff }, nil},
		{"open, operators elsewhere", false, func(c *config.Config) { c.ConsoleListen = "127.0.0.1:1" }, nil},
		{"keys, none shown", true, private, nil},
		{"keys, none shown, public", false, func(c *config.Config) { private(c); c.PublicStatus = true }, nil},
		{"keys, alice", false, private, as(aliceKey)},
		{"keys, bob", true, func(c *config.Config) { private(c); c.Console = "on" }, as(bobKey)},
		{"tokens, none shown", true, users(i), nil},
		{"tokens, alice", false, users(i), as(aliceKey)},
		{"front, none shown", false, front, nil},
		{"front, alice, below a path", true, func(c *config.Config) { front(c); c.BasePath = "/tools" }, as(aliceKey)},
	} {
		if !(tc.always || scaletest.Whole || *update) {
			continue
		}
		r := newRig(t, tc.change, names...)
		r.s.table.Load().backends["one"].hook = newHook("secret", func(context.Context, []byte) (int, error) { return 3, nil })
		ask := func(name string, h http.Handler, base string) {
			got := answersOf(h, base, &kinds, tc.header...)
			lines = append(append(lines, "", "# "+name), got...)
			_, section, _ := strings.Cut(string(written), "\n# "+name+"\n")
			section, _, _ = strings.Cut(strings.TrimSuffix(section, "\n"), "\n\n")
			want := strings.Split(section, "\n")
			for n := range min(len(got), len(want)) {
				if got[n] != want[n] && !*update && wrong < 20 {
					t.Errorf("line %d of %q in %s (-update writes it anew):\ngot  %s\nwant %s", n+1, name, file, got[n], want[n])
					wrong++
				}
			}
			if len(got) != len(want) && !*update {
				t.Errorf("%d lines of %q, want %d", len(got), name, len(want))
			}
		}
		ask(tc.name, r.s.http.Handler, r.s.Config().BasePath)
		if tc.name == "keys, alice" {
			ask("at another path than base_path", r.s.HandlerAt("/tools"), "/tools")
		}
	}
	if !*update {
		for n, kind := range kinds[before:] {
			t.Errorf("no answer was like the kind %d: %s", before+n, kind)
		}
		return
	}
	var b strings.Builder
	for n, kind := range kinds {
		fmt.Fprintf(&b, "%d: %s\n", n, kind)
	}
	b.WriteString(strings.Join(lines, "\n") + "\n")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
