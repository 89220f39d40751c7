package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const accessKey = "k3y-of-the-command-line"

// What others can reach is not served to everybody, unless that is asked for.
func TestOpen(t *testing.T) {
	t.Setenv("BRIDGE_TEST_KEY", accessKey)
	open := file(t, "bridge.yaml", strings.Replace(good, "127.0.0.1:0", "0.0.0.0:0", 1))
	closed := file(t, "bridge.yaml", good)
	for _, test := range []struct {
		name string
		args []string
	}{
		{"serve with the flag", []string{"serve", "-c", open, "--insecure"}},
		{"serve elsewhere with the flag", []string{"serve", "-c", closed, "--insecure", "--listen", "0.0.0.0:0"}},
		{"serve on loopback after all", []string{"serve", "-c", open, "--listen", "127.0.0.1:0"}},
		{"run with the flag", []string{"run", "--insecure", "--listen", "0.0.0.0:0", "--", "cat"}},
		{"run with a key", []string{"run", "--token-env", "BRIDGE_TEST_KEY", "--listen", "0.0.0.0:0", "--", "cat"}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		k := start(ctx, t, append([]string{test.args[0], "--json"}, test.args[1:]...)...)
		if said, err := k.out.ReadString('\n'); err != nil {
			t.Fatalf("%s: stdout = %q, %v: %s", test.name, said, err, &k.log)
		}
		stop()
		if code := <-k.ended; code != 0 {
			t.Errorf("%s: exit code %d: %s", test.name, code, &k.log)
		}
	}
}

// A key that is asked for by run is what connect shows, and the log has it not.
func TestTokenEnv(t *testing.T) {
	t.Setenv("BRIDGE_TEST_KEY", accessKey)
	r := newRemote(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k, _, url := serveURL(ctx, t, "run", "--listen", "127.0.0.1:0", "--log-level", "debug", "--token-env", "BRIDGE_TEST_KEY", r.URL+"/mcp")
	resp, err := http.Post(url, "application/json", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: status %d", resp.StatusCode)
	}
	for _, header := range []string{"Authorization: Bearer ${BRIDGE_TEST_KEY}", "X-API-Key: ${BRIDGE_TEST_KEY}"} {
		c := start(t.Context(), t, "connect", url, "-H", header)
		c.greet()
		c.leave()
	}
	if _, auth := r.seen(); strings.Join(auth, "") != "" {
		t.Errorf("the server got %q: the key is between client and bridge (R-173)", auth)
	}
	stop()
	if <-k.ended; strings.Contains(k.log.String(), accessKey) {
		t.Errorf("the log has the key: %s", &k.log)
	}
}

// Access rules are about those who come over the network, not about who runs a
// command with the file.
func TestAccessLocal(t *testing.T) {
	r := newRemote(t, 0)
	path := file(t, "bridge.yaml", "access:\n  - { name: a, token: "+accessKey+", servers: [other] }\nservers:\n  other: { http: { url: \"http://127.0.0.1:1/mcp\" } }\n  remote: { http: { url: \""+r.URL+"/mcp\" } }\n")
	k := start(t.Context(), t, "connect", "remote", "-c", path)
	k.greet()
	k.leave()
	says(t, 0, "*", "*", "tools", "remote", "-c", path)
}

// certificate writes a certificate for this machine and its key.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	s.Close()
	pair := s.TLS.Certificates[0]
	der := pair.Certificate[0]
	raw, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		write(t, filepath.Join(dir, name), string(pem.EncodeToMemory(block)))
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// HTTPS, and keys: what is printed says both, and so does check, without a key.
func TestServeAccess(t *testing.T) {
	path := file(t, "bridge.yaml", "tls: { cert_file: tls.crt, key_file: tls.key }\naccess:\n  - { name: ci, token: "+accessKey+" }\n  - { name: ops, token: another-"+accessKey+" }\n"+good)
	pool := certificate(t, filepath.Dir(path))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k := start(ctx, t, "serve", "-c", path)
	said := ""
	for strings.Count(said, " (HTTP+SSE)\n") < 3 {
		line, err := k.out.ReadString('\n')
		if said += line; err != nil {
			t.Fatalf("stdout = %q, %v: %s", said, err, &k.log)
		}
	}
	if !strings.HasPrefix(said, "all servers as one: https://127.0.0.1:") || strings.Contains(said, accessKey) {
		t.Errorf("stdout = %s", said)
	}
	_, rest, _ := strings.Cut(said, ": ")
	url, _, _ := strings.Cut(rest, "/mcp ")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz: status %d", resp.StatusCode)
	}
	code, stdout, stderr := in(t, "check", "-c", path)
	if code != 0 || !strings.Contains(stdout, "is good: 2 servers on 127.0.0.1:0, HTTPS, access: ci ops\n") || strings.Contains(stdout+stderr, accessKey) {
		t.Errorf("check: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	stop()
	if code := <-k.ended; code != 0 {
		t.Errorf("exit code %d: %s", code, &k.log)
	}
}
