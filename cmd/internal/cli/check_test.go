package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// What serve would refuse, check does not call good.
func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct {
		name, text, stdout, stderr string
		flags                      []string
		code                       int
	}{
		{
			name: "open to everybody", code: exit.Usage,
			text:   "listen: 0.0.0.0:8808\nservers: { a: { http: https://example.com/mcp } }\n",
			stdout: "FILE would not be served: 1 server", stderr: "add access: to the configuration",
		},
		{
			name: "open on purpose", flags: []string{"--insecure"},
			text:   "listen: 0.0.0.0:8808\nservers: { a: { http: https://example.com/mcp } }\n",
			stdout: "FILE is good: 1 server",
		},
		{
			name: "a document that is not there", code: exit.Usage,
			text:   "servers:\n  a:\n    rest: { openapi: none.yaml }\n",
			stderr: "FILE:3: server \"a\": rest: openapi is \"none.yaml\": does not exist",
		},
		{
			name: "lists within lists", code: exit.Usage,
			text:   "# mine\nservers: " + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000) + "\n",
			stderr: "FILE:2: lists and mappings are nested deeper than 100 levels: remove the brackets",
		},
		{
			name: "aliases of aliases", code: exit.Usage,
			text:   manyAliases(),
			stderr: "FILE:7: aliases stand for more than 100000 values: write out what each server needs",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := file(t, "bridge.yaml", test.text)
			code, stdout, stderr := in(t, append([]string{"check", "-c", file}, test.flags...)...)
			named := func(s string) string { return strings.ReplaceAll(s, "FILE", file) }
			if code != test.code || !strings.Contains(stdout, named(test.stdout)) || !strings.Contains(stderr, named(test.stderr)) || strings.Contains(stderr, "stat ") {
				t.Errorf("exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
			}
		})
	}
}

// Faults of documents, and lost operations, are reported together with faults of the file. A server
// with faults of its own would give more than there are: its document is not read.
func TestCheckAllAtOnce(t *testing.T) {
	path := pets(t, "https://pets.example.com/v1", `      tools: { getPets: off }
  lost:
    rest: { openapi: ./lost.yaml, base_url: "https://pets.example.com" }
  none:
    rest: { openapi: none.yaml }
  wrong:
    timeout: 90
    rest: { openapi: other.yaml }
max_mesage: 1MiB
`)
	lost := petsDocument + "  /gone: { $ref: gone.yaml }\n"
	write(t, filepath.Join(filepath.Dir(path), "lost.yaml"), lost)
	out := says(t, exit.Usage, "", "*", "check", "-c", path)
	contains(t, out,
		":7: server \"pets\": rest: tools: getPets", ":11: server \"none\": rest: openapi is \"none.yaml\": does not exist",
		":13: server \"wrong\": timeout is 90", ":15: unknown key \"max_mesage\"", "server \"lost\": rest: 1 operation cannot be used",
	)
	if strings.Contains(out, "other.yaml") {
		t.Errorf("a document of a faulty server is read:\n%s", out)
	}
	if _, stdout, _ := in(t, "check", "--json", "-c", path); strings.Count(stdout, `"message"`) != 5 || !strings.Contains(stdout, `"servers": {}`) {
		t.Errorf("as JSON:\n%s", stdout)
	}
}

// manyAliases is a file with a mapping of ten million keys.
func manyAliases() string {
	text := "servers:\n  a0: &a0 { timeout: 1s }\n"
	for i := range 7 {
		text += fmt.Sprintf("  a%d: &a%d { <<: [%s*a%d] }\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	return text
}
