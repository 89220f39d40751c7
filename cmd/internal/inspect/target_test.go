package inspect_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/config"
)

// errSeen ends a command when the target has been resolved.
var errSeen = errors.New("seen")

// resolved runs a command as far as to the server that is to be reached, and
// returns what it is.
func resolved(t *testing.T, command []string, args ...string) (c *config.Config, name string, err error) {
	t.Helper()
	r := newRig(t, func(settings *config.Config, of string, _ *slog.Logger) (*inspect.Link, error) {
		c, name = settings, of
		return nil, errSeen
	})
	if command != nil {
		args = append(append(args, "--"), command...)
	}
	_, err = r.execute(inspect.Options{Stdout: io.Discard, Stderr: io.Discard}, append([]string{"tools"}, args...)...)
	if errors.Is(err, errSeen) {
		err = nil
	}
	return c, name, err
}

// reached is resolved without an error.
func reached(t *testing.T, command []string, args ...string) (c *config.Config, name string) {
	t.Helper()
	c, name, err := resolved(t, command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c, name
}

func TestResolve(t *testing.T) {
	t.Setenv("TARGET_TOKEN", "secret")
	path := file(t, "bridge.yaml", `access_log: { to: stdout, payloads: true }
servers:
  one: { stdio: { command: cat }, timeout: 20s, max_timeout: 40s }
  two: { http: { url: "https://example.com/mcp" }, tools: { allow: ["get_*"] } }
`)
	t.Run("a command", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "my-server"), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		c, name := reached(t, []string{"./my-server", "-x"}, "--env", "A=b", "--cwd", dir, "--timeout", "2h")
		s := c.Servers[0]
		if name != "my-server" || s.Stdio.Command != "./my-server" || len(s.Stdio.Args) != 1 || s.Stdio.Args[0] != "-x" || s.Stdio.Env["A"] != "b" || s.Stdio.Cwd != dir {
			t.Errorf("server %q is %+v", name, s.Stdio)
		}
		if s.Timeout != 2*time.Hour || s.MaxTimeout != 2*time.Hour || s.HandshakeTimeout != 2*time.Hour {
			t.Errorf("time-outs %v, %v and %v, want 2h", s.Timeout, s.MaxTimeout, s.HandshakeTimeout)
		}
	})
	t.Run("a URL", func(t *testing.T) {
		c, name := reached(t, nil, "https://tools.example.com/mcp?key=1", "-H", "authorization: Bearer ${TARGET_TOKEN}", "--header", "X-A:b:c", "--transport", "sse")
		s := c.Servers[0]
		want := map[string]string{"Authorization": "Bearer secret", "X-A": "b:c"}
		if name != "tools-example-com" || s.HTTP.URL != "https://tools.example.com/mcp?key=1" || s.HTTP.Transport != "sse" || !maps.Equal(s.HTTP.Headers, want) {
			t.Errorf("server %q is %+v", name, s.HTTP)
		}
		if s.Timeout != 300*time.Second {
			t.Errorf("the time-out is %v, want 300s", s.Timeout)
		}
	})
	t.Run("a URL, with a key in a variable", func(t *testing.T) {
		secure := httptest.NewTLSServer(nil)
		defer secure.Close()
		ca := file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
		c, _ := reached(t, nil, "https://tools.example.com/mcp", "--token-env", "TARGET_TOKEN", "--ca-file", ca)
		if s := c.Servers[0].HTTP; s.Headers["Authorization"] != "Bearer secret" || s.CAFile != ca || s.OAuth != nil {
			t.Errorf("server is %+v", s)
		}
	})
	t.Run("a name", func(t *testing.T) {
		c, name := reached(t, nil, "one", "-c", path)
		if s := c.Servers[0]; name != "one" || len(c.Servers) != 1 || s.Timeout != 20*time.Second || s.MaxTimeout != 40*time.Second {
			t.Errorf("%d servers, the first %q is %+v, want one, with the time-outs of the file", len(c.Servers), name, s)
		}
		if c.AccessLog.To != "" {
			t.Errorf("access log to %s, where the command writes: want none", c.AccessLog.To)
		}
	})
	t.Run("a name and a time-out", func(t *testing.T) {
		c, _ := reached(t, nil, "two", "-c", path, "--timeout", "5s")
		if s := c.Servers[0]; s.Timeout != 5*time.Second || s.HTTP == nil || len(s.Tools.Allow) != 1 {
			t.Errorf("server %+v, want its filter and the given time-out", s)
		}
	})
	for _, test := range []struct {
		name    string
		command []string
		args    []string
		fault   string
	}{
		{"another scheme", nil, []string{"ftp://example.com"}, "the URL has the unknown scheme"},
		{"a password", nil, []string{"https://user:word@example.com/mcp"}, "must not hold a password"},
		{"a wrong transport", nil, []string{"https://example.com", "--transport", "smoke"}, "--transport must be"},
		{"an unknown name", nil, []string{"on", "-c", path}, `no server "on": did you mean one?`},
		{"no file", nil, []string{"one"}, `unknown target "one": there is no bridge.yaml here. Give a URL`},
		{"a file that does not exist", nil, []string{"one", "-c", path + "x"}, "bridge.yamlx"},
		{"a server out of service", nil, []string{"off", "-c", file(t, "off.yaml", "servers:\n  on: { http: https://a.example.com }\n  off: { http: '${NOT_SET_ANYWHERE}' }\n")}, `server "off": http: url: the variable NOT_SET_ANYWHERE is not set`},
		{"a broken file", nil, []string{"one", "-c", file(t, "bad.yaml", "servers: 5")}, "the configuration has faults"},
		{"a header of a command", []string{"cat"}, []string{"-H", "A: b"}, "--header needs a URL or an OpenAPI document"},
		{"a transport of a command", []string{"cat"}, []string{"--transport", "sse"}, "--transport needs the URL of an MCP server"},
		{"a variable of a URL", nil, []string{"https://example.com", "--env", "A=b"}, "--env needs a program"},
		{"a folder of a URL", nil, []string{"https://example.com", "--cwd", "/"}, "--cwd needs"},
		{"a file for a URL", nil, []string{"https://example.com", "-c", path}, "--config needs"},
		{"an unset variable", []string{"cat"}, []string{"--env", "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"},
		{"a reserved header", nil, []string{"https://example.com", "-H", "Host: a"}, "Host is set by the bridge itself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := resolved(t, test.command, test.args...)
			if e, ok := errors.AsType[exit.Error](err); !ok || e.Code != exit.Usage || !strings.Contains(err.Error(), test.fault) {
				t.Errorf("error %v of type %T, want one of usage with %q", err, err, test.fault)
			}
			if err != nil && strings.Contains(err.Error(), "word") && strings.Contains(err.Error(), "user:") {
				t.Errorf("error %v repeats a password", err)
			}
		})
	}
}

func TestNoTarget(t *testing.T) {
	for _, args := range [][]string{{"tools"}, {"tools", "--"}, {"call"}, {"call", "t", "--"}, {"prompts"}, {"resources", "--long"}} {
		newRig(t, nil).says(exit.Usage, "", "no target", args...)
	}
}

// An error about a URL has the URL, not the name that the bridge made of it, and says what to do.
func TestErrorOfURL(t *testing.T) {
	for why, want := range map[string]string{
		"it cannot be reached: dial tcp 127.0.0.1:9: connect: connection refused": "http://127.0.0.1:9/mcp: nothing listens there: is the server running?",
		"handshake: it failed (HTTP 500)":                                         "http://127.0.0.1:9/mcp: it failed (HTTP 500): is it an MCP server?",
		"handshake: the connection to it broke: EOF":                              "http://127.0.0.1:9/mcp: the connection to it broke: EOF: is it an MCP server?",
		"it refused to initialize: server tickets: it is down: no file":           "server tickets: it is down: no file",
		"name its CA: in ca_file of the server, or in the variable X":             "http://127.0.0.1:9/mcp: name its CA: with --ca-file FILE, or in the variable X",
	} {
		f := &fake{t: t, answers: map[string]func(*fake, json.RawMessage) string{
			"initialize": always(`"error":{"code":-32603,"message":"server local-9: ` + why + `","data":{"bridge":"upstream_unavailable"}}`),
		}}
		code, _, stderr := newRig(t, f.dial).line("tools", "http://127.0.0.1:9/mcp?key=secret")
		if code != exit.Server || !strings.HasPrefix(stderr, "mcp-bridge: "+want) {
			t.Errorf("exit code %d: %s, want %s", code, stderr, want)
		}
	}
}

// A list of several servers that lacks some says which and why, and so does a call of their tools.
func TestLacking(t *testing.T) {
	f := &fake{t: t, answers: map[string]func(*fake, json.RawMessage) string{
		"initialize": always(`"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`),
		"tools/list": always(`"result":{"tools":[{"name":"files__read","inputSchema":{"type":"object"}}],"_meta":{"dev.mcp-bridge/missing":[{"server":"tickets","since":"2026-01-02T03:04:05Z","why":"handshake: its process has ended"},{"server":"notes","why":"it is still starting"}]}}`),
	}}
	r := newRig(t, f.dial)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local().Format(time.TimeOnly)
	tickets, notes := "server tickets is failing since "+since+" and is missing from the list: its process has ended", "server notes is missing from the list: it is still starting"
	if code, stdout, stderr := r.run("tools"); code != 0 || !strings.Contains(stdout, "files__read") || stderr != "warning: "+tickets+"\nwarning: "+notes+"\n" {
		t.Errorf("tools: exit code %d: %s%s", code, stdout, stderr)
	}
	for tool, want := range map[string]string{
		"tickets__list": tickets,
		"notes__list":   notes,
		"read":          `the server has no tool "read": did you mean files__read? At the address of several servers, names begin with their server's prefix`,
		"files__rea":    `the server has no tool "files__rea": did you mean files__read?`,
		"other":         `the server has no tool "other": there is files__read; ` + tickets + "; " + notes,
	} {
		if _, _, stderr := r.run("call", tool); stderr != "mcp-bridge: "+want+"\n" {
			t.Errorf("%s: %s, want %s", tool, stderr, want)
		}
	}
}
