package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// A client gets the faults of the file and of the command line as the answer to each request, with what stderr has, and
// decides when the program ends.
func TestConnectFaults(t *testing.T) {
	t.Setenv("BRIDGE_TEST_TOKEN", "top-secret")
	many := "servers:\n"
	for i := range 100 {
		many += fmt.Sprintf("  one-%d: { http: { uri: \"https://example.com\" } }\n", i)
	}
	for _, test := range []struct {
		name string
		args []string
		want string // a part of the error
	}{
		{"no such file", []string{"-c", filepath.Join(t.TempDir(), "none.yaml")}, "none.yaml"},
		{"no YAML", []string{"-c", file(t, "broken.yaml", "servers: { one: [ }\n")}, "broken.yaml:1"},
		{"an unknown key", []string{"-c", file(t, "key.yaml", "listen: 127.0.0.1:8808\nservers: { one: { http: { uri: x } } }\n")}, `key.yaml:2: server "one": http: unknown key "uri": did you mean "url"?`},
		{"a missing variable", []string{"-c", file(t, "variable.yaml", "access: [{ name: a, token: \"${NOT_SET_ANYWHERE}\" }]\n"+twoRemotes("https://example.com/mcp", "https://example.com/mcp"))}, "NOT_SET_ANYWHERE"},
		{"a fault beside a secret", []string{"-c", file(t, "secret.yaml", "servers: { one: { http: { url: \"ftp://example.com/mcp?key=${BRIDGE_TEST_TOKEN}\" } } }\n")}, "secret.yaml:1: "},
		{"a document that is not there", []string{"-c", file(t, "rest.yaml", "servers: { one: { rest: { openapi: none.json } } }\n")}, "none.json"},
		{"a header with an unset variable", []string{"https://example.com/mcp", "-H", "A: ${NOT_SET_ANYWHERE}"}, "NOT_SET_ANYWHERE is not set"},
		{"many faults", []string{"-c", file(t, "many.yaml", many)}, "bytes in all)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := start(t.Context(), t, append([]string{"connect"}, test.args...)...)
			for id, line := range map[string]string{
				`"d"`: `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}`,
				`"h"`: "no message\n\n" + hello,
				`7`:   "[" + toolCall("x") + "]",
			} {
				a := k.ask(line)
				message := gjson.Get(a, "error.message").String()
				if gjson.Get(a, "id").Raw != id || gjson.Get(a, "error.code").Int() != -32603 || !strings.Contains(message, test.want) ||
					strings.Contains(a, "top-secret") || len(message) > maxFault+100 {
					t.Errorf("%s = %s, want an error with %q", line, a, test.want)
				}
				if cut, _, _ := strings.Cut(message, "…"); !strings.Contains(k.log.String(), "mcp-bridge: "+cut) {
					t.Errorf("stderr has %q before the client leaves, want %q", k.log.String(), message)
				}
			}
			code, stdout, stderr := k.leave()
			if code == 0 || stdout != "" || strings.Count(stderr, "mcp-bridge: ") != 1 || strings.Contains(stderr, "top-secret") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

// A signal ends the command though the client is there, and a person at a terminal does not wait.
func TestConnectFaultsEnd(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	k := start(ctx, t, "connect", "-c", "none.yaml")
	k.ask(hello)
	stop()
	if code := <-k.ended; code == 0 {
		t.Error("exit code 0 after a signal")
	}
	k.in.Close()
	in, _ := io.Pipe() // does not end
	var out, log bytes.Buffer
	cmd := newConnectOn(&flags.Log{Level: "info", Format: "json"}, &out, &log, func(f any) bool { return f == any(in) })
	cmd.SetArgs([]string{"-c", "none.yaml"})
	cmd.SetIn(in)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.(exit.Error).Code != exit.Usage || out.Len()+log.Len() > 0 {
		t.Errorf("error %v, stdout %q, stderr %q; want the error alone", err, out.String(), log.String())
	}
}
