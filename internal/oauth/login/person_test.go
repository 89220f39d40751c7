package login_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/deadline"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// rig is a server, its authorization server, and a folder of logins.
type rig struct {
	t      *testing.T
	issuer *oauthtest.Issuer
	tools  *oauthtest.Resource
	dir    string
	log    adaptertest.Log
	opened atomic.Int32
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, issuer: oauthtest.Serve(t), dir: filepath.Join(t.TempDir(), "logins")}
	r.tools = &oauthtest.Resource{Issuer: r.issuer, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })}
	s := httptest.NewUnstartedServer(r.tools)
	r.tools.URL = "http://" + s.Listener.Addr().String() + "/mcp"
	s.Start()
	t.Cleanup(s.Close)
	return r
}

// browse visits an address like a browser.
func browse(t testing.TB, address string) {
	res, err := http.Get(address)
	if err != nil {
		t.Error(err)
		return
	}
	_ = res.Body.Close()
}

func (r *rig) options(change func(*login.Options)) login.Options {
	u, err := url.Parse(r.tools.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	o := login.Options{
		Options: oauth.Options{Settings: oauth.Settings{Login: true}, Server: u, Transport: http.DefaultTransport, Log: r.log.Logger()},
		Store:   login.Open(r.dir), Command: "mcp-bridge login notes",
		Ask: func(address string) {
			r.opened.Add(1)
			go browse(r.t, address)
		},
	}
	if change != nil {
		change(&o)
	}
	return o
}

func (r *rig) person(change func(*login.Options)) *login.Person {
	p := login.New(r.options(change))
	r.t.Cleanup(p.Close)
	return p
}

// call sends a request to the server like remote.Client, and returns its status.
func (r *rig) call(p *login.Person, header ...string) (int, error) {
	return call(r.t.Context(), r.tools.URL, p, header...)
}

func call(ctx context.Context, server string, p *login.Person, header ...string) (int, error) {
	for before := 0; ; before++ {
		token, err := p.Token(ctx)
		if err != nil {
			return 0, err
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, server, nil)
		if err != nil {
			return 0, err
		}
		for _, h := range header {
			q.Header.Set("X-Needs", h)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, err
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return res.StatusCode, nil
		}
		if again, err := p.Refused(ctx, token, res.Header, res.StatusCode, before); err != nil || !again {
			return res.StatusCode, err
		}
	}
}

// works sends a request that must be answered, without using a refresh token twice.
func (r *rig) works(what string, p *login.Person, header ...string) {
	r.t.Helper()
	if status, err := r.call(p, header...); status != http.StatusOK || err != nil || r.issuer.Reused() != 0 {
		r.t.Errorf("%s: %d, %v, %d tokens used twice\n%s", what, status, err, r.issuer.Reused(), &r.log)
	}
}

// worksIn is works, and compares the number of windows so far.
func (r *rig) worksIn(what string, p *login.Person, windows int32) {
	r.t.Helper()
	r.works(what, p)
	if n := r.opened.Load(); n != windows {
		r.t.Errorf("%s: %d windows, want %d", what, n, windows)
	}
}

// scope compares the scope of the present token, and returns the token.
func (r *rig) scope(p *login.Person, want string) string {
	r.t.Helper()
	token, err := p.Token(r.t.Context())
	if g, _ := r.issuer.Good(token); g.Scope != want || err != nil {
		r.t.Errorf("scope %q, %v, want %q", g.Scope, err, want)
	}
	return token
}

// signsIn makes a login with the command.
func (r *rig) signsIn(p *login.Person) *login.Login {
	r.t.Helper()
	l, err := p.SignIn(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// only returns the store with its only key.
func (r *rig) only() (*login.Store, string) {
	r.t.Helper()
	s := login.Open(r.dir)
	keys, err := s.Keys()
	if err != nil || len(keys) != 1 {
		r.t.Fatalf("Keys = %v, %v", keys, err)
	}
	return s, keys[0]
}

// I-200, I-210, I-250, I-253: a 401 leads to a sign-in. The bridge registers itself, and the next process uses and
// renews the login.
func TestSignIn(t *testing.T) {
	r := newRig(t)
	p := r.person(nil)
	r.works("call", p)
	if n := r.issuer.Asked("/register"); n != 1 || r.opened.Load() != 1 {
		t.Errorf("%d registrations and %d windows, want 1 of each", n, r.opened.Load())
	}
	token, _ := p.Token(t.Context())
	if g, ok := r.issuer.Good(token); !ok || g.Resource != r.tools.URL {
		t.Errorf("the token is for %+v", g)
	}
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if len(files) != 1 {
		t.Fatalf("files: %v", files)
	}
	info, err := os.Stat(files[0])
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(r.dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	next := r.person(func(o *login.Options) { o.Ask = nil })
	r.worksIn("the next process", next, 1)
	r.issuer.Revoke(false)
	r.worksIn("after the token was taken back", next, 1)
	r.works("the first process then", p)
	if n := r.issuer.Asked("/token"); n != 2 {
		t.Errorf("%d requests for tokens, want 2: a sign-in and a renewal", n)
	}
	data, _ := os.ReadFile(files[0])
	var kept login.Login
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"format", "server", "resource", "issuer", "client", "access", "refresh", "obtained", "until"} {
		if all[name] == nil {
			t.Errorf("I-251: the file has no %s", name)
		}
	}
	if kept.Issuer.Name != r.issuer.URL || kept.Issuer.Token == "" || kept.Client.Redirect == "" || kept.Resource != r.tools.URL {
		t.Errorf("I-251: the file is of %s for %s, client %+v", kept.Issuer.Name, kept.Resource, kept.Client)
	}
	for _, secret := range []string{token, kept.Access, kept.Refresh, kept.Client.Secret} {
		if secret != "" && strings.Contains(r.log.String(), secret) {
			t.Errorf("a secret is in the log:\n%s", &r.log)
		}
	}
}

// I-302: without a person, the log names the command until somebody has signed in, and after a login has ended. A
// caller that is the person gets the command too.
func TestNobody(t *testing.T) {
	r := newRig(t)
	alone := r.person(func(o *login.Options) { o.Ask = nil })
	for _, unasked := range []bool{false, true} { // the server names its authorization server
		for _, own := range []bool{false, true} {
			_, err := r.call(r.person(func(o *login.Options) { o.Ask, o.Unasked, o.Own = nil, unasked, own }))
			f, ok := errors.AsType[*oauth.Failure](err)
			if !ok || !f.SignIn || !strings.HasPrefix(f.Public, "it needs a token") || !strings.Contains(err.Error(), "sign in: mcp-bridge login notes") || strings.Contains(f.Public, "notes") != own {
				t.Errorf("without a login, unasked %t, own %t: %v", unasked, own, err)
			}
		}
	}
	if _, err := r.call(alone); err == nil {
		t.Error("without a login, there is no error")
	}
	l, err := r.person(nil).SignIn(t.Context())
	if err != nil || l.Server != r.tools.URL || l.Issuer.Name != r.issuer.URL {
		t.Fatalf("SignIn = %+v, %v", l, err)
	}
	r.works("after a sign-in elsewhere", alone)
	r.issuer.Revoke(true)
	_, err = r.call(alone)
	var f *oauth.Failure
	if !errors.As(err, &f) || !f.SignIn || !strings.Contains(err.Error(), "mcp-bridge login notes") || strings.Contains(f.Public, "notes") {
		t.Errorf("after the login has ended: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call(r.person(func(o *login.Options) { o.Ask, o.Own = nil, true })); err == nil || !strings.Contains(err.Error(), "the stored login for it cannot be read; sign in: mcp-bridge login notes") {
		t.Errorf("with a login that cannot be read: %v", err)
	}
}

// A server that names no authorization server may need another credential: unless somebody requested a sign-in, its
// answer stays the error.
func TestNobodyUnasked(t *testing.T) {
	r := newRig(t)
	p := r.person(func(o *login.Options) { o.Ask, o.Unasked = nil, true })
	for _, h := range []http.Header{{}, {"Www-Authenticate": {"Bearer"}}, {"Www-Authenticate": {`Basic realm="x"`}}} {
		if again, err := p.Refused(t.Context(), "", h, http.StatusUnauthorized, 0); again || err != nil {
			t.Errorf("%v: %t, %v", h, again, err)
		}
	}
}

// Only the person's own requests get the address of the page: another caller could sign in there, and all callers
// would act as that account. The cause goes to the log.
func TestStrangers(t *testing.T) {
	for _, own := range []bool{true, false} {
		patient := login.ShortPatience()
		defer patient()
		r := newRig(t)
		asked := make(chan string, 1)
		p := r.person(func(o *login.Options) {
			o.Own, o.Ask = own, func(address string) { asked <- address }
		})
		if _, err := r.call(p); err == nil {
			t.Errorf("own %t: nobody has signed in, and there is no error", own)
		}
		address := <-asked
		var f *oauth.Failure
		_, err := r.call(p)
		if !errors.As(err, &f) || !f.SignIn || own != strings.Contains(f.Public, "/authorize") || own != strings.Contains(err.Error(), "state=") {
			t.Errorf("own %t: while it waits: %v", own, err)
		}
		browse(t, address)
		for status := 0; status != http.StatusOK; {
			status, _ = r.call(p)
		}
		if own == strings.Contains(r.log.String(), "all callers act as the account") {
			t.Errorf("own %t: the log has\n%s", own, &r.log)
		}
		patient()
		bad := r.person(func(o *login.Options) {
			o.Own, o.Client, o.RedirectURI = own, &oauth.Client{ID: "mine"}, "http://127.0.0.1:1/x"
			o.Issuer = "http://" + strings.TrimPrefix(r.tools.URL, "http://")
		})
		if _, err = r.call(bad); !errors.As(err, &f) || own != strings.Contains(f.Public, "publishes no metadata") || !strings.Contains(err.Error(), "publishes no metadata") {
			t.Errorf("own %t: without metadata: %v", own, err)
		}
	}
}

// I-212: a 403 for a scope leads to another sign-in for all scopes, but not to a third one if that did not help.
func TestStepUp(t *testing.T) {
	r := newRig(t)
	r.tools.Needs = func(q *http.Request) string { return q.Header.Get("X-Needs") }
	r.tools.Change = func(m map[string]any) { m["scopes_supported"] = []string{"read"} }
	p := r.person(nil)
	for i, needs := range []string{"read", "write", "write", "read"} {
		if status, err := r.call(p, needs); status != http.StatusOK || err != nil {
			t.Fatalf("%d, %s: %d, %v\n%s", i, needs, status, err, &r.log)
		}
	}
	if n := r.opened.Load(); n != 2 {
		t.Errorf("%d windows, want 2", n)
	}
	token := r.scope(p, "read write")
	r.tools.Needs = func(*http.Request) string { return "never" }
	r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) { // grants another scope
		oauthtest.JSON(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "bearer", "scope": "read"})
	})
	if status, err := r.call(p); status != http.StatusForbidden || err != nil {
		t.Errorf("a scope that is never granted: %d, %v, want 403", status, err)
	}
	if n := r.opened.Load(); n != 3 {
		t.Errorf("%d windows, want 3", n)
	}
}

// I-212: while a request waits for the sign-in, its deadlines stop. They run again once there is a token.
func TestTimeStandsStill(t *testing.T) {
	r := newRig(t)
	standing, held := make(chan struct{}), 0
	ctx := deadline.With(t.Context(), func() func() {
		held++
		close(standing)
		return func() { held-- }
	})
	p := r.person(func(o *login.Options) {
		o.Ask = func(address string) {
			go func() {
				<-standing
				browse(r.t, address)
			}()
		}
	})
	if status, err := call(ctx, r.tools.URL, p); status != http.StatusOK || err != nil || held != 0 {
		t.Fatalf("call = %d, %v, %d limits stand still", status, err, held)
	}
	if _, err := p.Token(ctx); err != nil || held != 0 { // it need not wait
		t.Errorf("Token: %v, %d", err, held)
	}
}

// One caller's failed sign-in does not keep other callers from a token. A login of another process is used at once.
func TestOthersGoOn(t *testing.T) {
	defer login.AllTokensOld()()
	r := newRig(t)
	r.tools.Needs = func(q *http.Request) string { return q.Header.Get("X-Needs") }
	r.tools.Change = func(m map[string]any) { m["scopes_supported"] = []string{"read"} }
	p := r.person(nil)
	alone := r.person(func(o *login.Options) { o.Ask = nil })
	r.works("call", p)
	r.issuer.Authorized = func(v url.Values) { v.Del("code"); v.Set("error", "access_denied") }
	for name, who := range map[string]*login.Person{"somebody is here": p, "nobody is here": alone} {
		if status, err := r.call(who, "write"); err == nil {
			t.Errorf("%s: a scope that is denied: %d", name, status)
		}
		r.issuer.Revoke(false)
		r.works(name+": another call, whose token is renewed", who)
	}
	r.issuer.Revoke(true)
	for name, who := range map[string]*login.Person{"somebody is here": p, "nobody is here": alone} {
		if status, err := r.call(who); err == nil {
			t.Errorf("%s: the login has ended: %d", name, status)
		}
	}
	r.issuer.Authorized = nil
	r.signsIn(r.person(nil))
	for name, who := range map[string]*login.Person{"somebody is here": p, "nobody is here": alone} {
		r.works(name+": after a sign-in elsewhere", who)
	}
}

// I-257: another authorization server gets its own client, and nothing of the old one.
func TestMigration(t *testing.T) {
	r := newRig(t)
	p := r.person(nil)
	r.works("call", p)
	old, asked := r.issuer, r.issuer.Asked("/token")
	r.issuer = oauthtest.Serve(t)
	r.tools.Issuer = r.issuer
	r.works("after the move", p)
	if old.Asked("/token") != asked || r.issuer.Asked("/register") != 1 {
		t.Errorf("the old one was asked %d times more, the new one has %d registrations", old.Asked("/token")-asked, r.issuer.Asked("/register"))
	}
}

// I-204: the bridge uses the first authorization server that the server names, unless another one is configured or
// has a login. None is an error.
func TestIssuers(t *testing.T) {
	for _, tc := range []struct {
		name       string
		configured bool
		lists      func(first, second string) []string
		want       int // the issuer that registers a client; 0 for none
		err        string
	}{
		{"the first", false, func(a, b string) []string { return []string{a, b} }, 1, ""},
		{"the other way round", false, func(a, b string) []string { return []string{b, a} }, 2, ""},
		{"the configured one", true, func(a, b string) []string { return []string{a, b} }, 2, ""},
		{"none", false, func(string, string) []string { return []string{} }, 0, "authorization_servers"},
	} {
		r := newRig(t)
		second := oauthtest.Serve(t)
		r.tools.Change = func(m map[string]any) { m["authorization_servers"] = tc.lists(r.issuer.URL, second.URL) }
		if tc.want == 2 {
			first := r.issuer
			r.tools.Issuer = second
			r.tools.Change = func(m map[string]any) { m["authorization_servers"] = tc.lists(first.URL, second.URL) }
		}
		p := r.person(func(o *login.Options) {
			if tc.configured {
				o.Issuer = second.URL
			}
		})
		status, err := r.call(p)
		if tc.err == "" && (status != http.StatusOK || err != nil) || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %d, %v, want %q", tc.name, status, err, tc.err)
		}
		if a, b := r.issuer.Asked("/register"), second.Asked("/register"); (a == 1) != (tc.want == 1) || (b == 1) != (tc.want == 2) {
			t.Errorf("%s: the first has %d registrations, the second %d", tc.name, a, b)
		}
		if tc.want != 1 {
			continue
		}
		// The server now names another one first: the login stays valid.
		r.tools.Change = func(m map[string]any) { m["authorization_servers"] = []string{second.URL, r.issuer.URL} }
		r.issuer.Revoke(true)
		if status, err := r.call(p); status != http.StatusOK || err != nil || second.Asked("/register") != 0 {
			t.Errorf("with a login: %d, %v, the second has %d registrations", status, err, second.Asked("/register"))
		}
	}
}

// I-218: the resource is in each token request, byte for byte; off leaves it out.
func TestResourceSent(t *testing.T) {
	for setting, want := range map[string]func(*rig) []string{
		"":                         func(r *rig) []string { return []string{r.tools.URL} },
		"https://Other.example/a/": func(*rig) []string { return []string{"https://Other.example/a/"} },
		oauth.ResourceOff:          func(*rig) []string { return nil },
	} {
		r := newRig(t)
		sent := &forms{all: map[string][]string{}}
		p := r.person(func(o *login.Options) {
			o.Resource, o.Transport = setting, sent
			ask := o.Ask
			o.Ask = func(address string) {
				u, _ := url.Parse(address)
				sent.note("authorize", u.Query())
				ask(address)
			}
		})
		if setting == "" {
			r.works("", p)
			r.issuer.Revoke(false)
			r.works("renewed", p)
		} else { // the server refuses these
			_, _ = r.call(p)
		}
		for _, what := range []string{"authorize", "authorization_code", "refresh_token"} {
			if got, is := sent.get(what); !slices.Equal(got, want(r)) || !is {
				t.Errorf("resource %q, %s: %q, want %q, sent: %t", setting, what, got, want(r), is)
			}
		}
	}
}

// forms records the resources in forms to token endpoints.
type forms struct {
	mu  sync.Mutex // guards all
	all map[string][]string
}

func (f *forms) note(what string, v url.Values) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[what] = v["resource"]
}

func (f *forms) get(what string) (resources []string, sent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resources, sent = f.all[what]
	return resources, sent
}

func (f *forms) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && strings.HasSuffix(r.URL.Path, "/token") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		v, _ := url.ParseQuery(string(body))
		f.note(v.Get("grant_type"), v)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A server may refuse the token that its authorization server has just issued: login says so at once.
func TestTokenRefused(t *testing.T) {
	r := newRig(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/mcp" { // whatever it is shown
			q.Header.Set("Authorization", "Bearer another")
		}
		r.tools.ServeHTTP(w, q)
	}))
	defer s.Close()
	r.tools.URL = s.URL + "/mcp"
	if l, err := r.person(nil).SignIn(t.Context()); l == nil || err == nil || !strings.Contains(err.Error(), "refuses the token") {
		t.Errorf("SignIn = %+v, %v", l, err)
	}
}

// A server that names no authorization server needs no sign-in, or wants a header.
func TestNoSignIn(t *testing.T) {
	for status, want := range map[int]string{200: "does not ask for a sign-in", 400: "does not ask for a sign-in", 401: "it may want a header instead"} {
		r := newRig(t)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/mcp" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(status)
		}))
		r.tools.URL = s.URL + "/mcp"
		if _, err := r.person(nil).SignIn(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
		s.Close()
		if r.opened.Load() != 0 {
			t.Errorf("%d: a browser was opened", status)
		}
	}
}

// I-206: a trailing slash in its name makes no other authorization server.
func TestSlash(t *testing.T) {
	for _, listed := range []bool{true, false} {
		r := newRig(t)
		r.tools.Change = func(m map[string]any) {
			if listed {
				m["authorization_servers"] = []string{r.issuer.URL + "/"}
			}
		}
		r.issuer.Change = func(m map[string]any) {
			if !listed {
				m["issuer"] = r.issuer.URL + "/"
				m["authorization_response_iss_parameter_supported"] = false
			}
		}
		if !listed {
			r.issuer.Authorized = func(v url.Values) { v.Del("iss") }
		}
		p := r.person(nil)
		for i := range 2 {
			if status, err := r.call(p); status != http.StatusOK || err != nil || r.opened.Load() != 1 {
				t.Errorf("listed with it %t, call %d: %d, %v, %d windows\n%s", listed, i, status, err, r.opened.Load(), &r.log)
			}
			r.issuer.Revoke(false)
		}
	}
}

// I-208 and I-209: a configured client is used unchanged, and one named by a URL where the authorization server
// accepts that. Without both the error says what to register.
func TestClients(t *testing.T) {
	const document = "https://app.example.com/client.json"
	for _, tc := range []struct {
		name   string
		change func(*rig, *login.Options)
		id     string
		err    string
	}{
		{"configured", func(r *rig, o *login.Options) {
			o.Client, o.Issuer = &oauth.Client{ID: "mine", Secret: "its secret"}, r.issuer.URL
			r.known("mine", "its secret", o)
		}, "mine", ""},
		{"configured, public", func(r *rig, o *login.Options) {
			o.Client = &oauth.Client{ID: "mine"}
			r.known("mine", "", o)
		}, "mine", ""},
		{"document", func(r *rig, o *login.Options) {
			o.ClientMetadataURL = document
			r.issuer.Change = func(m map[string]any) { m["client_id_metadata_document_supported"] = true }
			r.known(document, "", o)
		}, document, ""},
		{"none", func(r *rig, _ *login.Options) {
			r.issuer.Change = func(m map[string]any) { delete(m, "registration_endpoint") }
		}, "", "--client-id"},
		{"I-208 no PKCE", func(r *rig, _ *login.Options) {
			r.issuer.Change = func(m map[string]any) { delete(m, "code_challenge_methods_supported") }
		}, "", "pkce: assume"},
		{"I-208 PKCE is assumed", func(r *rig, o *login.Options) {
			o.PKCE = oauth.PKCEAssume
			r.issuer.Change = func(m map[string]any) { delete(m, "code_challenge_methods_supported") }
		}, "client-", ""},
		{"secret by basic authentication", func(r *rig, _ *login.Options) {
			r.issuer.Change = func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"} }
		}, "client-", ""},
		{"secret in the body", func(r *rig, _ *login.Options) {
			r.issuer.Change = func(m map[string]any) { m["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"} }
		}, "client-", ""},
		{"registration refused", func(r *rig, _ *login.Options) {
			r.issuer.Answer("/register", func(w http.ResponseWriter, _ *http.Request) {
				oauthtest.JSON(w, http.StatusForbidden, map[string]any{"error": "access_denied", "error_description": "ask the help desk"})
			})
		}, "", "ask the help desk"},
	} {
		r := newRig(t)
		p := r.person(func(o *login.Options) { tc.change(r, o) })
		status, err := r.call(p)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %d, %v, want %q", tc.name, status, err, tc.err)
			}
			continue
		}
		token, _ := p.Token(t.Context())
		g, _ := r.issuer.Good(token)
		if status != http.StatusOK || err != nil || !strings.HasPrefix(g.Client, tc.id) {
			t.Errorf("%s: %d, %v, client %q\n%s", tc.name, status, err, g.Client, &r.log)
		}
		if (g.Client == tc.id) != (r.issuer.Asked("/register") == 0) {
			t.Errorf("%s: %d registrations", tc.name, r.issuer.Asked("/register"))
		}
	}
}

// known registers a client at the issuer, with one redirect address.
func (r *rig) known(id, secret string, o *login.Options) {
	s := httptest.NewServer(nil)
	s.Close() // the port is free again
	o.RedirectURI = s.URL + "/cb"
	r.issuer.Register(oauthtest.Registered{ID: id, Secret: secret, Redirects: []string{o.RedirectURI}})
}

// N-59, N-60, N-64: an answer counts only if it belongs to the request and comes from the issuer that was asked.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*rig, url.Values)
		err    string
	}{
		{"as it should be", func(*rig, url.Values) {}, ""},
		{"wrong issuer", func(_ *rig, v url.Values) { v.Set("iss", "https://evil.example.com") }, "another authorization server"},
		{"a slash more", func(_ *rig, v url.Values) { v.Set("iss", v.Get("iss")+"/") }, "another authorization server"},
		{"no issuer", func(_ *rig, v url.Values) { v.Del("iss") }, "has no iss"},
		{"two issuers", func(_ *rig, v url.Values) { v.Add("iss", "https://evil.example.com") }, "more than one iss"},
		{"wrong issuer, with an error", func(_ *rig, v url.Values) {
			v.Set("iss", "https://evil.example.com")
			v.Set("error", "evil_words")
		}, "another authorization server"},
		{"denied", func(_ *rig, v url.Values) { v.Del("code"); v.Set("error", "access_denied") }, "access_denied"},
		{"denied with a script", func(_ *rig, v url.Values) { v.Del("code"); v.Set("error", "<script>") }, "an error"},
		{"no code", func(_ *rig, v url.Values) { v.Del("code") }, "one code"},
		{"wrong code", func(_ *rig, v url.Values) { v.Set("code", "of somebody else") }, "invalid_grant"},
	} {
		r := newRig(t)
		r.issuer.Authorized = func(v url.Values) { tc.change(r, v) }
		status, err := r.call(r.person(nil))
		if tc.err == "" && (status != http.StatusOK || err != nil) || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) || err != nil && strings.Contains(err.Error(), "evil") {
			t.Errorf("%s: %d, %v, want %q", tc.name, status, err, tc.err)
		}
		if want := 1; (tc.err == "" || tc.name == "wrong code") != (r.issuer.Asked("/token") == want) {
			t.Errorf("%s: %d requests for tokens", tc.name, r.issuer.Asked("/token"))
		}
	}
}

// I-216, N-60, N-64: other requests to the callback change nothing, and only this machine can reach it.
func TestCallback(t *testing.T) {
	r := newRig(t)
	get := func(method, address, host string) (int, string) {
		q, err := http.NewRequest(method, address, nil)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		q.Host = host
		res, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			return 0, ""
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode == http.StatusOK && (res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'")) {
			t.Errorf("headers of the page: %v", res.Header)
		}
		return res.StatusCode, string(body)
	}
	var wg sync.WaitGroup
	p := r.person(func(o *login.Options) {
		o.Ask = func(address string) {
			wg.Go(func() {
				u, _ := url.Parse(address)
				q := u.Query()
				back := q.Get("redirect_uri")
				if at, err := url.Parse(back); err != nil || !net.ParseIP(at.Hostname()).IsLoopback() {
					t.Errorf("the callback is at %s", back)
				}
				good := back + "?" + url.Values{"code": {"c"}, "state": {q.Get("state")}, "iss": {r.issuer.URL}}.Encode()
				for _, bad := range []struct{ method, address, host string }{
					{"GET", back, ""}, {"GET", back + "?code=c&state=wrong", ""}, {"GET", good + "&state=again", ""}, {"POST", good, ""}, {"GET", strings.Replace(good, "/callback", "/", 1), ""},
					{"GET", good, "evil.example.com"}, {"GET", good, "127.0.0.1.evil.example.com"}, {"GET", back + "?error=%3Cscript%3E&state=x", ""}, {"GET", back + "?" + strings.Repeat("x", 1<<20), ""},
				} {
					if status, page := get(bad.method, bad.address, bad.host); status != http.StatusNotFound && status != http.StatusRequestHeaderFieldsTooLarge && status != 0 || strings.Contains(page, "script") {
						t.Errorf("%s %.60s (%s) = %d %s", bad.method, bad.address, bad.host, status, page)
					}
				}
				browse(t, address)
				if status, _ := get("GET", good, ""); status == http.StatusOK {
					t.Error("a second answer was taken")
				}
			})
		}
	})
	r.works("call", p)
	wg.Wait()
}

// I-251, N-65, N-66: a file of another format or a broken one is replaced. A file that others can read is refused.
func TestFiles(t *testing.T) {
	r := newRig(t)
	r.works("call", r.person(nil))
	files, _ := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if runtime.GOOS != "windows" {
		if err := os.Chmod(files[0], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.call(r.person(nil)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("others can read it: %v", err)
		}
		if err := os.Rename(files[0], files[0]+".else"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(files[0]+".else", files[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := r.call(r.person(nil)); err == nil || !strings.Contains(err.Error(), "must be a regular file") {
			t.Errorf("a link: %v", err)
		}
		if err := os.Remove(files[0]); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", `{"format":1,"server":"`, `{"format":99,"server":"x","access":"y"}`} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := r.opened.Load()
		if status, err := r.call(r.person(nil)); status != http.StatusOK || err != nil || r.opened.Load() != before+1 {
			t.Errorf("%q: %d, %v", text, status, err)
		}
	}
}

// N-70: a login that cannot be written lives as long as the process.
func TestDiskFull(t *testing.T) {
	defer login.AllTokensOld()()
	r := newRig(t)
	s := login.Open(r.dir)
	p := r.person(func(o *login.Options) { o.Store = s })
	r.works("call", p)
	s.Full()
	for range 3 {
		r.issuer.Revoke(false)
		r.works("call", p)
	}
	if r.opened.Load() != 1 || !strings.Contains(r.log.String(), "could not be stored") {
		t.Errorf("%d windows; the log has\n%s", r.opened.Load(), &r.log)
	}
}

// A login that could not be written is written later, but never over a newer one. The command fails if its sign-in
// cannot be stored.
func TestDiskFullLater(t *testing.T) {
	defer login.AllTokensOld()()
	r := newRig(t)
	s := login.Open(r.dir)
	p := r.person(func(o *login.Options) { o.Store = s })
	r.works("call", p)
	full := func() {
		s.Full()
		r.issuer.Revoke(false)
		r.works("the disk is full", p)
		s.Room()
	}
	full()
	r.signsIn(r.person(func(o *login.Options) { o.Scopes = []string{"fresh"} }))
	r.issuer.Revoke(false)
	r.works("after a sign-in elsewhere", p)
	r.scope(p, "fresh") // not that of the older login
	full()
	windows := r.opened.Load()
	r.issuer.Revoke(false)
	r.works("there is room again", p)
	r.worksIn("the next process", r.person(nil), windows)
	s.Full()
	if l, err := r.person(func(o *login.Options) { o.Store = s }).SignIn(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be stored") {
		t.Errorf("SignIn on a full disk = %+v, %v", l, err)
	}
}

// I-256, N-71, N-72: answers that end a login, and others.
func TestRenewals(t *testing.T) {
	for _, tc := range []struct {
		name           string
		status         int
		code           string
		windows, again int32 // in all; registrations
	}{
		{"invalid_grant ends the tokens", 400, "invalid_grant", 2, 1},
		{"invalid_client ends the registration", 401, "invalid_client", 2, 2},
	} {
		r := newRig(t)
		p := r.person(nil)
		r.works("call", p)
		r.issuer.Revoke(false)
		var once sync.Once
		r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) {
			once.Do(func() {
				r.issuer.Answer("/token", nil)
				oauthtest.JSON(w, tc.status, map[string]any{"error": tc.code})
			})
		})
		if status, err := r.call(p); status != http.StatusOK || err != nil || r.opened.Load() != tc.windows || int32(r.issuer.Asked("/register")) != tc.again {
			t.Errorf("%s: %d, %v, %d windows, %d registrations\n%s", tc.name, status, err, r.opened.Load(), r.issuer.Asked("/register"), &r.log)
		}
	}
	r := newRig(t)
	p := r.person(nil)
	r.works("call", p)
	r.issuer.Revoke(false)
	for _, bad := range []struct {
		status int
		code   string
	}{{502, ""}, {400, "temporarily_unavailable"}, {400, "invalid_request"}, {403, "access_denied"}} {
		r.issuer.Answer("/token", func(w http.ResponseWriter, _ *http.Request) {
			oauthtest.JSON(w, bad.status, map[string]any{"error": bad.code})
		})
		if _, err := r.call(r.person(nil)); err == nil || r.opened.Load() != 1 {
			t.Errorf("the authorization server says %d %s: %v, %d windows", bad.status, bad.code, err, r.opened.Load())
		}
	}
	r.issuer.Answer("/token", nil)
	r.worksIn("and there again", r.person(nil), 1)
}

// I-253: a requested token is stored even if the bridge stops meanwhile: its refresh token is used up.
func TestCloseKeeps(t *testing.T) {
	r := newRig(t)
	r.works("call", r.person(nil))
	r.issuer.Revoke(false)
	asked, answer := make(chan struct{}), make(chan struct{})
	r.issuer.Answer("/token", func(w http.ResponseWriter, q *http.Request) {
		r.issuer.Answer("/token", nil)
		close(asked)
		<-answer
		r.issuer.ServeHTTP(w, q)
	})
	p := login.New(r.options(nil))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := r.call(p); err != nil {
			t.Errorf("the call whose token is renewed: %v", err)
		}
	}()
	<-asked
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	<-p.Closing()
	close(answer)
	<-closed
	<-ended
	r.worksIn("the next process", r.person(nil), 1)
}

// A login survives if its authorization server moves to other endpoints. If the authorization server is gone, the
// person signs in at the next one.
func TestEndpointMoves(t *testing.T) {
	defer login.AllTokensOld()()
	r := newRig(t)
	r.works("call", r.person(nil))
	gone := func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }
	old := r.issuer
	old.Answer("/token", gone)
	r.issuer.Revoke(false)
	if status, err := r.call(r.person(nil)); err == nil || r.opened.Load() != 1 {
		t.Errorf("it is gone, and the metadata says nothing else: %d, %v, %d windows", status, err, r.opened.Load())
	}
	old.Answer("/new", func(w http.ResponseWriter, q *http.Request) {
		old.Answer("/token", nil)
		defer old.Answer("/token", gone)
		q.URL.Path = "/token"
		old.ServeHTTP(w, q)
	})
	old.Change = func(m map[string]any) { m["token_endpoint"] = old.URL + "/new" }
	for i := range 2 {
		if status, err := r.call(r.person(nil)); status != http.StatusOK || err != nil || r.opened.Load() != 1 || old.Asked("/new") != i+1 {
			t.Errorf("it has moved, %d: %d, %v, %d windows, %d requests\n%s", i, status, err, r.opened.Load(), old.Asked("/new"), &r.log)
		}
		old.Revoke(false)
	}
	old.Answer("/new", gone)
	r.issuer = oauthtest.Serve(t)
	r.tools.Issuer = r.issuer
	r.change(func(l *login.Login) { l.Obtained, l.Until = l.Obtained.Add(-2*time.Hour), l.Until.Add(-2*time.Hour) })
	if status, err := r.call(r.person(nil)); status != http.StatusOK || err != nil || r.opened.Load() != 2 || r.issuer.Asked("/register") != 1 {
		t.Errorf("the server has another authorization server: %d, %v, %d windows\n%s", status, err, r.opened.Load(), &r.log)
	}
}

// The metadata is also read again if nothing answers at the old token endpoint.
func TestEndpointSilent(t *testing.T) {
	defer login.ShortPauses()()
	r := newRig(t)
	r.works("call", r.person(nil))
	r.change(func(l *login.Login) {
		l.Obtained, l.Until = l.Obtained.Add(-2*time.Hour), l.Until.Add(-2*time.Hour)
		l.Issuer.Token = "http://127.0.0.1:1/token" // the old address
	})
	p := r.person(nil)
	if _, err := r.call(p); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("the first call = %v", err)
	}
	for status := 0; status != http.StatusOK; {
		status, _ = r.call(p)
		time.Sleep(time.Millisecond)
	}
	if r.opened.Load() != 1 || r.issuer.Asked("/token") != 2 {
		t.Errorf("%d windows, %d requests for tokens, want 1 and 2", r.opened.Load(), r.issuer.Asked("/token"))
	}
}

// change changes the only stored login.
func (r *rig) change(f func(*login.Login)) {
	r.t.Helper()
	s, key := r.only()
	l, err := s.Read(key)
	if err != nil {
		r.t.Fatal(err)
	}
	f(l)
	if err := s.Write(key, l); err != nil {
		r.t.Fatal(err)
	}
}

// N-73: a token from the future, after the clock was set back, is not new: it is renewed.
func TestClockSetBack(t *testing.T) {
	r := newRig(t)
	p := r.person(nil)
	r.works("call", p)
	r.change(func(l *login.Login) {
		l.Renewed, l.Obtained, l.Until = true, l.Obtained.Add(time.Hour), l.Until.Add(time.Hour)
	})
	r.issuer.Revoke(false)
	r.worksIn("call", r.person(nil), 1)
	defer login.AllTokensOld()()
	// A login that another process stores while this one could not counts, even if it seems older.
	s := login.Open(r.dir)
	p = r.person(func(o *login.Options) { o.Store = s })
	s.Full()
	r.issuer.Revoke(false)
	r.works("the disk is full", p)
	s.Room()
	r.signsIn(r.person(func(o *login.Options) { o.Scopes = []string{"fresh"} }))
	r.change(func(l *login.Login) { l.Obtained, l.Until = l.Obtained.Add(-time.Hour), l.Until.Add(-time.Hour) })
	r.issuer.Revoke(false)
	r.works("after a sign-in elsewhere", p)
	r.scope(p, "fresh") // not that of the older login
}

// I-258: the tokens are revoked, and the file is removed.
func TestSignOut(t *testing.T) {
	r := newRig(t)
	l := r.signsIn(r.person(nil))
	s, key := r.only()
	if err := login.SignOut(t.Context(), s, key, http.DefaultTransport, nil); err != nil || r.issuer.Asked("/revoke") != 1 {
		t.Errorf("SignOut: %v, %d requests", err, r.issuer.Asked("/revoke"))
	}
	if l, err := s.Read(key); l != nil || err != nil {
		t.Errorf("afterwards: %v, %v", l, err)
	}
	if strings.Contains(r.log.String(), l.Refresh) {
		t.Error("a token is in the log")
	}
}

// A configured secret goes only to the issuer that it is configured for, not to another one of a sign-in. Tokens that
// could not be revoked are reported.
func TestSignOutSecret(t *testing.T) {
	for _, tc := range []struct {
		name  string
		other bool
		ok    bool
	}{{"its issuer", false, true}, {"another issuer", true, false}} {
		r := newRig(t)
		secret := ""
		if !tc.other {
			secret = "its-secret"
		}
		p := r.person(func(o *login.Options) {
			o.Client = &oauth.Client{ID: "mine", Secret: secret}
			r.known("mine", secret, o)
		})
		r.signsIn(p)
		var shown string
		r.issuer.Answer("/revoke", func(w http.ResponseWriter, q *http.Request) {
			_, shown, _ = q.BasicAuth()
			if shown == "" {
				oauthtest.JSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
			}
		})
		s, key := r.only()
		o := &oauth.Settings{Issuer: r.issuer.URL + "/", Client: &oauth.Client{ID: "mine", Secret: "its-secret"}}
		if tc.other {
			o.Issuer = "https://idp.example.com"
		}
		err := login.SignOut(t.Context(), s, key, http.DefaultTransport, o)
		if (err == nil) != tc.ok || (shown == "its-secret") != tc.ok || err != nil && !strings.Contains(err.Error(), "could not be revoked") {
			t.Errorf("%s: SignOut: %v; it was shown %q", tc.name, err, shown)
		}
		if l, err := s.Read(key); l != nil || err != nil {
			t.Errorf("%s: afterwards: %v, %v", tc.name, l, err)
		}
	}
}

// TestMain acts as one of several processes if the environment says so.
func TestMain(m *testing.M) {
	if server := os.Getenv("LOGIN_TEST_SERVER"); server != "" {
		u, err := url.Parse(server)
		if err != nil {
			panic(err)
		}
		p := login.New(login.Options{
			Options: oauth.Options{Settings: oauth.Settings{Login: true}, Server: u, Transport: http.DefaultTransport, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))},
			Store:   login.Open(os.Getenv("LOGIN_TEST_DIR")),
			Ask: func(address string) {
				fmt.Println("window")
				if os.Getenv("LOGIN_TEST_DIES") != "" {
					os.Exit(3)
				}
				go func() {
					if res, err := http.Get(address); err == nil {
						_ = res.Body.Close()
					}
				}()
			},
		})
		status, err := call(context.Background(), server, p)
		fmt.Println(status, err)
		p.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// processes runs several of them at once and returns their output.
func (r *rig) processes(n int, env ...string) string {
	r.t.Helper()
	var wg sync.WaitGroup
	var all adaptertest.Log
	for range n {
		wg.Go(func() {
			cmd := exec.CommandContext(r.t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), append([]string{"LOGIN_TEST_SERVER=" + r.tools.URL, "LOGIN_TEST_DIR=" + r.dir}, env...)...)
			cmd.Stdout = &all
			cmd.Stderr = &r.log
			if err := cmd.Run(); err != nil && len(env) == 0 {
				r.t.Error(err)
			}
		})
	}
	wg.Wait()
	return all.String()
}

// I-255, N-67, N-68, N-69: ten processes that start at once open one window. Ten with an expired token renew it once,
// at an issuer that ends the login when a refresh token is used twice. A process that is killed during a sign-in
// does not block others.
func TestProcesses(t *testing.T) {
	r := newRig(t)
	if out := r.processes(1, "LOGIN_TEST_DIES=1"); out != "window\n" {
		t.Errorf("the one that is killed: %q", out)
	}
	file, _ := r.attempt() // its window is ignored: no browser returns
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(aged(t, 3*time.Minute)(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	out := r.processes(10)
	if strings.Count(out, "200 <nil>") != 10 || strings.Count(out, "window") != 1 {
		t.Errorf("without a login:\n%s%s", out, &r.log)
	}
	tokens := r.issuer.Asked("/token")
	r.issuer.Revoke(false)
	out = r.processes(10)
	if strings.Count(out, "200 <nil>") != 10 || strings.Count(out, "window") != 0 || r.issuer.Asked("/token") != tokens+1 || r.issuer.Reused() != 0 {
		t.Errorf("with a token that has ended, %d renewals:\n%s%s", r.issuer.Asked("/token")-tokens, out, &r.log)
	}
}

// I-215, N-61: no shell reads an address, and no command takes it for a flag.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	script := filepath.Join(dir, "browser")
	if runtime.GOOS == "windows" {
		t.Skip("the browser of this test is a shell script")
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s|' \"$@\" > "+out+".new && mv "+out+".new "+out+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"javascript:alert(1)", "file:///etc/passwd", "-x", "--help", "http:", "https:///x", "ftp://h/"} {
		if err := login.Show([]string{script}, bad); err == nil {
			t.Errorf("%s was opened", bad)
		}
	}
	const address = "https://idp.example.com/a?x=$(touch%20y)&z=`id`&w=%22;%26"
	if err := login.Show([]string{script, "--new-window"}, address); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := os.ReadFile(out)
		if err == nil {
			u, _ := url.Parse(address)
			if string(got) != "--new-window|"+u.String()+"|" {
				t.Errorf("the browser got %q", got)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// I-217: if another program has the port of a registration, another client is registered.
func TestPortTaken(t *testing.T) {
	r := newRig(t)
	l := r.signsIn(r.person(nil))
	again, err := r.person(nil).SignIn(t.Context())
	if err != nil || again.Client.ID != l.Client.ID || r.issuer.Asked("/register") != 1 {
		t.Errorf("the port is free: %+v, %v", again, err)
	}
	u, err := url.Parse(l.Client.Redirect)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	again, err = r.person(nil).SignIn(t.Context())
	if err != nil || again.Client.Redirect == l.Client.Redirect || r.issuer.Asked("/register") != 2 {
		t.Errorf("the port is taken: %+v, %v", again, err)
	}
	if _, err := r.person(func(o *login.Options) {
		o.Client, o.RedirectURI = &oauth.Client{ID: "mine"}, "http://"+u.Host+"/cb"
	}).SignIn(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot return") {
		t.Errorf("a port that is configured is taken: %v", err)
	}
}

// I-253: a token is renewed a minute before its end, or a fifth of its life before if it lives shorter.
func TestRenewedEarly(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name         string
		lives, since time.Duration
		good         bool
	}{
		{"an hour, at first", time.Hour, 0, true}, {"an hour, 61 s before its end", time.Hour, time.Hour - 61*time.Second, true}, {"an hour, a minute before its end", time.Hour, time.Hour - time.Minute, false},
		{"a minute, 13 s before its end", time.Minute, 47 * time.Second, true}, {"a minute, 12 s before its end", time.Minute, 48 * time.Second, false},
		{"after its end", time.Hour, 2 * time.Hour, false}, {"one that does not say when it ends", 0, 24 * time.Hour, true},
	} {
		l := &login.Login{Access: "a", Obtained: now.Add(-tc.since)}
		if tc.lives > 0 {
			l.Until = l.Obtained.Add(tc.lives)
		}
		if got := login.Good(l, now); got != tc.good {
			t.Errorf("%s: good %t, want %t", tc.name, got, tc.good)
		}
	}
	if login.Good(nil, now) || login.Good(&login.Login{Obtained: now}, now) {
		t.Error("a login without a token is good")
	}
}

// I-252: another client, resource or issuer has another login.
func TestKey(t *testing.T) {
	seen := map[string]string{}
	for name, s := range map[string]oauth.Settings{
		"plain": {}, "client": {Client: &oauth.Client{ID: "a"}}, "other client": {Client: &oauth.Client{ID: "b"}}, "resource": {Resource: "a"}, "issuer": {Issuer: "a"},
	} {
		key := login.Key("https://tools.example.com/mcp", &s)
		if other, taken := seen[key]; taken {
			t.Errorf("%s and %s are one login", name, other)
		}
		seen[key] = name
	}
	if a, b := login.Key("https://a.example.com", &oauth.Settings{}), login.Key("https://b.example.com", &oauth.Settings{}); a == b {
		t.Error("two servers are one login")
	}
}
