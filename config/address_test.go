package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
)

func TestLoadAddress(t *testing.T) {
	env := func(name string) (string, bool) { return "127.0.0.1:9000", name == "ADDRESS" }
	for _, test := range []struct{ name, text, want string }{ // want: listen, console_listen, base_path, cert_file; or a part of the error
		{"nothing", "", "127.0.0.1:8808   "},
		{"secrets", "listen: \"${ADDRESS}\"\naccess: [{ name: ops, token_file: \"${NONE}/ops\" }]\nservers: { a: { stdio: { command: missing, env: { KEY: \"${NONE}\" } } } }", "127.0.0.1:9000   "},
		{"all", "listen: 9000\nconsole_listen: 127.0.0.1:9001\nbase_path: /x\ntls: { cert_file: tls.crt, key_file: \"${NONE}/tls.key\" }", "127.0.0.1:9000 127.0.0.1:9001 /x FOLDER/tls.crt"},
		{"a desktop client's", `{ "mcpServers": { "a": { "command": "x" } } }`, "127.0.0.1:8808   "},
		{"a fault elsewhere", "listen: 9000\nsrevers: 1", "127.0.0.1:9000   "},
		{"no such variable", "listen: \"${NONE}\"", "NONE is not set"},
		{"no YAML", "listen: [", "not valid YAML"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "bridge.yaml")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ""
		if c, err := config.LoadAddress(path, env); err != nil {
			got = err.Error()
		} else {
			got = strings.ReplaceAll(strings.Join([]string{c.Listen, c.ConsoleListen, c.BasePath, c.TLS.CertFile}, " "), dir, "FOLDER")
		}
		if got != test.want && (strings.HasPrefix(test.want, "1") || !strings.Contains(got, test.want)) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
