package cli

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
)

func TestImport(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Chdir(t.TempDir())
	const text = `{ "mcpServers": {
  "files": { "command": "npx", "args": ["-y", "x"], "env": { "API_TOKEN": "top-secret-token" } },
  "other": { "url": "https://example.com/mcp" },
  "closed": { "command": "npx", "oauth": { "x": 1 } }
} }`
	all := map[string]string{"config.json": text, ".cursor/mcp.json": text,
		"ours.yaml":             "# ours\nservers:\n  mine: { stdio: \"npx x\" }\n",
		"off.json":              `{ "mcpServers": { "a": { "command": "npx", "disabled": true } } }`,
		"named.json":            `{ "mcpServers": { "File System": { "command": "npx" } } }`,
		".gemini/settings.json": `{ "mcpServers": {`, filepath.Join(home, ".gemini/settings.json"): text,
		filepath.Join(home, ".claude.json"): `{ "mcpServers": { "a": { "command": "mine" } }, "projects": { "/x": { "disabledMcpjsonServers": ["b"] } } }`,
		".mcp.json":                         `{ "mcpServers": { "a": { "command": "theirs" }, "b": { "command": "theirs" } } }`,
	}
	for file, text := range all {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, text)
	}
	for _, test := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"what there is", []string{"import"}, 0, ".cursor/mcp.json: files, other\n", ""},
		{"to standard output", []string{"import", "config.json"}, 0, "servers:\n  files:\n", `note: config.json: server "closed" is left out: oauth has another form here`},
		{"what to set", []string{"import", "config.json"}, 0, `API_TOKEN: "${API_TOKEN}"`, "note: set before you use it: API_TOKEN\n"},
		{"none that is on", []string{"import", "off.json"}, exit.Usage, "", "the servers of off.json: all of them are disabled there"},
		{"one of them", []string{"import", "config.json", "--only", "other"}, 0, "servers:\n  other:\n", ""},
		{"one by its name in the file", []string{"import", "named.json", "--only", "File System"}, 0, "servers:\n  file-system:\n", ""},
		{"a client with a broken file", []string{"import", "gemini"}, 0, "servers:\n  files:\n", "note: .gemini/settings.json: not valid JSON"},
		{"a server of its user and of the folder", []string{"import", "claude-code"}, 0, "command: mine", "note: .mcp.json: server \"a\" is left out: there is one of this name already"},
		{"one that the user has disabled", []string{"import", "claude-code"}, 0, "enabled: false\n    stdio:\n      command: theirs", ""},
		{"none of them", []string{"import", "config.json", "--only", "none"}, exit.Usage, "", "--only none: no such server"},
		{"to a file", []string{"import", "config.json", "-o", "new.yaml"}, 0, "new.yaml: 2 servers (files, other). Try: mcp-bridge check -c new.yaml\n", ""},
		{"not over a file", []string{"import", "config.json", "-o", "new.yaml"}, exit.Usage, "", "new.yaml already exists"},
		{"over a file", []string{"import", "config.json", "-o", "new.yaml", "--force"}, 0, "new.yaml: 2 servers", ""},
		{"into a file", []string{"import", "config.json", "--only", "other", "-o", "ours.yaml", "--merge"}, 0, "ours.yaml: 1 server (other). Try: mcp-bridge check -c ours.yaml\n", ""},
		{"its variables", []string{"import", "config.json", "--only", "files", "-o", "ours.yaml", "--merge", "--env-file", "secrets.env"}, 0, "ours.yaml: 1 server (files)", "./secrets.env has the variables API_TOKEN"},
		{"into a file that has it", []string{"import", "config.json", "--only", "other", "-o", "ours.yaml", "--merge"}, exit.Usage, "", "there is one of this name already"},
		{"into nothing", []string{"import", "config.json", "--merge"}, exit.Usage, "", "name the file that gets the servers"},
		{"into a file that is not there", []string{"import", "config.json", "--merge", "-o", "none.yaml"}, exit.Usage, "", "none.yaml"},
		{"no variables for secrets", []string{"import", "config.json", "--env-file", "x.env", "--secrets", "inline"}, exit.Usage, "", "--env-file is for secrets"},
		{"a client", []string{"import", "cursor"}, 0, "# from .cursor/mcp.json", ""},
		{"a client that is not here", []string{"import", "zed"}, exit.Usage, "", "there is no file of zed on this machine"},
		{"a client with a slip", []string{"import", "vscoed"}, exit.Usage, "", "did you mean vscode?"},
		{"no such file", []string{"import", "./none.json"}, exit.Usage, "", "none.json"},
		{"a wrong flag", []string{"import", "config.json", "--secrets", "x"}, exit.Usage, "", "must be variables or inline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			says(t, test.code, test.stdout, cmp.Or(test.stderr, "*"), test.args...)
		})
	}
	t.Setenv("API_TOKEN", "x")
	says(t, 0, "new.yaml is good: 2 servers", "*", "check", "-c", "new.yaml")
	if code, stdout, _ := in(t, "import", "config.json", "--secrets", "inline"); code != 0 || !strings.Contains(stdout, "top-secret-token") {
		t.Errorf("--secrets inline: exit code %d\n%s", code, stdout)
	}
}

func TestInit(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		server string
		code   int
		stderr string
	}{
		{name: "an example", server: "filesystem"},
		{name: "a program", args: []string{"--", "uvx", "mcp-server-time", "--flag", "a b"}, server: "time"},
		{name: "a remote server", args: []string{"https://tools.example.com/mcp"}, server: "tools-example-com"},
		{name: "a command line in one text", args: []string{"npx -y x"}, code: exit.Usage, stderr: "whole command line"},
		{name: "too much", args: []string{"https://tools.example.com/mcp", "x"}, code: exit.Usage, stderr: "a URL takes no arguments"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			says(t, test.code, "*", cmp.Or(test.stderr, "*"), append([]string{"init"}, test.args...)...)
			if test.code != 0 {
				if _, err := os.Stat("bridge.yaml"); err == nil {
					t.Error("a file was written")
				}
				return
			}
			c, err := config.Load("bridge.yaml", nil)
			if err != nil || len(c.Servers) != 1 || c.Servers[0].Name != test.server {
				t.Errorf("the file is not one with the server %s (error %v)", test.server, err)
			}
			says(t, exit.Usage, "*", "bridge.yaml already exists", "init")
			says(t, 0, "*", "*", "init", "--force")
		})
	}
}

// Where no client has servers, import fails, and says where it looked.
func TestImportNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Chdir(t.TempDir())
	contains(t, says(t, exit.Failure, "", "*", "import"), "no MCP client configuration found: name a file", "\n  "+filepath.Join(home, ".cursor/mcp.json")+"\n")
}

// A file that is overwritten is readable for its owner only, and what a link leads
// to is left alone.
func TestOverwrite(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"bridge.yaml", "other.yaml"} {
		if err := os.WriteFile(file, []byte("before"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other.yaml", "link.yaml"); err != nil {
		t.Skip(err)
	}
	for _, file := range []string{"bridge.yaml", "link.yaml"} {
		says(t, 0, "*", "*", "init", "--force", "-o", file)
		if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v (error %v), want the mode 0600", file, info.Mode(), err)
		}
	}
	if text, err := os.ReadFile("other.yaml"); err != nil || string(text) != "before" {
		t.Errorf("other.yaml = %q (error %v)", text, err)
	}
	says(t, exit.Usage, "*", "not a regular file", "init", "--force", "-o", ".")
}

// The schema that is printed is JSON with the keys of a file.
func TestSchema(t *testing.T) {
	code, stdout, stderr := in(t, "schema")
	if code != 0 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, `"max_bytes_in_flight"`) {
		t.Errorf("exit code %d\n%.200s\n%s", code, stdout, stderr)
	}
}
