package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write creates a file in dir and returns its path.
func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

// parsed returns the configuration of a text.
func parsed(t *testing.T, text string, env func(string) (string, bool)) *Config {
	t.Helper()
	c, err := Parse("bridge.yaml", []byte(text), env)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// loaded returns the configuration of a file.
func loaded(t *testing.T, path string, env func(string) (string, bool)) *Config {
	t.Helper()
	c, err := Load(path, env)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return c
}

// filesOf returns the files of testdata that match the pattern.
func filesOf(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 20 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".want") })
}

// refused returns the faults of a configuration, of which some must begin so.
func refused(t *testing.T, c *Config, wants ...string) []string {
	t.Helper()
	err := c.Validate()
	if err == nil {
		t.Fatal("Validate() = nil")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range wants {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("Validate() = %v\nwant a line that begins with %s", err, want)
		}
	}
	return lines
}

// pair creates a certificate with that end, and its key.
func pair(t *testing.T, end time.Time) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &own.PublicKey, own)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// Faults and warnings about files of keys and certificates have their lines. Paths start from the
// folder of the configuration.
func TestAccessFiles(t *testing.T) {
	dir := t.TempDir()
	const secret = "s3cr3t-t0k3n-of-somebody"
	cert, key := pair(t, time.Now().Add(time.Hour))
	old, oldKey := pair(t, time.Now().Add(-time.Hour))
	for name, text := range map[string]string{
		"good.key": secret + "\n", "short.key": "s3cr3t", "empty.key": "\n", "two.key": secret + "\n" + secret,
		"good.pem": cert, "good-key.pem": key, "old.pem": old, "old-key.pem": oldKey, "junk.pem": "s3cr3t",
		"torn.pem": cert[:len(cert)/2] + cert[len(cert)-30:],
	} {
		write(t, dir, name, text, 0o600)
	}
	write(t, dir, "open.key", "another-"+secret, 0o644)
	const rest = "servers: { a: { http: { url: \"https://tools.example.com/mcp\" } } }\n"
	for _, tc := range []struct{ name, text, fault, warning string }{
		{"all good", "tls: { cert_file: good.pem, key_file: good-key.pem }\naccess:\n  - { name: a, token_file: good.key }\n", "", ""},
		{"a missing key", "access:\n  - { name: a, token_file: gone.key }\n", `bridge.yaml:2: access: item 1: token_file is "gone.key": does not exist`, ""},
		{"a short key", "access:\n  - name: a\n    token_file: short.key\n", `bridge.yaml:3: access: item 1: token_file is "short.key": the secret in it must have at least 16 characters`, ""},
		{"an empty key", "access:\n  - { name: a, token_file: empty.key }\n", `"empty.key": is empty`, ""},
		{"two lines", "access:\n  - { name: a, token_file: two.key }\n", "visible ASCII", ""},
		{"a folder", "access:\n  - { name: a, token_file: . }\n", `".": is not a file`, ""},
		{"a key that others can read", "access:\n  - { name: a, token_file: open.key }\n", "", `bridge.yaml:2: access: item 1: token_file is "open.key": everybody on this machine can read it`},
		{"a missing certificate", "tls:\n  cert_file: gone.pem\n  key_file: good-key.pem\n", `bridge.yaml:2: tls: cert_file is "gone.pem": does not exist`, ""},
		{"a missing key of it", "tls:\n  cert_file: good.pem\n  key_file: gone.pem\n", `bridge.yaml:3: tls: key_file is "gone.pem": does not exist`, ""},
		{"neither", "tls:\n  cert_file: gone.pem\n  key_file: lost.pem\n", `bridge.yaml:3: tls: key_file is "lost.pem": does not exist`, ""},
		{"no certificate", "tls:\n  cert_file: junk.pem\n  key_file: good-key.pem\n", `bridge.yaml:2: tls: cert_file is "junk.pem": failed to find any PEM data`, ""},
		{"a torn one", "tls:\n  cert_file: torn.pem\n  key_file: good-key.pem\n", `bridge.yaml:2: tls: cert_file is "torn.pem": `, ""},
		{"no key of it", "tls:\n  cert_file: good.pem\n  key_file: junk.pem\n", `bridge.yaml:3: tls: key_file is "junk.pem": failed to find any PEM data`, ""},
		{"swapped", "tls:\n  cert_file: good-key.pem\n  key_file: good.pem\n", `bridge.yaml:2: tls: cert_file is "good-key.pem": `, ""},
		{"another's key", "tls:\n  cert_file: good.pem\n  key_file: old-key.pem\n", `bridge.yaml:3: tls: key_file is "old-key.pem": private key does not match public key`, ""},
		{"an old certificate", "tls:\n  cert_file: old.pem\n  key_file: old-key.pem\n", "", `bridge.yaml:2: tls: cert_file is "old.pem": the certificate ended on `},
		{"several act as one account", "access:\n  - { name: a, token_file: good.key }\n  - { name: b, token: another-key-of-16 }\nservers: { b: { http: { url: \"https://b.example.com/mcp\", oauth: { login: true } } } }\n#", "", `server "b": oauth: with login, all callers act as the one account`},
		{"one acts as one account", "access:\n  - { name: a, token_file: good.key }\nservers: { b: { http: { url: \"https://b.example.com/mcp\", oauth: { login: true } } } }\n#", "", ""},
		{"listening to all", "listen: 0.0.0.0:1\n", "", "bridge.yaml:1: listens beyond loopback without access rules"},
		{"listening to those with a key", "listen: 0.0.0.0:1\naccess:\n  - { name: a, token_file: good.key }\n", "", ""},
	} {
		path := write(t, dir, "bridge.yaml", tc.text+rest, 0o600)
		c, err := Load(path, func(string) (string, bool) { return "", false })
		switch {
		case tc.fault == "" && err != nil, tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.fault)
			continue
		case err != nil:
			if strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%s: the message has the secret: %v", tc.name, err)
			}
			continue
		}
		if got := strings.Join(c.Warnings, "\n"); tc.warning == "" && got != "" || !strings.Contains(got, tc.warning) {
			t.Errorf("%s: warnings %q, want %q", tc.name, got, tc.warning)
		}
	}
	path := write(t, dir, "bridge.yaml", "tls: { cert_file: good.pem, key_file: good-key.pem }\naccess:\n  - { name: a, token_file: good.key }\naccess_log: { to: calls.jsonl }\n"+rest, 0o600)
	c := loaded(t, path, nil)
	if c.TLS.CertFile != filepath.Join(dir, "good.pem") || c.TLS.KeyFile != filepath.Join(dir, "good-key.pem") ||
		c.Access[0].TokenFile != filepath.Join(dir, "good.key") || c.AccessLog.To != filepath.Join(dir, "calls.jsonl") {
		t.Errorf("the paths are %+v, %q and %q: they do not count from the file's folder", c.TLS, c.Access[0].TokenFile, c.AccessLog.To)
	}
}
