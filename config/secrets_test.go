package config

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// A secret in a file that everybody can read is a warning, and so is one in the arguments of a program.
func TestSecretWarnings(t *testing.T) {
	const readable, arguments = "can read the file", "looks like a secret"
	for _, test := range []struct{ name, text, want string }{
		{"a token", "access: [{ name: a, token: 0123456789abcdef }]\nservers: { one: { http: { url: https://a } } }", readable},
		{"a token of a variable", "access: [{ name: a, token: \"${TOKEN}\" }]\nservers: { one: { http: { url: https://a } } }", ""},
		{"a variable", "servers: { one: { stdio: { command: sh, env: { API_KEY: abcdefgh, LANG: de } } } }", readable},
		{"a variable that is no secret", "servers: { one: { stdio: { command: sh, env: { LANG: de } } } }", ""},
		{"a header", "servers: { one: { http: { url: https://a, headers: { X-Api-Key: abcdefgh } } } }", readable},
		{"a flag", "servers: { one: { stdio: { command: sh, args: [--token=abc-def-ghi] } } }", arguments},
		{"a flag and its value", "servers: { one: { stdio: { command: sh, args: [--api-key, abc-def-ghi] } } }", arguments},
		{"a header as argument", "servers: { one: { stdio: { command: sh, args: [--header, \"Authorization: Bearer abcdefgh\"] } } }", arguments},
		{"a known form", "servers: { one: { stdio: { command: sh, args: [ghp_abcdefgh] } } }", arguments},
		{"a password in an address", "servers: { one: { stdio: { command: sh, args: [\"postgres://me:pw@host/db\"] } } }", arguments},
		{"a reference as argument", "servers: { one: { stdio: { command: sh, args: [--token, \"${TOKEN}\"] } } }", ""},
		{"other arguments", "servers: { one: { stdio: { command: sh, args: [-y, --max-tokens, \"100000000\", --token-file=/run/token, -v, \"/a/tokens:/b\", --tokens, --read-only-mode] } } }", ""},
		{"the first argument of another server", "servers: { one: { stdio: { command: sh, args: [--token] } }, two: { stdio: { command: sh, args: [something] } } }", ""},
	} {
		path := write(t, t.TempDir(), "bridge.yaml", test.text, 0o600)
		for _, mode := range []os.FileMode{0o640, 0o644} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			c, err := Load(path, func(name string) (string, bool) { return "0123456789abcdef", name == "TOKEN" || name == "PATH" })
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			all := strings.Join(c.Warnings, "\n")
			if got, want := strings.Contains(all, readable), test.want != "" && mode == 0o644 && runtime.GOOS != "windows"; got != want {
				t.Errorf("%s, %o: the warning of the file is %t, want %t: %s", test.name, mode, got, want, all)
			}
			if got, want := strings.Contains(all, arguments), test.want == arguments; got != want {
				t.Errorf("%s: the warning of an argument is %t, want %t: %s", test.name, got, want, all)
			}
		}
	}
}
