package docs

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// Blocks of other formats, and who reads them.
var otherFormats = map[string]string{
	"sh":         "TestCommands runs them",
	"text":       "what commands print: TestCommands compares them; messages and drawings",
	"":           "drawings and lists of packages",
	"go":         "code, which TestLibrary finds in the examples that are run",
	"mermaid":    "pictures",
	"js":         "scripts of models: the tests of package script run them",
	"ts":         "needs packages of npm: the tests of package integration use the SDKs for TypeScript",
	"python":     "needs packages of PyPI",
	"nginx":      "needs nginx; examples/nginx has it as a file, and the integration tests run that",
	"dockerfile": "needs Docker and the network",
	"ini":        "the filter for fail2ban: a test of package server matches it with the log; a part of a unit of systemd",
}

// YAML that is not a configuration of the bridge.
var notOurs = exceptions{why: map[exception]string{
	{"docs/rest.md", "overlay: 1.0.0"}:   "an overlay of OpenAPI",
	{"docs/install.md", "# values.yaml"}: "values of the Helm chart: a test in deploy/check renders them",
	{"docs/install.md", `access: [{ name: ops, token_file: "${CREDENTIALS_DIRECTORY}/ops" }]`}: "systemd sets the variable, and makes the file",
	{"docs/quick-start.md", "# service.yaml"}:                                                  "systemd sets the variable, and makes the files",
	{"docs/operations.md", "spec:"}:                                                            "a pod of Kubernetes",
	{"docs/cluster.md", "env:"}:                                                                "a part of a pod of Kubernetes",
	{"docs/operations.md", "livenessProbe:"}:                                                   "probes of Kubernetes",
	{"docs/observability.md", "scrape_configs:"}:                                               "a configuration of Prometheus",
}}

// environment has every secret, with a value that is good as a key, and HOME, but no
// other variable.
func environment(name string) (string, bool) {
	if name == "HOME" {
		return "/home/me", true
	}
	if !regexp.MustCompile("(TOKEN|KEY|SECRET|PASSWORD|TENANT)$").MatchString(name) {
		return "", false
	}
	return "a-value-that-is-long-enough-for-a-cluster-" + name, true
}

// warned are the configurations that check warns of, by a part of the warning, and why they are right.
var warned = exceptions{why: map[exception]string{
	{"README.md", `server "filesystem": http: url is not encrypted: anybody on the network path can read the header Authorization; use https if the server has it`}:            "a client's file, in a network that is trusted, as the page says",
	{"docs/identity.md", `server "files": scopes: no issuer has files:read files:write under scopes: many clients cannot request more scopes later, so list all scopes there`}: "the page explains this warning",
	{"docs/configuration/import.md", `server "File System" is served under the name "file-system"`}:                                                                            "the page says so",
	{"docs/configuration/servers.md", `server "later": not served: enabled is false`}:                                                                                          "it shows this key",
	{"examples/desktop/claude_desktop_config.json", `server "Everything" is served under the name "everything"`}:                                                               "a file of another program, as that writes it",
	{"examples/desktop/claude_desktop_config.json", `server "elsewhere": not served: disabled is true`}:                                                                        "it shows this key",
}}

// unexpected returns the warnings that no exception is for.
func unexpected(page string, warnings []string) (all []string) {
	for _, w := range warnings {
		_, text, _ := strings.Cut(w, ": ") // without the line
		if !strings.Contains(w, "not found in PATH") && !warned.has(page, text) {
			all = append(all, w)
		}
	}
	return all
}

// fault returns what is wrong with a block of YAML or JSON, and what check warns of.
func fault(b block, keys []string) (warnings []string, err error) {
	if b.language == "json" {
		var v struct{ MCPServers map[string]any }
		if err := json.Unmarshal([]byte(b.text), &v); err != nil || v.MCPServers == nil {
			return nil, err
		}
		return parsed("client.json", b.text)
	}
	var members map[string]any
	if err := yaml.Unmarshal([]byte(b.text), &members); err != nil {
		return nil, err
	}
	text, ours := b.text, false
	for key := range members {
		ours = ours || slices.Contains(keys, key)
	}
	if !ours {
		return nil, errNotOurs
	}
	if members["servers"] == nil { // a part of a file
		text += "\nservers: { any: { stdio: { command: any } } }\n"
	}
	return parsed("bridge.yaml", text)
}

func parsed(name, text string) (warnings []string, err error) {
	c, err := config.Parse(name, []byte(text), environment)
	if err != nil {
		return nil, err
	}
	return c.Warnings, nil
}

type kindError string

func (k kindError) Error() string { return string(k) }

const errNotOurs = kindError("it has no key of a configuration: correct it, or name it among the exceptions with a reason")

// keysOfFile are the keys of the reference.
func keysOfFile(t *testing.T) (keys []string) {
	t.Helper()
	for _, p := range pages(t) {
		if p.name == "docs/configuration/file.md" {
			_, table, _ := strings.Cut(p.text, "\n## Keys of the file\n")
			table, _, _ = strings.Cut(table, "\n```")
			for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
				keys = append(keys, m[1])
			}
		}
	}
	if len(keys) < 15 {
		t.Fatalf("the reference has the keys %q only", keys)
	}
	return keys
}

// Every configuration in the pages can be used as it is, or in a file with a
// server; every other block of JSON is JSON.
func TestConfigurations(t *testing.T) {
	keys, n := keysOfFile(t), 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language != "yaml" && b.language != "json" {
				if otherFormats[b.language] == "" {
					t.Errorf("%s: a block of the format %q, which no test reads", b, b.language)
				}
				continue
			}
			if b.language == "yaml" && notOurs.has(b.page, first(b.text)) {
				continue
			}
			n++
			warnings, err := fault(b, keys)
			if err != nil {
				t.Errorf("%s: %v in\n%s", b, err, b.text)
			}
			for _, w := range unexpected(b.page, warnings) {
				t.Errorf("%s: check warns: %s in\n%s", b, w, b.text)
			}
		}
	}
	notOurs.check(t)
	checkExamples(t)
	warned.check(t)
	if n < 50 {
		t.Errorf("only %d configurations: the test looks in the wrong place", n)
	}
}

// checkExamples checks the configurations of the examples as mcp-bridge check does, with the APIs in them.
func checkExamples(t *testing.T) {
	t.Helper()
	var files []string
	// That of examples/connect is for a client, which reaches the bridge by it.
	for _, pattern := range []string{"../examples/*/bridge.yaml", "../examples/desktop/*.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 11 {
		t.Errorf("the examples have the configurations %q only", files)
	}
	for _, file := range files {
		c, err := config.Load(file, environment)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		warnings := c.Warnings
		for i := range c.Servers {
			s := &c.Servers[i]
			if s.Rest == nil {
				continue
			}
			report, err := s.Rest.Inspect(t.Context(), s.Name, server.RestOptions(s, int(c.MaxMessage), nil))
			if err != nil || report.Tools == 0 && !report.CatalogUnread || len(report.Lost) > 0 {
				t.Errorf("%s: server %s has %+v: %v", file, s.Name, report, err)
				continue
			}
			for _, w := range report.Warnings {
				warnings = append(warnings, w.String())
			}
		}
		for _, w := range unexpected(strings.TrimPrefix(filepath.ToSlash(file), "../"), warnings) {
			t.Errorf("%s: check warns: %s", file, w)
		}
	}
}

// The test does see what is wrong.
func TestConfigurationsWrong(t *testing.T) {
	keys := keysOfFile(t)
	for _, test := range []struct{ language, text, want string }{
		{"yaml", "servers: { x: { stdoi: { command: y } } }\n", `unknown key "stdoi"`},
		{"yaml", "listen: here\n", "listen is"},
		{"yaml", "teams: []\n", string(errNotOurs)},
		{"yaml", "a: b: c\n", "mapping"},
		{"json", "{ \"a\": }", "invalid character"},
		{"json", `{ "mcpServers": { "x": { "command": 7 } } }`, "command"},
		{"yaml", "listen: 127.0.0.1:1\n", ""},
		{"json", `{ "mcpServers": { "x": { "command": "y" } } }`, ""},
	} {
		_, err := fault(block{language: test.language, text: test.text}, keys)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %q", test.language, test.text, err, test.want)
		}
	}
	warnings, err := fault(block{language: "yaml", text: "public_status: true\n"}, keys)
	if all := unexpected("docs/x.md", warnings); err != nil || len(all) != 1 || !strings.Contains(all[0], "public_status needs access") {
		t.Errorf("a warning: %q, %v", all, err)
	}
}
