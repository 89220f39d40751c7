package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/oauth2"

	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// fronted serves a server to those in the group eng of an identity provider, for which the
// bridge stands in: no client knows the provider.
func fronted(t *testing.T, issuer string, scopes map[string]any) *process {
	t.Helper()
	port := porttest.Reserve(t)
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	registration := post(t, issuer+"/reg", map[string]any{
		"client_name": "the bridge", "redirect_uris": []string{base + "/oauth/callback"}, "application_type": "native",
		"grant_types": []string{"authorization_code", "refresh_token"}, "token_endpoint_auth_method": "client_secret_basic",
	})
	one := kindOf(t, references[0], "stdio")
	one["scopes"] = scopes
	file := configureNamed(t, map[string]any{
		"public_url": base,
		"oauth": []map[string]any{{
			"issuer": issuer, "scopes": []string{"mcp:use"},
			"front": map[string]any{
				"client": map[string]any{"id": registration["client_id"], "secret": registration["client_secret"]},
				"scopes": []string{"offline_access"}, "authorize_params": map[string]any{"prompt": "consent"},
			},
		}},
		"access":  []map[string]any{{"name": "staff", "claims": map[string]any{"groups": "eng"}}},
		"servers": map[string]any{"files": one},
	})
	p := start(t, exec.Command(bridgeProgram(t), "serve", "-c", file, "--listen", fmt.Sprintf("127.0.0.1:%d", port)))
	t.Cleanup(func() { p.stop(t) })
	return p
}

// TestFrontPage has a client that is a page of another site sign its user in, in a window that
// it opens: in Chromium, whose rules for cookies, windows and requests across sites count.
func TestFrontPage(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	chromium := programtest.Need(t, "chromium")
	p := fronted(t, idp(t), map[string]any{"all": "mcp:use"})
	if out := runNode(t, "page.mjs", chromium, p.base+"/files/mcp"); !bytes.Contains(out, []byte("hello")) {
		t.Errorf("the page shows %q", out)
	}
}

// post sends JSON, and returns what is answered.
func post(t *testing.T, address string, body any) map[string]any {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.Post(address, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(a.Body).Decode(&got); err != nil || a.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s %v %v", address, a.Status, got, err)
	}
	return got
}

// TestFrontGo has the client of the Go SDK register at the bridge, sign its user in, who has
// to agree first, and make calls. Then its token is renewed.
func TestFrontGo(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	p := fronted(t, idp(t), map[string]any{"all": "mcp:use", "tools": map[string]any{"echo": "files:write"}})
	for _, who := range []string{"eng-ann", "guest"} {
		t.Run(who, func(t *testing.T) {
			user := newBrowser(who)
			h := goSignIn(t, user.open, "authorization_code", "refresh_token")
			client := mcp.NewClient(&mcp.Implementation{Name: "front", Version: "1"}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.base + "/files/mcp", OAuthHandler: h}, nil)
			if who == "guest" {
				if err == nil {
					t.Fatal("a guest is let in")
				}
				if user.agreed == 0 {
					t.Errorf("the guest was not asked: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			a, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
			if err != nil || len(a.Content) == 0 || !strings.Contains(a.Content[0].(*mcp.TextContent).Text, "hello") {
				t.Fatalf("echo: %+v, %v", a, err)
			}
			if user.agreed != 2 {
				t.Errorf("the user was asked %d times, want another for the scope", user.agreed)
			}
			source, err := h.TokenSource(ctx)
			if err != nil {
				t.Fatal(err)
			}
			before, err := source.Token()
			if err != nil || before.RefreshToken == "" {
				t.Fatalf("no refresh token: %v", err)
			}
			renewed(t, p, user, before)
		})
	}
}

// renewed has a token renewed as a client of its own does, and makes a request with it.
func renewed(t *testing.T, p *process, user *browser, had *oauth2.Token) {
	t.Helper()
	registration := post(t, p.base+"/register", map[string]any{"client_name": "another", "redirect_uris": []string{redirect}})
	id, _ := registration["client_id"].(string)
	token := func(form url.Values) (status int, answer map[string]any) {
		a, err := http.PostForm(p.base+"/token", form)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if err := json.NewDecoder(a.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, answer
	}
	if status, answer := token(url.Values{"grant_type": {"refresh_token"}, "client_id": {id}, "refresh_token": {had.RefreshToken}}); status != 400 || answer["error"] != "invalid_grant" {
		t.Errorf("the token of another client is renewed: %d %v", status, answer)
	}
	config := oauth2.Config{ClientID: id, RedirectURL: redirect, Endpoint: oauth2.Endpoint{AuthURL: p.base + "/authorize", TokenURL: p.base + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	verifier := oauth2.GenerateVerifier()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, err := user.open(ctx, config.AuthCodeURL("a state", oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", p.base+"/files/mcp")))
	if err != nil {
		t.Fatal(err)
	}
	first, err := config.Exchange(ctx, ended.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // the provider's is another one each time, too
		status, answer := token(url.Values{"grant_type": {"refresh_token"}, "client_id": {id}, "refresh_token": {first.RefreshToken}, "resource": {p.base + "/files/mcp"}})
		if status != 200 {
			t.Fatalf("renewal %d: %d %v", n, status, answer)
		}
		first.AccessToken, _ = answer["access_token"].(string)
		first.RefreshToken, _ = answer["refresh_token"].(string)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/whoami?for=/files/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+first.AccessToken)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if text, _ := io.ReadAll(a.Body); a.StatusCode != 200 || !bytes.Contains(text, []byte("#eng-ann")) {
		t.Errorf("whoami with the renewed token: %s %s", a.Status, text)
	}
}

// TestFrontTypeScript is the same by the client of the TypeScript SDK, without the second
// scope: with a refresh token, it would renew its token rather than ask its user
// (modelcontextprotocol/typescript-sdk#2255).
func TestFrontTypeScript(t *testing.T) {
	t.Parallel()
	p := fronted(t, idp(t), map[string]any{"all": "mcp:use"})
	if !signsInByScript(t, p.base+"/files/mcp", 1) {
		t.Error("there was no token to be renewed")
	}
}

// TestConformanceFront runs the suite's scenarios for authorization servers against the
// bridge, with a browser that does what it is told on the pages.
func TestConformanceFront(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	requireNode22(t, node(t))
	p := fronted(t, idp(t), map[string]any{"all": "mcp:use"})
	for name, resource := range map[string]string{"for a server": p.base + "/files/mcp", "for the bridge": ""} {
		t.Run(name, func(t *testing.T) {
			port, results := porttest.Reserve(t), t.TempDir()
			registration := post(t, p.base+"/register", map[string]any{"client_name": "conformance", "redirect_uris": []string{fmt.Sprintf("http://127.0.0.1:%d/callback", port)}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			args := []string{modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "authorization", "--url", p.base, "--client-id", fmt.Sprint(registration["client_id"]), "--port", fmt.Sprint(port), "--output-dir", results}
			if resource != "" {
				args = append(args, "--resource", resource)
			}
			cmd := exec.CommandContext(ctx, node(t), args...)
			cmd.SysProcAttr = dieWithParent()
			cmd.WaitDelay = left()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			user := newBrowser("eng-ann")
			for lines := bufio.NewScanner(out); lines.Scan(); {
				all.WriteString(lines.Text() + "\n")
				if !strings.HasPrefix(lines.Text(), p.base+"/authorize?") {
					continue
				}
				ended, err := user.open(ctx, lines.Text())
				if err != nil {
					t.Fatal(err)
				}
				a, err := http.Get(ended.String())
				if err != nil {
					t.Fatal(err)
				}
				a.Body.Close()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &all)
			}
			if ran, passed := scenarios(t, results, authorizationRun, nil, nil); ran != 2 || passed != 2 {
				t.Errorf("%d of %d scenarios passed, want 2 of 2\n%s", passed, ran, &all)
			}
			if user.agreed != 1 {
				t.Errorf("the user was asked %d times", user.agreed)
			}
		})
	}
}

var authorizationRun = regexp.MustCompile(`^(?:authorization-)?(authorization-.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)
