package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

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

// TestFrontTypeScript has the client of the TypeScript SDK register at the bridge, sign its user in, who has to agree first,
// and make calls. It asks for no second scope: with a refresh token, it would renew its token rather than ask its user
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
