package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// served serves a configuration until the test ends, and returns its address.
func served(t *testing.T, config string) string {
	t.Helper()
	return serving(t, "serve", config, "--json")
}

// serving runs a command that serves until the test ends, and returns its address.
func serving(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	k := start(ctx, t, args...)
	t.Cleanup(func() {
		stop()
		if code := <-k.ended; code != 0 {
			t.Errorf("%q ended with code %d: %s", args, code, &k.log)
		}
	})
	return k.listens()
}

// listens returns the address in the line of --json.
func (t *talk) listens() string {
	t.t.Helper()
	line, err := t.out.ReadString('\n')
	if err != nil {
		t.t.Fatal(err)
	}
	return gjson.Get(line, "listen").Str
}

// status says what /readyz does, by a URL and by the file; with and without a key, over
// HTTP and HTTPS.
func TestStatus(t *testing.T) {
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	t.Setenv("WRONG_KEY", "a-key-of-nobody-at-all")
	const server = "servers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	dir := t.TempDir()
	certificate(t, dir)
	for _, tc := range []struct {
		name, text string
		url        string // what stands before and behind the address; empty for the file
		args       []string
		code       int
		stdout     string
	}{
		{"by the file", "listen: 127.0.0.1:%d\n", "", nil, 0, "The server is working\n0 sessions, 0 active calls, "},
		{"as JSON", "listen: 127.0.0.1:%d\n", "", []string{"--json"}, 0, "\"ready\": true"},
		{"by a URL", "listen: 127.0.0.1:%d\n", "http://|", nil, 0, "one"},
		{"by the URL of an endpoint", "listen: 127.0.0.1:%d\nbase_path: /tools\n", "http://|/tools/mcp", nil, 0, "SERVER"},
		{"below a path, by the file", "listen: 127.0.0.1:%d\nbase_path: /tools\n", "", nil, 0, "SERVER"},
		{"a wrong path", "listen: 127.0.0.1:%d\nbase_path: /tools\n", "http://|", nil, exit.Server, ""},
		{"everywhere", "listen: :%d\naccess: [{ name: ops, token: \"${OPS_KEY}\" }]\n", "", nil, 0, "--token-env NAME"},
		{"with a key", "listen: :%d\naccess: [{ name: ops, token: \"${OPS_KEY}\" }]\n", "", []string{"--token-env", "OPS_KEY"}, 0, "SERVER"},
		{"with a wrong key", "listen: :%d\naccess: [{ name: ops, token: \"${OPS_KEY}\" }]\n", "", []string{"--token-env", "WRONG_KEY"}, 0, "--token-env NAME"},
		{"HTTPS by the file", "listen: 127.0.0.1:%d\ntls: { cert_file: " + dir + "/tls.crt, key_file: " + dir + "/tls.key }\n", "", nil, 0, "SERVER"},
		{"HTTPS by a URL, which needs a certificate that is trusted", "listen: 127.0.0.1:%d\ntls: { cert_file: " + dir + "/tls.crt, key_file: " + dir + "/tls.key }\n", "https://|", nil, exit.Server, ""},
		{"HTTPS by a URL, with a key", "listen: 127.0.0.1:%d\ntls: { cert_file: " + dir + "/tls.crt, key_file: " + dir + "/tls.key }\naccess: [{ name: ops, token: \"${OPS_KEY}\" }]\n", "https://|", []string{"--ca-file", dir + "/tls.crt", "-H", "X-API-Key: ${OPS_KEY}"}, 0, "SERVER"},
		{"health", "listen: 127.0.0.1:%d\n", "", []string{"--health"}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := file(t, "bridge.yaml", fmt.Sprintf(tc.text, porttest.Reserve(t))+server)
			at := served(t, c)
			args := append([]string{"status"}, tc.args...)
			if before, behind, ok := strings.Cut(tc.url, "|"); ok {
				args = append(args, before+at+behind)
			} else {
				args = append(args, "-c", c)
			}
			stderr := ""
			if tc.code != 0 {
				stderr = "mcp-bridge: "
			}
			says(t, tc.code, tc.stdout, stderr, args...)
		})
	}
}

// A bridge that is not ready, none at all, and what is no bridge.
func TestStatusBad(t *testing.T) {
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	serve := func(f http.HandlerFunc) string {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		return s.URL
	}
	unready := serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/readyz" {
			w.WriteHeader(503)
			fmt.Fprintln(w, `{"ready":false,"reason":"no server works\u001b[31m","servers":[{"name":"one\u001b[31m","state":"idle"}]}`)
		}
	})
	elsewhere := serve(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the key went to %s", r.Header.Get("Authorization"))
	})
	redirect := serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) })
	nobody := fmt.Sprintf("http://127.0.0.1:%d", porttest.Reserve(t))
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{unready}, 1, "Not ready: no server works", ""},
		{[]string{unready, "--json"}, 1, `"reason":"no server works`, ""},
		{[]string{unready, "--health"}, 0, "", ""},
		{[]string{nobody}, exit.Server, "", "is the bridge running? Its first lines have its address"},
		{[]string{nobody, "--health"}, 1, "", "nothing listens at 127.0.0.1:"},
		{[]string{redirect, "--token-env", "OPS_KEY"}, exit.Server, "", "it redirects to another origin"},
		{[]string{redirect, "--health"}, 1, "", "it redirects to another origin"},
		{[]string{"nowhere"}, exit.Usage, "", "write a URL such as"},
		{[]string{nobody, "-c", "x.yaml"}, exit.Usage, "", "without a URL only"},
		{[]string{nobody, "--token-env", "NOT_SET_ANYWHERE"}, exit.Usage, "", "is not set"},
		{[]string{nobody, "-H", "X-API-Key: ${NOT_SET_ANYWHERE}"}, exit.Usage, "", "--header X-Api-Key: the variable NOT_SET_ANYWHERE is not set"},
		{[]string{nobody, "-H", "Authorization: Bearer x", "--token-env", "OPS_KEY"}, exit.Usage, "", "--token-env and --header both set Authorization"},
		{[]string{nobody, "--ca-file", "none.pem"}, exit.Usage, "", "--ca-file: "},
		{[]string{"-c", file(t, "bridge.yaml", good)}, exit.Usage, "", "name its URL"},
	} {
		if all := says(t, tc.code, tc.stdout, tc.stderr, append([]string{"status"}, tc.args...)...); strings.Contains(all, "\x1b") {
			t.Errorf("%q: a control character is in %q", tc.args, all)
		}
	}
}

// Commands about a running bridge need where it listens, and none of the secrets in its file.
func TestNoSecrets(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	t.Setenv("BRIDGE_CREDENTIALS", dir)
	t.Setenv("BRIDGE_CALLER", "a-key-of-the-operators")
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	c := file(t, "bridge.yaml", fmt.Sprintf(`listen: 127.0.0.1:%d
base_path: /tools
tls: { cert_file: %s/tls.crt, key_file: "${BRIDGE_CREDENTIALS}/tls.key" }
access: [{ name: ops, token: "${BRIDGE_CALLER}" }]
admin: [ops]
servers: { one: { http: { url: "http://127.0.0.1:1/mcp", headers: { X-Key: "${BRIDGE_CALLER}" } } } }
`, porttest.Reserve(t), dir))
	served(t, c)
	for _, name := range []string{"BRIDGE_CREDENTIALS", "BRIDGE_CALLER"} {
		if err := os.Unsetenv(name); err != nil { // Setenv restores it
			t.Fatal(err)
		}
	}
	for _, command := range []string{"status", "top --once", "sessions", "drain one", "resume one", "reload --check"} {
		args := append(strings.Fields(command), "-c", c, "--token-env", "OPS_KEY")
		code, stdout, stderr := in(t, args...)
		if strings.HasPrefix(command, "reload") { // the bridge is this process, which lost the variables
			if !strings.Contains(stderr, "nothing has changed: the configuration has faults") {
				t.Errorf("%s: code %d, stdout %q, stderr %q, want the bridge's answer", command, code, stdout, stderr)
			}
			continue
		}
		if code != 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q", command, code, stdout, stderr)
		}
	}
}
