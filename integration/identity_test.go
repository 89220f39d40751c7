package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// redirect is where the clients of these tests have browsers end. Nobody listens there.
const redirect = "http://127.0.0.1:9/callback"

// browser is somebody of that name at a browser, who signs in and agrees to everything.
type browser struct {
	name   string
	http   *http.Client
	agreed int // how often the bridge has asked
}

func newBrowser(name string) *browser {
	jar, _ := cookiejar.New(nil) // without options it never fails
	return &browser{name: name, http: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

var (
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	formPrompt = regexp.MustCompile(`name="prompt" value="([^"]+)"`)
	formAsked  = regexp.MustCompile(`name="request" value="([^"]+)"`) // of the bridge's own page
)

// open opens an address, and returns the one at which it ends: that of a client.
func (b *browser) open(ctx context.Context, address string) (*url.URL, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	for range 20 {
		if err != nil {
			return nil, err
		}
		a, err2 := b.http.Do(r)
		if err2 != nil {
			return nil, err2
		}
		page, err2 := io.ReadAll(io.LimitReader(a.Body, 1<<20))
		a.Body.Close()
		if err2 != nil {
			return nil, err2
		}
		if to := a.Header.Get("Location"); to != "" {
			next, err := r.URL.Parse(to)
			if err != nil || strings.HasPrefix(next.String(), redirect) || next.Path == "/callback" {
				return next, err
			}
			r, err = http.NewRequestWithContext(ctx, http.MethodGet, next.String(), nil)
			if err != nil {
				return nil, err
			}
			continue
		}
		action, prompt, asked := formAction.FindSubmatch(page), formPrompt.FindSubmatch(page), formAsked.FindSubmatch(page)
		if action == nil || prompt == nil && asked == nil {
			return nil, fmt.Errorf("%s: %d without a form: %.1000s", r.URL.Path, a.StatusCode, page)
		}
		next, err2 := r.URL.Parse(html.UnescapeString(string(action[1])))
		if err2 != nil {
			return nil, err2
		}
		form := url.Values{"login": {b.name}, "password": {"any"}}
		if asked != nil {
			form = url.Values{"request": {html.UnescapeString(string(asked[1]))}, "answer": {"allow"}}
			b.agreed++
		} else {
			form.Set("prompt", string(prompt[1]))
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, next.String(), strings.NewReader(form.Encode()))
		if err == nil {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	return nil, fmt.Errorf("too many redirects: %s", r.URL)
}

// idp starts an identity provider, and returns its issuer.
func idp(t *testing.T) string {
	t.Helper()
	p := start(t, exec.Command(node(t), "idp.mjs"))
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p.base
}

// identified serves two servers to who is in the group eng at the issuer. One tool of
// each needs a scope of its own.
func identified(t *testing.T, issuer string) *process {
	t.Helper()
	one := kindOf(t, references[0], "stdio")
	one["scopes"] = map[string]any{"all": "mcp:use", "tools": map[string]any{"echo": "files:write"}}
	return serveFile(t, configureNamed(t, map[string]any{
		"oauth": []map[string]any{{
			"issuer": issuer, "scopes": []string{"mcp:use"},
			"introspection": map[string]any{"client": map[string]any{"id": "bridge", "secret": "the-secret-of-the-bridge"}},
		}},
		"access":  []map[string]any{{"name": "staff", "claims": map[string]any{"groups": "eng"}}},
		"servers": map[string]any{"files": one, "opaque": one},
	}))
}

// goSignIn is how a client of the Go SDK signs a user in whose browser is opened at an
// address: it registers by itself.
func goSignIn(t *testing.T, open func(context.Context, string) (*url.URL, error), grants ...string) auth.OAuthHandler {
	t.Helper()
	h, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		RedirectURL: redirect,
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "test", RedirectURIs: []string{redirect}, GrantTypes: grants, ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: "none",
		}},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			ended, err := open(ctx, args.URL)
			if err != nil {
				return nil, err
			}
			q := ended.Query()
			if q.Get("error") != "" {
				return nil, fmt.Errorf("%s: %s", q.Get("error"), q.Get("error_description"))
			}
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestIdentityTypeScript has the client of the TypeScript SDK sign in at an identity provider that others have made, and use
// the bridge with its tokens: with JSON Web Tokens and with opaque ones. A tool needs one scope more, for which it asks its
// user again.
func TestIdentityTypeScript(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	issuer := idp(t)
	p := identified(t, issuer)
	for _, name := range []string{"files", "opaque"} {
		t.Run(name, func(t *testing.T) {
			signsInByScript(t, p.base+"/"+name+"/mcp", 2)
		})
	}
}

// signsInByScript has the client of the TypeScript SDK sign in at a server and make calls, for
// which it opens the browser so often. It reports whether its token could be renewed, and was.
func signsInByScript(t *testing.T, address string, opens int) (renewable bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), "oauth.mjs", address, "echo")
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = left()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	user := newBrowser("eng-ann")
	var last struct {
		Open, Answer string
		Opened       int
		Renewable    bool
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last.Open = ""
		if err := json.Unmarshal(lines.Bytes(), &last); err != nil {
			t.Errorf("%s: %v", lines.Bytes(), err)
		}
		if last.Open == "" {
			continue
		}
		ended, err := user.open(ctx, last.Open)
		if err != nil {
			t.Errorf("the browser: %v", err)
			break
		}
		fmt.Fprintln(in, ended)
	}
	in.Close()
	if err := cmd.Wait(); err != nil || !strings.Contains(last.Answer, "hello") || last.Opened != opens {
		t.Errorf("%v: %+v\n%s", err, last, &complaints)
	}
	return last.Renewable
}
