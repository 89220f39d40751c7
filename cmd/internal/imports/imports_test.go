package imports_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/imports"
	"github.com/mcp-bridge/bridge/config"
)

var update = flag.Bool("update", false, "write the .want files of testdata anew")

func everything(name string) (string, bool) { return "the-value-of-" + name, true }

func samples(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*.*[lno]")
	if err != nil || len(all) < 8 {
		t.Fatalf("testdata has %q (error %v)", all, err)
	}
	return all
}

// TestAdd makes a configuration of each file of testdata, as FILE.want has it. It
// has no secret in it, and is good.
func TestAdd(t *testing.T) {
	for _, file := range samples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var im imports.Import
			if err := im.Add(filepath.Base(file), data); err != nil {
				t.Fatal(err)
			}
			variables := strings.Join(im.Variables(), " ") // the command asks for them first
			text := string(im.YAML())
			got := text + "# notes:\n# " + strings.Join(im.Notes, "\n# ") + "\n# variables: " + variables + "\n"
			if strings.Contains(got, "s3cr3t") {
				t.Errorf("a secret is shown:\n%s", got)
			}
			if _, err := config.Parse("bridge.yaml", []byte(text), everything); err != nil {
				t.Errorf("the configuration is not good: %v\n%s", err, text)
			}
			if *update {
				if err := os.WriteFile(file+".want", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".want")
			if err != nil || got != string(want) {
				t.Errorf("got\n%s\nwant (error %v)\n%s", got, err, want)
			}
		})
	}
}

// Every variable that stands in for a secret is told, and with Inline there is none.
func TestSecrets(t *testing.T) {
	data, err := os.ReadFile("testdata/claude.json")
	if err != nil {
		t.Fatal(err)
	}
	im := imports.Import{Only: []string{"token"}}
	if err := im.Add("f", data); err != nil {
		t.Fatal(err)
	}
	text := string(im.YAML())
	told := strings.Join(im.Variables(), " ")
	for _, ref := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(told, ref[1]) {
			t.Errorf("%s is not among the variables %s", ref[1], told)
		}
	}
	if names := im.Names(); len(names) != 1 || names[0] != "token" {
		t.Errorf("Only token = %q", names)
	}
	im = imports.Import{}
	defaults := `{"mcpServers":{"x":{"command":"x","env":{"DB":"postgres://u:${PW:-s3cr3t-default}@db/x","API_TOKEN":"${MY_TOKEN:-s3cr3t-token}","OTHER":"${OTHER:-sk-s3cr3t}","LEVEL":"${LEVEL:-info}"}}}}`
	if err := im.Add("f", []byte(defaults)); err != nil {
		t.Fatal(err)
	}
	if text := string(im.YAML()); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "${LEVEL:-info}") {
		t.Errorf("defaults of references:\n%s", text)
	}
	im = imports.Import{Only: []string{"token"}, Inline: true}
	if err := im.Add("f", data); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cr3t-argument", "s3cr3t-other", "s3cr3t-look", "s3cr3t-env", "s3cr3t-db"} {
		if !strings.Contains(string(im.YAML()), secret) {
			t.Errorf("Inline has no %s:\n%s", secret, im.YAML())
		}
	}
}

// The file of variables has the keys of callers, too.
func TestEnvCallers(t *testing.T) {
	var im imports.Import
	if err := im.Add("f", []byte(`{ "mcpProxy": { "options": { "authTokens": ["s3cr3t-default-token"] } }, "mcpServers": { "a": { "command": "npx" } } }`)); err != nil {
		t.Fatal(err)
	}
	const want = "# client-1: a secret, whose value is in the file\nCLIENT_1_TOKEN=s3cr3t-default-token\n"
	if got := string(im.Env()); got != want {
		t.Errorf("the variables are\n%s\nwant\n%s", got, want)
	}
}

func TestAddRefuses(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "neither JSON nor YAML nor TOML"},
		{"broken JSON", `{"mcpServers": {`, "not valid JSON"},
		{"a list", "[1, 2]", "neither"},
		{"no servers", `{"a": 1}`, "no servers in a known form"},
		{"our own form", "servers: { a: { stdio: { command: npx } } }", "no servers in a known form"},
		{"empty servers", `{"mcpServers": {}}`, "no servers in a known form"},
		{"which servers of Docker's catalogs are on", "registry: { brave: { ref: '' } }", "no servers in a known form"},
		{"a long list", strings.Repeat("- a\n", 1_200_000), "larger than 4 MiB"},
		{"lists within lists", "servers: " + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000), "line 1: lists and mappings are nested deeper than 100 levels"},
		{"lists within lists of JSON", `{"servers": ` + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000) + "}", "not valid JSON"},
		{"lists within lists of TOML", "servers = " + strings.Repeat("[", 2_100_000), "neither JSON nor"},
		{"an alias that is a secret", "mcpServers: { a: { command: npx, env: { KEY: *hunter2 } } }", "there is no anchor for this alias above"},
	} {
		var im imports.Import
		if err := im.Add("f", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}

// check and serve say of each form that they do not serve whose it is, and that it can be imported.
func TestHints(t *testing.T) {
	programs := map[string]string{
		"codex": "Codex", "continue": "Continue", "crush": "Crush", "docker": "Docker's MCP gateway", "goose": "Goose", "opencode": "opencode", "unused": "opencode",
		"projects": "Claude Code", "zed": "Zed",
	}
	seen := map[string]bool{}
	for _, file := range samples(t) {
		name := filepath.Base(file)
		kind := regexp.MustCompile(`^[a-z]+`).FindString(name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = config.Parse(name, data, everything)
		if program := programs[kind]; program == "" {
			if err != nil && strings.Contains(err.Error(), "there are no servers") {
				t.Errorf("%s: %v", name, err)
			}
		} else if want := "this looks like a file of " + program + ": mcp-bridge import " + name + " makes a configuration of it"; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want only %q", name, err, want)
		}
		seen[kind] = true
	}
	for kind := range programs {
		if !seen[kind] {
			t.Errorf("testdata has no file of %s", kind)
		}
	}
	vscode := `{ "mcp": { "servers": { "a": { "type": "stdio", "command": "npx" } } } }`
	if _, err := config.Parse("settings.json", []byte(vscode), everything); err == nil || !strings.Contains(err.Error(), "a file of VS Code: mcp-bridge import settings.json") {
		t.Errorf("settings of VS Code: %v", err)
	}
}

// What a file means by its times and by $NAME depends on the program that has it.
func TestForms(t *testing.T) {
	const entry = `{ "mcpServers": { "a": { "command": "npx", "args": ["$HOME"], "timeout": 90000 } } }`
	for _, test := range []struct{ name, from, text, want, not string }{
		{"nobody knows whose", "mcp.json", entry, `["$HOME"]`, "    timeout:"},
		{"a note of that", "mcp.json", entry, "programs disagree about its unit", "    timeout:"},
		{"Gemini's by its folder", "/home/me/.gemini/settings.json", entry, "    timeout: 90s\n", `"$HOME"`},
		{"of what was made of Gemini", ".qwen/settings.json", entry, `["${HOME}"]`, "disagree"},
		{"Gemini's by a key of a server", "f", `{ "mcpServers": { "a": { "httpUrl": "https://example.com/$PATH_OF_IT", "timeout": 500 } } }`, "    timeout: 0.5s\n", "disagree"},
		{"Gemini's by a key of its own", "f", `{ "excludeMCPServers": [], "mcpServers": { "a": { "command": "$program" } } }`, `command: "${program}"`, "disagree"},
		{"more than max_timeout", ".gemini/f", `{ "mcpServers": { "a": { "command": "npx", "timeout": 5400000 } } }`, "    timeout: 5400s\n    max_timeout: 5400s\n", "disagree"},
		{"no time", ".gemini/f", `{ "mcpServers": { "a": { "command": "npx", "timeout": "soon" } } }`, `timeout is not taken over: "soon" is no time to wait`, "    timeout:"},
		{"less than a millisecond", ".gemini/f", `{ "mcpServers": { "a": { "command": "npx", "timeout": 0.01 } } }`, "is no time to wait", "    timeout:"},
		{"Goose's", "f", "extensions: { a: { type: stdio, cmd: npx, args: [$HOME], timeout: 300 } }", "    timeout: 300s\n", "${HOME}"},
		{"Codex's", "f", "[mcp_servers.a]\ncommand = 'npx'\ntool_timeout_sec = -2", `tool_timeout_sec is not taken over: "-2" is no time to wait`, "    timeout:"},
	} {
		var im imports.Import
		if err := im.Add(test.from, []byte(test.text)); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := string(im.YAML()); !strings.Contains(got, test.want) || strings.Contains(got, test.not) {
			t.Errorf("%s: want %q and not %q in\n%s", test.name, test.want, test.not, got)
		}
	}
}

// A list of servers that is not understood keeps all, and an empty one of those that
// are allowed does.
func TestListsOfServers(t *testing.T) {
	for _, key := range []string{`"allowedMcpServers": [{ "serverCommand": ["npx"] }]`, `"deniedMcpServers": { "a": true }`, `"allowMCPServers": []`, `"mcp": { "allowed": [] }`} {
		var im imports.Import
		if err := im.Add("f", []byte("{ "+key+`, "mcpServers": { "a": { "command": "npx" } } }`)); err != nil || !strings.Contains(string(im.YAML()), "enabled: false") {
			t.Errorf("%s: error %v\n%s", key, err, im.YAML())
		}
	}
}

// Of the servers of a project's .mcp.json those are on that its user has approved, if
// any are; no other project's list counts, and none is about other files.
func TestApproved(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const servers = `"mcpServers": { "a": { "command": "npx" }, "b": { "command": "npx" } }`
	project := func(path, lists string) string {
		return `{ "mcpServers": { "mine": { "command": "npx" } }, "projects": { ` + strconv.Quote(path) + `: { ` + lists + ` } } }`
	}
	for _, test := range []struct {
		name, user, want string
	}{
		{"some", project(here, `"enabledMcpjsonServers": ["a"]`), "mine a"},
		{"none was asked about", project(here, `"enabledMcpjsonServers": []`), "mine a b"},
		{"all", project(here, `"enabledMcpjsonServers": ["a"], "enableAllProjectMcpServers": true`), "mine a b"},
		{"of another project", project("/elsewhere", `"enabledMcpjsonServers": ["a"]`), "mine a b"},
		{"one is refused", project(here, `"disabledMcpjsonServers": ["a"]`), "mine b"},
	} {
		var im imports.Import
		for _, file := range [][2]string{{".claude.json", test.user}, {".mcp.json", "{ " + servers + " }"}} {
			if err := im.Add(file[0], []byte(file[1])); err != nil {
				t.Fatal(err)
			}
		}
		c, err := config.Parse("f", im.YAML(), everything)
		if err != nil {
			t.Fatal(err)
		}
		var on []string
		for _, s := range c.Servers {
			on = append(on, s.Name)
		}
		if got := strings.Join(on, " "); got != test.want {
			t.Errorf("%s: %q are on, want %q\n%s", test.name, got, test.want, im.YAML())
		}
	}
}

// Servers are added to a configuration, whose other text stays as it is.
func TestInto(t *testing.T) {
	const before = `# ours
listen: 127.0.0.1:9000
servers: # of the team
    # the first
    files:
        stdio: { command: npx, env: { API_KEY: "${API_KEY}" } }
separator: "."
`
	const more = `{ "mcpServers": {
  "Files": { "command": "npx" },
  "other": { "command": "npx", "env": { "API_KEY": "s3cr3t-s3cr3t", "B_TOKEN": "it's s3cr3t" } } } }`
	im := imports.Import{}
	if err := im.Into("bridge.yaml", []byte(before)); err != nil {
		t.Fatal(err)
	}
	if err := im.Add("f", []byte(more)); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "# of the team\n", `# of the team
    other:
      # from f
      # OTHER_API_KEY: a secret, whose value is in the file
      # B_TOKEN: a secret, whose value is in the file
      stdio:
        command: npx
        env:
          "API_KEY": "${OTHER_API_KEY}"
          "B_TOKEN": "${B_TOKEN}"
`, 1)
	want = strings.NewReplacer(`"API_KEY": "${O`, `API_KEY: "${O`, `"B_TOKEN":`, `B_TOKEN:`).Replace(want)
	if got := string(im.YAML()); got != want || im.Fault() != nil {
		t.Errorf("got (fault %v)\n%s\nwant\n%s", im.Fault(), got, want)
	}
	if len(im.Notes) != 1 || !strings.Contains(im.Notes[0], `"Files" is left out: there is one of this name already`) {
		t.Errorf("notes %q", im.Notes)
	}
	const env = "# other: a secret, whose value is in the file\nB_TOKEN='it'\\''s s3cr3t'\n# other: a secret, whose value is in the file\nOTHER_API_KEY=s3cr3t-s3cr3t\n"
	if got := string(im.Env()); got != env {
		t.Errorf("variables\n%s\nwant\n%s", got, env)
	}
}

func TestIntoRefuses(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"JSON", `{ "servers": { "a": { "stdio": "npx x" } } }`, "own form"},
		{"a client's file", "mcpServers: { a: { command: npx } }", "no servers can be added"},
		{"servers in one line", "servers: { a: { stdio: npx x } }", "no servers can be added"},
		{"faults", "servers:\n  a: { stido: npx }", `did you mean "stdio"`},
		{"no YAML", "servers: [", "not valid YAML"},
		{"empty", "", "faults"},
	} {
		var im imports.Import
		if err := im.Into("f", []byte(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	im := imports.Import{}
	if err := im.Into("f", []byte("servers:\n  a: { stdio: npx x }\n")); err != nil {
		t.Fatal(err)
	}
	if err := im.Add("g", []byte(`{ "mcpServers": { "b": { "command": "npx", "options": { "authTokens": ["s3cr3t-s3cr3t-s3cr3t"] } } } }`)); err != nil {
		t.Fatal(err)
	}
	if err := im.Fault(); err == nil || !strings.Contains(err.Error(), "file of their own") {
		t.Errorf("keys of callers are added: %v", err)
	}
}

func TestServer(t *testing.T) {
	text, err := imports.Server("the command line", "npx", map[string]any{"command": "npx", "args": []string{"-y", "x y"}})
	want := "servers:\n  npx:\n    # from the command line\n    stdio:\n      command: npx\n      args: [\"-y\", \"x y\"]\n"
	if err != nil || string(text) != want {
		t.Errorf("Server = %q, %v, want %q", text, err, want)
	}
	if _, err := imports.Server("the command line", "npx", map[string]any{"command": "npx -y x"}); err == nil || !strings.Contains(err.Error(), "whole command line") {
		t.Errorf("Server of a command line: error %v", err)
	}
}

func TestClients(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	t.Chdir(home)
	for _, file := range []string{".cursor/mcp.json", ".codex/config.toml"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string][]string{}
	for _, c := range imports.Clients() {
		found[c.Name] = c.Files
	}
	if got := found["codex"]; len(got) != 1 || got[0] != filepath.Join(home, ".codex", "config.toml") {
		t.Errorf("files of codex: %q", got)
	}
	if len(found["cursor"]) == 0 || len(found["claude-desktop"]) != 0 {
		t.Errorf("found %q", found)
	}
}

// FuzzAdd: whatever a file holds, what is made of it is good.
func FuzzAdd(f *testing.F) {
	for _, file := range samples(f) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var im imports.Import
		if im.Add("f", []byte(text)) != nil || len(im.Names()) == 0 || im.Fault() != nil {
			return
		}
		got := im.YAML()
		if _, err := config.Parse("bridge.yaml", got, everything); err != nil {
			t.Fatalf("%q becomes what is not good: %v\n%s", text, err, got)
		}
	})
}
