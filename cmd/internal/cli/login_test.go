package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// The test binary is the browser when the environment says so.
func init() {
	if os.Getenv("LOGIN_TEST_BROWSER") == "" {
		return
	}
	res, err := http.Get(os.Args[len(os.Args)-1])
	if err != nil {
		panic(err)
	}
	_ = res.Body.Close()
	os.Exit(0)
}

// signed is a server that wants people to sign in, with a folder for logins of its own, and
// a browser if there is one.
func signed(t *testing.T, browser bool) *oauthtest.Resource {
	t.Setenv("MCP_BRIDGE_STATE_DIR", t.TempDir())
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("BROWSER", "")
	if browser {
		t.Setenv("BROWSER", os.Args[0])
		t.Setenv("LOGIN_TEST_BROWSER", "1")
	}
	r := &oauthtest.Resource{Issuer: oauthtest.Serve(t), Next: newRemote(t, 0)}
	s := httptest.NewUnstartedServer(r)
	r.URL = "http://" + s.Listener.Addr().String() + "/mcp"
	s.Start()
	t.Cleanup(s.Close)
	return r
}

// login, logins and logout; connect uses what was kept, and asks nobody.
func TestLogin(t *testing.T) {
	r := signed(t, true)
	if code, out, _ := in(t, "logins"); code != 0 || out != "you are not signed in at any server\n" {
		t.Errorf("logins = %d %s", code, out)
	}
	code, out, errs := in(t, "login", r.URL)
	if want := "signed in at " + r.Issuer.URL + " for " + r.URL + "; until "; code != 0 || !strings.HasPrefix(out, want) || !strings.Contains(errs, "/authorize?") {
		t.Fatalf("login = %d %s%s, want %s", code, out, errs, want)
	}
	if code, out, _ := in(t, "logins", r.URL); code != 0 || !strings.Contains(out, r.Issuer.URL) || !strings.Contains(out, "renewed by itself") || strings.Contains(out, "access-") || strings.Contains(out, "refresh-") {
		t.Errorf("logins = %d %s", code, out)
	}
	if code, out, _ := in(t, "logins", "--json"); code != 0 || gjson.Get(out, "logins.0.server").Str != r.URL || !gjson.Get(out, "logins.0.until").Exists() || strings.Contains(out, "access-") || strings.Contains(out, "refresh-") {
		t.Errorf("logins --json = %d %s", code, out)
	}
	t.Setenv("BROWSER", "")
	k := start(t.Context(), t, "connect", r.URL)
	k.greet()
	if code, _, errs := k.leave(); code != 0 || strings.Contains(errs, "access-") {
		t.Errorf("connect = %d %s", code, errs)
	}
	says(t, 0, "echo", "*", "tools", r.URL)
	if code, out, errs := in(t, "logout", r.URL); code != 0 || out != "signed out of "+r.URL+"\n" || errs != "" || r.Issuer.Asked("/revoke") != 1 {
		t.Errorf("logout = %d %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"logins", r.URL}, {"logout", r.URL}} {
		if code, _, errs := in(t, args...); code != 1 || errs == "" {
			t.Errorf("%q = %d %s", args, code, errs)
		}
	}
}

// connect signs in by itself where there is a browser, and says what to do where there is
// none.
func TestConnectSignsIn(t *testing.T) {
	r := signed(t, true)
	k := start(t.Context(), t, "connect", r.URL)
	k.greet()
	if code, out, errs := k.leave(); code != 0 || !strings.Contains(errs, "you must sign in at") || strings.Contains(out, "sign in") {
		t.Errorf("connect = %d %s %s", code, out, errs)
	}
	for _, args := range [][]string{nil, {"--no-login"}} {
		r := signed(t, len(args) > 0)
		k := start(t.Context(), t, append([]string{"connect", r.URL}, args...)...)
		want, word := "it needs a token; sign in: mcp-bridge login URL", "login_required"
		if args != nil {
			want, word = "it wants credentials (HTTP 401)", "upstream_unavailable"
		}
		if a := k.ask(hello); !strings.Contains(gjson.Get(a, "error.message").String(), want) || gjson.Get(a, "error.data.bridge").String() != word {
			t.Errorf("%q: initialize: %s, want %s and %s", args, a, want, word)
		}
		if _, _, errs := k.leave(); !strings.Contains(errs, "mcp-bridge login URL") || r.Issuer.Asked("/register") != 0 {
			t.Errorf("%q: %s", args, errs)
		}
	}
}

// Commands that look at a server say how to sign in, also when a login cannot be read.
func TestLookSignsIn(t *testing.T) {
	r := signed(t, true)
	for _, cut := range []bool{false, true} {
		for _, args := range [][]string{{"tools", r.URL}, {"call", r.URL, "echo"}, {"prompts", r.URL}, {"resources", r.URL}} {
			code, out, errs := in(t, args...)
			if code != exit.Server || out != "" || !strings.HasSuffix(errs, "; sign in: mcp-bridge login URL\n") || cut != strings.Contains(errs, "the stored login for it cannot be read") {
				t.Errorf("%q: %d %s%s", args, code, out, errs)
			}
		}
		if cut {
			break
		}
		says(t, 0, "*", "*", "login", r.URL)
		files, err := filepath.Glob(filepath.Join(os.Getenv("MCP_BRIDGE_STATE_DIR"), "logins", "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		write(t, files[0], "{")
	}
	plain := newRemote(t, http.StatusUnauthorized)
	if code, _, errs := in(t, "tools", plain.URL+"/mcp"); code != exit.Server || !strings.HasSuffix(errs, "it wants credentials (HTTP 401): pass --header 'Authorization: Bearer ${TOKEN}', or sign in: mcp-bridge login URL\n") {
		t.Errorf("without a challenge: %d %s", code, errs)
	}
	for _, header := range []string{"Authorization", "X-API-Key"} {
		if code, _, errs := in(t, "tools", plain.URL+"/mcp", "--header", header+": top-secret"); code != exit.Server || !strings.Contains(errs, "it refuses the credentials in the header "+header+" (HTTP 401): check them") || strings.Contains(errs, "--header") {
			t.Errorf("with %s: %d %s", header, code, errs)
		}
	}
}

// With --device, connect shows where to sign in on any device, whoever reads that: it opens no
// browser.
func TestConnectDevice(t *testing.T) {
	r := signed(t, true)
	r.Issuer.Device = func(int) string { return "" }
	k := start(t.Context(), t, "connect", r.URL, "--device")
	k.greet()
	code, out, errs := k.leave()
	if code != 0 || !strings.Contains(errs, "open this address on any device") || !strings.Contains(errs, "BCDF-GHJK") || strings.Contains(out, "BCDF") || r.Issuer.Asked("/authorize") != 0 {
		t.Errorf("connect = %d %s %s, the browser: %d", code, out, errs, r.Issuer.Asked("/authorize"))
	}
}

// A server of a file signs in by its name.
func TestLoginByName(t *testing.T) {
	r := signed(t, true)
	file := file(t, "bridge.yaml", "servers:\n  notes:\n    http: { url: \""+r.URL+"\", oauth: { login: true } }\n  other:\n    http: http://127.0.0.1:1/mcp\n")
	for args, want := range map[string]string{
		"login other -c ": "has no login: true", "login note -c ": "did you mean notes?", "login notes --scope a -c ": "--scope needs a URL",
	} {
		says(t, 2, "*", want, append(strings.Fields(args), file)...)
	}
	if code, out, errs := in(t, "login", "notes", "-c", file); code != 0 || !strings.HasPrefix(out, "signed in at ") {
		t.Fatalf("login = %d %s%s", code, out, errs)
	}
	k := start(t.Context(), t, "connect", "notes", "-c", file)
	k.greet()
	if code, _, errs := k.leave(); code != 0 || strings.Contains(errs, "you must sign in at") {
		t.Errorf("connect = %d %s", code, errs)
	}
	says(t, 0, r.URL, "*", "logout", "--all")
}

// I-302: an HTTP API of a file signs in by its name, too. Its calls are made as that person.
func TestLoginOfAPI(t *testing.T) {
	p := signed(t, true)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, ok := p.Issuer.Good(token); !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("the page"))
	}))
	defer api.Close()
	file := file(t, "bridge.yaml", "servers:\n  wiki:\n    rest:\n      base_url: "+api.URL+"\n      auth: { login: true, client: { issuer: \""+p.Issuer.URL+"\" } }\n      tools: { page: { request: GET /page } }\n")
	if code, out, errs := in(t, "call", "wiki", "page", "-c", file); code == 0 || !strings.Contains(out+errs, "nobody has signed in to the API") {
		t.Errorf("call before the login = %d %s%s", code, out, errs)
	}
	if code, out, errs := in(t, "login", "wiki", "-c", file); code != 0 || !strings.HasPrefix(out, "signed in at "+p.Issuer.URL+" for "+api.URL) {
		t.Fatalf("login = %d %s%s", code, out, errs)
	}
	says(t, 0, "the page", "*", "call", "wiki", "page", "-c", file)
	if code, out, errs := in(t, "logout", "wiki", "-c", file); code != 0 || p.Issuer.Asked("/revoke") != 1 {
		t.Errorf("logout = %d %s%s", code, out, errs)
	}
}

// A sign-in that nobody has finished goes on with the next login, and not after a logout, also where no login is.
func TestLogoutBegun(t *testing.T) {
	r := signed(t, false)
	for i, args := range [][]string{{"logout", r.URL}, {"logout", "--all"}} {
		ctx, stop := context.WithCancel(t.Context())
		if code := run(ctx, []string{"login", r.URL}, io.Discard, &trigger{text: "/authorize?", f: stop}); code == 0 || r.Issuer.Asked("/register") != i+1 {
			t.Fatalf("login = %d, %d registrations", code, r.Issuer.Asked("/register"))
		}
		if code, out, errs := in(t, args...); code != 0 || out != "forgot 1 unfinished sign-in\n" {
			t.Errorf("%q = %d %s%s", args, code, out, errs)
		}
	}
	says(t, 1, "*", "there is no login for", "logout", r.URL)
}

// logout says what it could not do, and --all forgets also what cannot be read.
func TestLogoutFails(t *testing.T) {
	r := signed(t, true)
	says(t, 0, "*", "*", "login", r.URL)
	r.Issuer.Answer("/revoke", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	says(t, 1, "", r.URL+": the login is removed here, but its tokens could not be revoked", "logout", r.URL)
	broken := filepath.Join(os.Getenv("MCP_BRIDGE_STATE_DIR"), "logins", "abc.json")
	write(t, broken, "{")
	if code, out, _ := in(t, "logins"); code != 0 || strings.Contains(out, "abc") {
		t.Errorf("logins = %d %s", code, out)
	}
	says(t, 1, "", "the login is removed, but its tokens could not be revoked", "logout", "--all")
	if _, err := os.Stat(broken); !os.IsNotExist(err) {
		t.Errorf("the broken login is still there: %v", err)
	}
}

// Where no login can be kept, servers that want none are used all the same, and a file that
// asks for a login is not.
func TestNoFolder(t *testing.T) {
	r := newRemote(t, 0)
	t.Setenv("MCP_BRIDGE_STATE_DIR", file(t, "file", "")) // which is no folder
	says(t, 0, "echo", "*", "tools", r.URL+"/mcp")
	k := start(t.Context(), t, "connect", r.URL+"/mcp")
	k.greet()
	if code, _, errs := k.leave(); code != 0 || strings.Count(errs, "the folder of logins cannot be read") != 1 {
		t.Errorf("connect = %d %s", code, errs)
	}
	bridge := file(t, "bridge.yaml", "servers: { a: { http: { url: \""+r.URL+"/mcp\", oauth: { login: true } } } }\n")
	if code, _, errs := in(t, "tools", "-c", bridge); code == 0 || !strings.Contains(errs, "the folder of logins cannot be read") {
		t.Errorf("a file that asks for a login: %d %s", code, errs)
	}
}

// A server that is not there is told from other failures, as by the other commands.
func TestLoginNobody(t *testing.T) {
	t.Setenv("MCP_BRIDGE_STATE_DIR", t.TempDir())
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	says(t, exit.Server, "*", "the server cannot be reached: ", "login", s.URL+"/mcp")
}
