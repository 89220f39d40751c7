package flags_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/config"
)

func TestParseHeaders(t *testing.T) {
	t.Setenv("FLAGS_A", "one")
	t.Setenv("FLAGS_EMPTY", "")
	headers := func(all ...string) (map[string]string, error) {
		s, err := (&flags.Remote{Reach: flags.Reach{Headers: all}}).Server("https://example.com/mcp", config.ShareSession)
		if err != nil {
			return nil, err
		}
		return s.HTTP.Headers, nil
	}
	for _, test := range []struct {
		flag, want, fault string
	}{
		{flag: "x: plain", want: "plain"},
		{flag: "x:", want: ""},
		{flag: "x: ${FLAGS_A}-${FLAGS_A}", want: "one-one"},
		{flag: "x: ${FLAGS_B:-two}${FLAGS_EMPTY:-three}${FLAGS_EMPTY}", want: "twothree"},
		{flag: "x: $${FLAGS_A} $FLAGS_A", want: "${FLAGS_A} $FLAGS_A"},
		{flag: "x: ${FLAGS_B}", fault: "the variable FLAGS_B is not set"},
		{flag: "x: secret ${FLAGS_A", fault: "has no closing brace"},
		{flag: "secret", fault: "needs 'NAME: VALUE'"},
		{flag: ": secret", fault: "needs 'NAME: VALUE'"},
	} {
		got, err := headers(test.flag)
		switch {
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: error %v, want one with %q and no value", test.flag, err, test.fault)
		case test.fault == "" && (err != nil || got["X"] != test.want):
			t.Errorf("%q: %q (error %v), want %q", test.flag, got["X"], err, test.want)
		}
	}
	if _, err := headers("a: 1", "A: 2"); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a header twice: error %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("FLAGS_A", "one")
	for _, test := range []struct {
		name, fault string
		program     flags.Program
		env         map[string]string
		pass        []string
	}{
		{name: "values and names", program: flags.Program{Env: []string{"A=b=c", "FLAGS_A", "EMPTY="}}, env: map[string]string{"A": "b=c", "FLAGS_A": "one", "EMPTY": ""}},
		{name: "patterns", program: flags.Program{Env: []string{"AWS_*", "X=*"}}, env: map[string]string{"X": "*"}, pass: []string{"AWS_*"}},
		{name: "everything", program: flags.Program{EnvAll: true, Env: []string{"A=1"}}, env: map[string]string{"A": "1"}, pass: []string{"*"}},
		{name: "not set", program: flags.Program{Env: []string{"FLAGS_B"}}, fault: "give it as FLAGS_B=VALUE"},
		{name: "no name", program: flags.Program{Env: []string{"=hunter2"}}, fault: "--env needs NAME=VALUE"},
	} {
		s, err := test.program.Server([]string{"npx"}, config.ShareAll)
		switch {
		case test.fault != "":
			if err == nil || !strings.Contains(err.Error(), test.fault) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: error %v, want one with %q and no value", test.name, err, test.fault)
			}
		case err != nil || !maps.Equal(s.Stdio.Env, test.env) || !slices.Equal(s.Stdio.EnvPass, test.pass):
			t.Errorf("%s: env %q, pass %q (error %v), want %q and %q", test.name, s.Stdio.Env, s.Stdio.EnvPass, err, test.env, test.pass)
		}
	}
}

func TestServerName(t *testing.T) {
	for _, test := range []struct{ command, want string }{
		{"npx", "npx"},
		{"npx -y @modelcontextprotocol/server-filesystem .", "filesystem"},
		{"npx -y @modelcontextprotocol/server-everything@latest stdio", "everything"},
		{"npx --package=@a/tool-mcp@1.2 x", "tool"},
		{"npx -y @playwright/mcp@latest", "playwright"},
		{"uvx mcp-server-time", "time"},
		{"uvx --from git+https://github.com/a/weather@v1 x", "weather"},
		{"uv --directory /srv run server.py", "uv"},
		{"uv run --with httpx /srv/notes/server.py", "notes"},
		{"python3 -u -m mcp_server_git --repo .", "git"},
		{"python3.12 /srv/time_server.py", "time"},
		{"node /opt/foo/dist/index.js --x", "foo"},
		{"node --env-file=.env build/index.js", "node"},
		{"docker run -i --rm -e KEY -v /a:/b mcp/github:latest", "github"},
		{"docker ps", "docker"},
		{"go run ./examples/everything stdio", "everything"},
		{"go run .", "go"},
		{"./my-server --verbose", "my-server"},
		{"/usr/local/bin/My_Server", "my-server"},
		{`C:\Tools\server.EXE`, "server"},
		{"./mcp", "server"},
		{"...", "server"},
		{strings.Repeat("a", 100), strings.Repeat("a", 64)},
	} {
		s, err := (&flags.Program{}).Server(strings.Fields(test.command), config.ShareAll)
		if err != nil || s.Name != test.want {
			t.Errorf("the server of %q is named %q (error %v), want %q", test.command, s.Name, err, test.want)
		}
	}
}

// Flags before the package, the image or the script belong to the program that starts it.
func TestMisplaced(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range []string{"port", "name", "env", "timeout"} {
		f.String(name, "", "")
	}
	for _, test := range []struct{ command, want string }{
		{"npx -y @modelcontextprotocol/server-filesystem . --port 9000", "--port goes to the server"},
		{"npx -y @modelcontextprotocol/server-filesystem . --port=9000 --name x --port 1", "--port --name go to the server"},
		{"npx -y x --verbose -- --ports 1", ""},
		{"docker run -i --rm --name x --env KEY mcp/github", ""},
		{"docker run -i --rm --name x --env KEY mcp/github --port 1", "--port goes"},
		{"npx -p tool --package=other x --port 1", "--port goes"},
		{"uvx --from git+https://github.com/a/weather@v1 --with httpx x --port 1", "--port goes"},
		{"python3 -u -m mcp_server_git --port 1", "--port goes"},
		{"python3 --port 1", ""},
		{"docker", ""},
		{"./my-server --env A=secret", "--env goes"},
	} {
		got := strings.Join(flags.Misplaced(f, strings.Fields(test.command)), "")
		if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) || strings.Contains(got, "secret") {
			t.Errorf("%q: %q, want %q", test.command, got, test.want)
		}
	}
}

func TestURLName(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"https://tools.example.com/mcp", "tools-example-com"},
		{"http://127.0.0.1:3001/mcp", "local-3001"},
		{"http://[::1]/mcp", "local"},
		{"http://localhost:8080/sse", "local-8080"},
	} {
		if s, err := (&flags.Remote{}).Server(test.url, config.ShareAll); err != nil || s.Name != test.want {
			t.Errorf("the server at %s is named %q (error %v), want %q", test.url, s.Name, err, test.want)
		}
	}
}

// A port alone is one of this machine.
func TestListen(t *testing.T) {
	for _, test := range []struct {
		flags flags.Listen
		want  string
	}{
		{flags.Listen{}, "10.0.0.1:80"},
		{flags.Listen{Address: "8808"}, "127.0.0.1:8808"},
		{flags.Listen{Address: ":8808"}, ":8808"}, // every network, as in a file
		{flags.Listen{Address: "0.0.0.0:1"}, "0.0.0.0:1"},
		{flags.Listen{Address: "nowhere"}, "nowhere"},
		{flags.Listen{Port: "0"}, "10.0.0.1:0"},
		{flags.Listen{Host: "::", Port: "9"}, "[::]:9"},
		{flags.Listen{Host: "[::1]"}, "[::1]:80"},
	} {
		if got, err := test.flags.Over("10.0.0.1:80"); err != nil || got != test.want {
			t.Errorf("%+v: %q (error %v), want %q", test.flags, got, err, test.want)
		}
	}
	if _, err := (&flags.Listen{Address: "1", Port: "2"}).Over("10.0.0.1:80"); err == nil {
		t.Error("two addresses are taken")
	}
}
