package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// whoami says what the bridge makes of a key or a token, and why it lets nobody in.
func TestWhoami(t *testing.T) {
	i := authtest.Serve(t)
	port := porttest.Reserve(t)
	here := fmt.Sprintf("http://127.0.0.1:%d", port)
	c := file(t, "bridge.yaml", fmt.Sprintf(`listen: 127.0.0.1:%d
base_path: /tools
public_url: %s
oauth: [{ issuer: "%s" }]
access:
  - { name: ops, token: a-key-of-the-operators }
  - { name: staff, claims: { groups: eng }, servers: [one] }
servers:
  one: { http: { url: http://127.0.0.1:1/mcp } }
  two: { http: { url: http://127.0.0.1:1/mcp } }
`, port, here, i.URL))
	served(t, c)
	eng := authtest.Claims{"groups": "eng", "scope": "b a", "sub": "ann\x1b"}
	t.Setenv("KEY", "a-key-of-the-operators")
	t.Setenv("ANN", i.Token(here+"/tools", authtest.Claims{"groups": "eng", "scope": "b a"}))
	t.Setenv("ONE", i.Token(here+"/tools/one/mcp", authtest.Claims{"groups": "eng"}))
	t.Setenv("OLD", i.Token(here+"/tools", authtest.Claims{"groups": "eng", "exp": time.Now().Add(-time.Hour).Unix()}))
	t.Setenv("NOBODY", i.Token(here+"/tools"))
	t.Setenv("ODD", i.Token(here+"/tools", eng))
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"-c", c, "--token-env", "KEY"}, 0, "rule     ops\nservers  one two\n", ""},
		{[]string{here + "/tools", "--token-env", "ANN"}, 0, "rule     staff\nissuer   " + i.URL + "\nsubject  ann\nclient   app\nscopes   a b\nuntil    ", ""},
		{[]string{here + "/tools/mcp", "--token-env", "ANN"}, 0, "servers  one\n", ""},
		{[]string{here + "/tools/one/mcp", "--token-env", "ONE"}, 0, "subject  ann\n", ""},
		{[]string{here + "/tools/one/mcp", "--token-env", "ANN", "--json"}, 0, `"rule": "staff"`, ""},
		{[]string{here + "/tools/two/mcp", "--token-env", "ONE"}, exit.Failure, "", "refuses this caller (401): the token is not for this resource (" + here + "/tools/two/mcp)"},
		{[]string{here + "/tools", "--token-env", "OLD"}, exit.Failure, "", "the token has expired"},
		{[]string{here + "/tools", "--token-env", "NOBODY"}, exit.Failure, "", "(403): no access rule admits this user"},
		{[]string{here + "/tools", "--token-env", "ODD"}, exit.Failure, "", "the token is not valid"},
		{[]string{here + "/tools"}, exit.Failure, "", "missing key or token"},
		{[]string{here + "/tools", "--token-env", "UNSET_NAME"}, exit.Usage, "", "the variable is not set"},
		{[]string{here + "/tools", "-c", c}, exit.Usage, "", "without a URL only"},
		{[]string{i.URL}, exit.Server, "", "is this the address of a bridge?"},
	} {
		if all := says(t, tc.code, tc.stdout, tc.stderr, append([]string{"whoami"}, tc.args...)...); strings.Contains(all, "eyJ") {
			t.Errorf("%q: a token is shown: %s", tc.args, all)
		}
	}
}

// Only the bridge is shown the token, and it is asked about the endpoint that was named.
func TestWhoamiShows(t *testing.T) {
	t.Setenv("KEY", "a-key-of-the-operators")
	asked := make(chan string, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/whoami" {
			asked <- r.URL.Query().Get("for") + r.Header.Get("Authorization")
			_, _ = w.Write([]byte(`{"rule":"ops"}`))
			return
		}
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%s has got the key", r.URL)
		}
		_, _ = w.Write([]byte(`{"resource_name":"one"}`))
	}))
	defer site.Close()
	for _, endpoint := range []string{"/one/mcp", "/one/sse", "/mcp", "/sse", ""} {
		says(t, 0, "*", "*", "whoami", site.URL+endpoint, "--token-env", "KEY")
		if got := <-asked; got != endpoint+"Bearer a-key-of-the-operators" {
			t.Errorf("%s: asked %s", endpoint, got)
		}
	}
}

// check --online says how issuers fare, and what clients of theirs need.
func TestOnline(t *testing.T) {
	good, bare, broken, opaque := authtest.Serve(t), authtest.Serve(t), authtest.Serve(t), authtest.Serve(t)
	good.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/jwks","registration_endpoint":"%s/reg","code_challenge_methods_supported":["plain","S256"],"scopes_supported":["openid","mcp:use"],"claims_supported":["sub","realm_access"]}`, good.URL, good.URL, good.URL)
	})
	broken.Answer("/jwks", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	opaque.Answer("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"client_id_metadata_document_supported":true}`, opaque.URL)
	})
	const rest = "public_url: https://mcp.example.com\nbase_path: /tools\naccess: [{ name: staff, claims: { groups: a, realm_access.roles: b, sub: c } }, { name: team, claims: { team: d } }, { name: all, users: any }]\nservers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	for _, tc := range []struct {
		name, oauth string
		code        int
		stdout      []string
	}{
		{"good", `[{ issuer: "` + good.URL + `", scopes: ["mcp:use", "mcp:other"] }]`, 0, []string{
			"issuer " + good.URL, "1 key can be used", "clients register by themselves at " + good.URL + "/reg", "scopes_supported does not have mcp:other:",
			"claims_supported does not have groups team, which access rules name: make sure that its tokens have them\n",
			"https://mcp.example.com/tools\thttps://mcp.example.com/tools/.well-known/oauth-protected-resource\n",
			"https://mcp.example.com/tools/one/sse\thttps://mcp.example.com/tools/.well-known/oauth-protected-resource/one/sse\n",
		}},
		{"bare", `[{ issuer: "` + bare.URL + `" }]`, 0, []string{"clients cannot register by themselves", "does not have S256"}},
		{"broken", `[{ issuer: "` + good.URL + `" }, { issuer: "` + broken.URL + `" }]`, exit.Failure, []string{"fault: the keys at " + broken.URL + "/jwks: the answer is 500", "1 key can be used"}},
		{"another issuer", `[{ issuer: "` + good.URL + `/" }]`, exit.Failure, []string{"write the issuer exactly like that"}},
		{"no introspection", `[{ issuer: "` + opaque.URL + `", introspection: { client: { id: a, secret: b }, always: true } }]`, exit.Failure, []string{"names no introspection_endpoint", "clients whose id is a URL (CIMD) need no registration"}},
		{"fronted", `[{ issuer: "` + bare.URL + `", front: { client: { id: a, secret: b } } }]`, 0, []string{"register the bridge there, with the redirect URI https://mcp.example.com/tools/oauth/callback\n"}},
		{"introspection", `[{ issuer: "` + bare.URL + `", introspection: { client: { id: a, secret: b } } }]`, 0, []string{"opaque tokens are asked about at " + bare.URL + "/introspect"}},
	} {
		code, stdout, stderr := in(t, "check", "--online", file(t, "bridge.yaml", "oauth: "+tc.oauth+"\n"+rest))
		contains(t, stdout, tc.stdout...)
		if code != tc.code || code == 0 && strings.Contains(stdout, "fault") {
			t.Errorf("%s: %d %s\n%s", tc.name, code, stderr, stdout)
		}
	}
	says(t, 0, "the file has no oauth", "*", "check", "--online", file(t, "bridge.yaml", "servers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"))
}
