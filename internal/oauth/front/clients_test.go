package front

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// The clients in docs/providers.md can sign in unchanged: with their registration or document, at each of their
// addresses, and with their spelling of the resource. Several processes of one renew the same token at once.
func TestKnownClients(t *testing.T) {
	both := []string{"authorization_code", "refresh_token"}
	for name, c := range map[string]struct {
		document  string // the client id, instead of a registration
		metadata  map[string]any
		addresses []string // besides those in metadata
		resource  string   // other than that of the endpoint
		aud       string   // other than the endpoint
	}{
		"Claude": {resource: filesURL + "/", metadata: map[string]any{
			"client_name": "Claude", "redirect_uris": []string{"https://claude.ai/api/mcp/auth_callback", "https://claude.com/api/mcp/auth_callback"},
			"grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none", "scope": "mcp:use",
		}},
		"Claude by its document": {document: "https://claude.ai/oauth/mcp-oauth-client-metadata", metadata: map[string]any{
			"client_name": "Claude", "client_uri": "https://claude.ai", "redirect_uris": []string{"https://claude.ai/api/mcp/auth_callback"},
			"grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
		}},
		"Claude Code": {addresses: []string{"http://localhost:61234/callback"}, metadata: map[string]any{
			"client_name": "Claude Code (files)", "redirect_uris": []string{"http://localhost:54545/callback"}, "grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
		}},
		"ChatGPT": {metadata: map[string]any{
			"client_name": "ChatGPT", "redirect_uris": []string{"https://chatgpt.com/connector/oauth/aB3_-x", "https://chatgpt.com/connector_platform_oauth_redirect"}, "grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
		}},
		"VS Code": {addresses: []string{"http://127.0.0.1:51234/"}, metadata: map[string]any{
			"client_name": "Visual Studio Code", "client_uri": "https://code.visualstudio.com", "application_type": "native", "token_endpoint_auth_method": "none",
			"redirect_uris": []string{"https://insiders.vscode.dev/redirect", "https://vscode.dev/redirect", "http://127.0.0.1/", "http://127.0.0.1:33418/"},
			"grant_types":   append(both, "urn:ietf:params:oauth:grant-type:device_code"), "response_types": []string{"code"},
		}},
		"Cursor": {metadata: map[string]any{
			"client_name": "Cursor", "application_type": "web", "token_endpoint_auth_method": "none", "grant_types": both, "response_types": []string{"code"},
			"redirect_uris": []string{"http://localhost:8787/callback", "cursor://anysphere.cursor-mcp/oauth/callback", "https://www.cursor.com/agents/mcp/oauth/callback"},
		}},
		"MCP Inspector": {addresses: []string{"http://localhost:6300/oauth/callback"}, metadata: map[string]any{
			"client_name": "MCP Inspector", "redirect_uris": []string{"http://localhost:6274/oauth/callback"}, "grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none", "scope": "",
		}},
		"mcp-remote": {resource: root + "/", aud: root, addresses: []string{"http://localhost:3335/oauth/callback"}, metadata: map[string]any{
			"client_name": "MCP CLI Proxy", "redirect_uris": []string{"http://localhost:3334/oauth/callback"}, "grant_types": both, "response_types": []string{"code"}, "token_endpoint_auth_method": "none", "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
		}},
		"one of 2025-03-26": {resource: "none", aud: root, metadata: map[string]any{ // knows no resources, and wants a secret
			"client_name": "old", "redirect_uris": []string{"http://127.0.0.1:1234/cb"}, "token_endpoint_auth_method": "client_secret_post",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fronted(t, nil, func(t *testing.T, r *rig) {
				given := c.metadata["redirect_uris"].([]string)
				id := c.document
				if id != "" {
					c.metadata["client_id"] = id
					u, _ := url.Parse(id)
					r.docs.Put(u.Host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { oauthtest.JSON(w, 200, c.metadata) }))
				} else {
					a := r.do("POST", "/register", c.metadata, "Origin", "http://localhost:6274")
					v := gjson.Parse(a.Body.String())
					if id = v.Get("client_id").Str; a.Code != 201 || a.Header().Get("Access-Control-Allow-Origin") != "*" || len(v.Get("redirect_uris").Array()) != len(given) || v.Get("token_endpoint_auth_method").Str != "none" || v.Get("client_secret").Exists() {
						t.Fatalf("registration: %d %v %s", a.Code, a.Header(), a.Body)
					}
				}
				resource := strings.TrimSuffix(cmp.Or(c.resource, filesURL), "none")
				for _, address := range append(given, c.addresses...) {
					b := r.browser()
					to := r.p.signIn(t, b.agree(ask(id, "redirect_uri", address, "resource", resource)).Header().Get("Location"))
					a := b.do("GET", to.RequestURI(), nil)
					end, err := url.Parse(a.Header().Get("Location"))
					if err != nil || a.Code != 302 || !strings.HasPrefix(end.String(), address+"?") || end.Query().Get("state") != "the state" {
						t.Fatalf("%s: the browser is sent to %d %s", address, a.Code, end)
					}
					access, refresh := r.granted(form(id, end.Query().Get("code"), "redirect_uri", address, "resource", resource))
					if _, err := r.good(access, cmp.Or(c.aud, filesURL)); err != nil {
						t.Errorf("%s: %v", address, err)
					}
					for range 2 {
						r.faults(address+": renewal", again(id, refresh), "")
					}
				}
			})
		})
	}
}
