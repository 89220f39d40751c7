package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

// in runs a command line to its end, as the program would.
func in(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	code = run(t.Context(), args, &out, &log)
	return code, out.String(), log.String()
}

// says runs a command line, which must end with code and have these parts on its outputs: "" is nothing, "*" anything.
// No secret of a test may be there. It returns both outputs.
func says(t *testing.T, code int, stdout, stderr string, args ...string) (all string) {
	t.Helper()
	got, out, log := in(t, args...)
	if all = out + log; got != code || !has(out, stdout) || !has(log, stderr) || strings.Contains(all, "top-secret") {
		t.Errorf("%q: exit code %d, stdout\n%s\nstderr\n%s\nwant %d, %q and %q", args, got, out, log, code, stdout, stderr)
	}
	return all
}

// contains compares a text with the parts that it must have.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

func has(text, part string) bool {
	return part == "*" || strings.Contains(text, part) && (part == "") == (text == "")
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every command explains itself, with an example that begins with its own name.
func TestHelp(t *testing.T) {
	var all func(c *cobra.Command)
	all = func(c *cobra.Command) {
		if c.Name() != "completion" && c.Name() != "help" { // these are cobra's
			t.Run(c.CommandPath(), func(t *testing.T) {
				if c.Short == "" || strings.HasSuffix(c.Short, ".") {
					t.Errorf("Short = %q, want a line without a full stop", c.Short)
				}
				if c.Example == "" {
					t.Error("there is no example")
				}
				for line := range strings.Lines(c.Example) {
					if !strings.HasPrefix(line, "  "+c.CommandPath()) {
						t.Errorf("example %q does not begin with %q, indented by two", line, c.CommandPath())
					}
				}
				says(t, 0, strings.TrimSpace(c.Example), "", append(strings.Fields(c.CommandPath())[1:], "--help")...)
			})
		}
		for _, sub := range c.Commands() {
			all(sub)
		}
	}
	all(newRoot(io.Discard, io.Discard, io.Discard, io.Discard))
}

// The help of every command fits into 80 columns, and has each flag in a group, with a type for people. The
// help of the program has each command in a group.
func TestHelpGroups(t *testing.T) {
	unused := map[string]bool{}
	for _, g := range flagGroups {
		for entry := range strings.FieldsSeq(g.flags) {
			unused[entry] = true
		}
	}
	pflags := regexp.MustCompile(`(?m)^ +(-\w, )?--[\w-]+ (string|strings|stringArray|stringSlice|duration|u?int\d*s?|float\d*|count|value)\b`)
	root := newRoot(io.Discard, io.Discard, io.Discard, io.Discard)
	_, whole, _ := in(t, "--help")
	grouped, _, _ := strings.Cut(whole, "\nOther commands:\n")
	for _, c := range append(root.Commands(), root) {
		c.InitDefaultHelpFlag()
		_, text, _ := in(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		for line := range strings.Lines(text) {
			if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s --help has a line of %d columns: %s", c.CommandPath(), n, line)
			}
		}
		if m := pflags.FindString(text); m != "" {
			t.Errorf("%s --help has a type of the library: %s", c.CommandPath(), m)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			begin := `(?m)^(  -\w, |      )--` + f.Name
			bare, typed := regexp.MustCompile(begin+`(  |$)`), regexp.MustCompile(begin+` <[^<>]+>(  |$)`)
			if kind := f.Value.Type(); (kind == "bool") != bare.MatchString(text) || (kind != "bool") != typed.MatchString(text) {
				t.Errorf("%s --help shows no group and type of --%s: add it to flagGroups", c.CommandPath(), f.Name)
			}
			for entry := range unused {
				if name, _, _ := strings.Cut(entry, "="); name == f.Name || name == c.Name()+"/"+f.Name {
					delete(unused, entry)
				}
			}
		})
		if path := "\n  " + c.Name() + " "; c != root && c.Name() != "version" && strings.Count(grouped, path) != 1 {
			t.Errorf("the help has %s in %d groups, want 1", c.Name(), strings.Count(grouped, path))
		}
	}
	for entry := range unused {
		t.Errorf("no command has the flag %s of flagGroups", entry)
	}
	contains(t, whole, "  mcp-bridge URL ", "  mcp-bridge -- ", "\nServe:\n  run  ", "\nSign in:\n  login  ", "\n  completion  ", "\n  help  ", "\n  version  ")
	for title, flag := range map[string]string{"Listen": "-l, --listen <address>", "Server process": "    --env <NAME=VALUE>", "Remote server": "-H, --header <header>", "Sign-in": "    --client-id <id>", "REST API": "    --base-url <url>", "Protocol": "    --era <era>", "Other": "    --name <name>"} {
		says(t, 0, "\n"+title+":\n  "+flag, "", "run", "--help")
	}
}

// The flags in the examples exist: each line is parsed, nothing is run.
func TestExamplesParse(t *testing.T) {
	for _, c := range newRoot(io.Discard, io.Discard, io.Discard, io.Discard).Commands() {
		for line := range strings.Lines(c.Example) {
			for part := range strings.SplitSeq(line, "&&") {
				args := strings.Fields(part)
				fresh, rest, err := newRoot(io.Discard, io.Discard, io.Discard, io.Discard).Find(args[1:])
				if err == nil {
					err = fresh.ParseFlags(rest)
				}
				if err != nil {
					t.Errorf("%q: %v", part, err)
				}
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Setenv("BRIDGE_TEST_SHORT", "top-secret")
	two := file(t, "bridge.yaml", twoRemotes("https://example.com/mcp", "https://example.com/mcp"))
	hello, lost, settings := file(t, "api.yaml", "hello: world\n"), file(t, "lost.yaml", "openapi: 3.0.0\npaths: [\n"), file(t, "bridge.json", `{"mcpServers":{}}`)
	petsAt := file(t, "pets.yaml", petsDocument)
	open, closed := file(t, "bridge.yaml", strings.Replace(good, "127.0.0.1:0", "0.0.0.0:0", 1)), file(t, "bridge.yaml", good)
	missing := filepath.Join(t.TempDir(), "none.yaml")
	homeless := file(t, "api.json", `{"openapi":"3.1.0","info":{"title":"a","version":"1"},"paths":{"/a":{"get":{"responses":{"200":{"description":"ok"}}}}}}`)
	for _, test := range []struct {
		name   string
		args   []string
		stderr string // a part of it
	}{
		{"unknown command", []string{"nonsense"}, `unknown command "nonsense": see 'mcp-bridge --help'`},
		{"misspelt command", []string{"chekc"}, "did you mean check?"},
		{"a command of other programs", []string{"start"}, "did you mean "},
		{"another command of other programs", []string{"proxy"}, "did you mean "},
		{"a file as others name it", []string{"serve", "-f", "bridge.yaml"}, "unknown flag -f: write mcp-bridge serve FILE"},
		{"unknown flag of the program", []string{"--nonsense"}, "unknown flag: --nonsense (see 'mcp-bridge --help')"},
		{"unknown flag of a command", []string{"serve", "--nonsense"}, "unknown flag: --nonsense (see 'mcp-bridge serve --help')"},
		{"run with an address", []string{"run", "localhost:3001/mcp"}, "did you mean http://localhost:3001/mcp"},
		{"run without a command", []string{"run"}, "name the program to run"},
		{"run with nothing behind --", []string{"run", "--"}, "name the program to run"},
		{"run with a bad address", []string{"run", "--listen", "nowhere", "--", "cat"}, `--listen: the address is "nowhere"`},
		{"run with a bad duration", []string{"run", "--timeout", "90", "--", "cat"}, "--timeout"},
		{"run with an unset variable", []string{"run", "--env", "NOT_SET_ANYWHERE", "--", "cat"}, "NOT_SET_ANYWHERE=VALUE"},
		{"run with a nameless variable", []string{"run", "--env", "=x", "--", "cat"}, "NAME=VALUE"},
		{"run with a header for a program", []string{"run", "-H", "A: b", "--", "cat"}, "--header needs a URL or an OpenAPI document"},
		{"run with a transport for a program", []string{"run", "--transport", "sse", "--", "cat"}, "--transport needs the URL of an MCP server"},
		{"run with a variable for a URL", []string{"run", "--env", "A=b", "https://example.com/mcp"}, "--env needs a program"},
		{"run with a folder for a URL", []string{"run", "--cwd", "/", "https://example.com/mcp"}, "--cwd needs a program"},
		{"run with a bad flag behind a URL", []string{"run", "https://example.com/mcp", "--share", "some"}, "must be session, principal, call or all"},
		{"run with an unknown one", []string{"run", "https://example.com/mcp", "--sse-port", "1"}, "use --port"},
		{"run with one behind a document", []string{"run", petsAt, "--base-url", "example"}, "base_url must be a URL such as"},
		{"run with two URLs", []string{"run", "https://example.com/mcp", "--port", "1", "https://b.example.com"}, "a URL or a document takes no arguments"},
		{"run with flags of a URL behind --", []string{"run", "--", "https://example.com/mcp", "--port", "1"}, "write flags before --, or leave -- out"},
		{"run with a bad URL", []string{"run", "ftp://example.com"}, "the URL has the unknown scheme \"ftp\": write http:// or https://"},
		{"run with a bad mode for a URL", []string{"run", "--share", "some", "https://example.com/mcp"}, "must be session, principal, call or all"},
		{"run with a wildcard origin", []string{"run", "--allow-origin", "*", "--", "cat"}, `--allow-origin is "*"`},
		{"bad log level", []string{"run", "--log-level", "loud", "--", "cat"}, "must be debug, info, warn or error"},
		{"bad log format", []string{"run", "--log-format", "xml", "--", "cat"}, "must be auto, text or json"},
		{"check without the file", []string{"check", "-c", missing}, `there is no file "` + missing + `": correct its path`},
		{"serve without the default one", []string{"serve"}, "there is no bridge.yaml here: name a file with -c, write one with 'mcp-bridge init', or use 'mcp-bridge run -- COMMAND'"},
		{"import without the file", []string{"import", "./none.json"}, `there is no file "./none.json"`},
		{"an argument as a flag", []string{"call", "https://example.com/mcp", "get-sum", "--a", "2"}, "unknown flag: --a (an argument of the tool is written a=VALUE; see 'mcp-bridge call --help')"},
		{"a status elsewhere", []string{"status", "htp://127.0.0.1:1"}, `the URL has the unknown scheme "htp": write http:// or https://`},
		{"serve without the file", []string{"serve", missing}, "or write one with 'mcp-bridge init'"},
		{"run without the program", []string{"run", "--", missingProgram}, `there is no program "` + missingProgram + `" in PATH: correct the name, install it, give its full path, or set another PATH with --env PATH=…`},
		{"tools without the program", []string{"tools", "--", missingProgram}, "there is no program"},
		{"call without the program", []string{"call", "x", "--", missingProgram}, "there is no program"},
		{"connect without the program", []string{"connect", "--", missingProgram}, "there is no program"},
		{"a command in one text", []string{"run", "npx -y foo"}, "write the command as words, not as one text: -- npx -y foo"},
		{"one with a scoped package", []string{"run", "npx -y @modelcontextprotocol/server-filesystem ."}, "write the command as words, not as one text: -- npx -y @modelcontextprotocol/server-filesystem ."},
		{"one with flags behind it", []string{"run", "npx -y @modelcontextprotocol/server-filesystem", "--port", "9000"}, "write the command as words, not as one text: -- npx -y @modelcontextprotocol/server-filesystem …"},
		{"one as a target", []string{"connect", "npx -y @modelcontextprotocol/server-filesystem ."}, "write a program as words, behind --: -- npx -y @modelcontextprotocol/server-filesystem ."},
		{"one to look at", []string{"tools", "--", "npx -y @modelcontextprotocol/server-filesystem ."}, "write the command as words"},
		{"a URL in the place of a program", []string{"call", "x", "--", "https://tools.example.com/mcp"}, "a program belongs behind --, a URL does not: leave -- out"},
		{"a folder with a space", []string{"run", "./my folder/" + missingProgram}, "correct its path"},
		{"a path that does not exist", []string{"run", "./" + missingProgram}, "correct its path; for a program in PATH write the name alone"},
		{"a document that does not exist", []string{"run", "./missing.yaml"}, "correct the path of the OpenAPI document"},
		{"a web page", []string{"run", file(t, "docs.html", "<!doctype html>")}, "docs.html is neither a program nor an OpenAPI document"},
		{"a web page for its tools", []string{"tools", file(t, "docs.yaml", "<!doctype html>")}, "docs.yaml is not an OpenAPI document: that has openapi, swagger or paths at its top"},
		{"an API without an address", []string{"run", homeless}, homeless + `", which does not say where the API is (servers): pass --base-url URL`},
		{"one in a file", []string{"check", file(t, "bridge.yaml", "servers:\n  a:\n    rest: { openapi: "+homeless+" }\n")}, `bridge.yaml:3: server "a": rest: openapi is "` + homeless + `", which does not say where the API is (servers): add base_url: URL`},
		{"a web page in a file", []string{"check", file(t, "bridge.yaml", "servers: { a: { rest: { openapi: "+file(t, "docs.html", "<!doctype html>")+" } } }")}, "is HTML or XML, not an OpenAPI document"},
		{"a file that does not exist without a command", []string{"missing.yaml"}, "there is no such file; to serve one write: mcp-bridge serve FILE"},
		{"a program without a command", []string{"cat", "-x"}, "write: mcp-bridge run -- cat"},
		{"a file without a command", []string{file(t, "bridge.yaml", good)}, "write: mcp-bridge serve "},
		{"connect with a program", []string{"connect", "cat", "file"}, "mcp-bridge connect -- cat file"},
		{"connect with a header for a program", []string{"connect", "-H", "A: b", "--", "cat"}, "--header needs a URL"},
		{"connect with a variable for a URL", []string{"connect", "--env", "A=b", "https://example.com/mcp"}, "--env needs a program"},
		{"connect with all variables for a URL", []string{"connect", "--env-all", "https://example.com/mcp"}, "--env-all needs a program"},
		{"a key for a program", []string{"tools", "--token-env", "PATH", "--", "cat"}, "--token-env needs a URL or an OpenAPI document"},
		{"a key that is not there", []string{"connect", "https://example.com/mcp", "--token-env", "NOT_SET_ANYWHERE"}, "--token-env NOT_SET_ANYWHERE: the variable is not set"},
		{"a CA that is not there", []string{"tools", "https://example.com/mcp", "--ca-file", "none.pem"}, "--ca-file: "},
		{"a bad name", []string{"run", "--name", "A B", "--", "cat"}, "a server's name has"},
		{"a limit without a unit", []string{"tools", "--timeout", "30", "--", "cat"}, "--timeout is 30: add a unit, such as 30s"},
		{"both kinds of address", []string{"run", "--listen", "1", "--port", "2", "--", "cat"}, "--host and --port, not both"},
		{"a port that is none", []string{"run", "--port", "70000", "--", "cat"}, `--port: the address is "127.0.0.1:70000"`},
		{"a misspelt mode", []string{"run", "--share", "alll", "--", "cat"}, `--share is "alll": must be session, principal, call or all: did you mean all?`},
		{"a misspelt era", []string{"run", "--era", "modren", "--", "cat"}, "did you mean modern?"},
		{"a name in capitals", []string{"run", "--name", "Files_Server", "--", "cat"}, `--name is "Files_Server": a server's name has`},
		{"its better form", []string{"run", "--name", "Files_Server", "--", "cat"}, `: write "files-server"`},
		{"a transport of mcp-remote's", []string{"run", "--transport", "http-first", "https://example.com/mcp"}, `--transport is "http-first": leave it out`},
		{"a folder that is not there", []string{"run", "--cwd", missing, "--", "cat"}, `--cwd is "` + missing + `": `},
		{"a file as a folder", []string{"run", "--cwd", file(t, "f", ""), "--", "cat"}, ": is not a folder"},
		{"a folder of the home folder", []string{"tools", "--cwd", "~/x", "--", "cat"}, `--cwd is "~/x", which no shell has expanded: write $HOME`},
		{"a program of the home folder", []string{"run", "--", "~/bin/x"}, `the program is "~/bin/x", which no shell has expanded: write $HOME`},
		{"no bridge.yaml for a bridge", []string{"status"}, "there is no bridge.yaml that says where the bridge is: name its address, as in 'mcp-bridge status http://127.0.0.1:8808', or its file with -c"},
		{"for another command about it", []string{"reload"}, "as in 'mcp-bridge reload http://127.0.0.1:8808'"},
		{"a file for a bridge", []string{"status", "-c", missing}, `there is no file "` + missing},
		{"no bridge.yaml for a sign-in", []string{"login", "abc"}, `unknown target "abc": there is no bridge.yaml here. Give a URL`},
		{"a sign-in nowhere", []string{"login"}, "name the URL of a server, or a server of the file"},
		{"an address alone", []string{"localhost:8808"}, "did you mean http://localhost:8808"},
		{"an address as a target", []string{"tools", "localhost:8808/mcp"}, "did you mean http://localhost:8808/mcp"},
		{"an address to sign in at", []string{"login", "localhost:8808/mcp"}, "did you mean http://localhost:8808/mcp"},
		{"two URLs", []string{"connect", "http://a.example.com", "http://b.example.com"}, "for several servers write a configuration file"},
		{"an OpenAPI document as a configuration", []string{"check", file(t, "api.json", `{"openapi":"3.1.0","info":{},"paths":{}}`)}, "api.json:1: this is an OpenAPI document: serve it with 'mcp-bridge run "},
		{"a flag of run's for serve", []string{"serve", "--share", "all", missing}, "unknown flag --share: it is a key of a server in the file: share: all"},
		{"a word too many", []string{"run", "--json-output", "--", "cat"}, "did you mean --json?"},
		{"supergateway's address", []string{"run", "--baseUrl", "https://example.com"}, "unknown flag --baseUrl: it is not needed; behind a proxy write base_path: /PATH"},
		{"the default of sessions", []string{"run", "--stateful"}, "it is the default"},
		{"no sessions", []string{"run", "--stateless"}, "use --share call"},
		{"mcp-remote's metadata", []string{"connect", "--static-oauth-client-metadata", "{}"}, "the bridge registers itself"},
		{"a flag of supergateway's", []string{"run", "--stdio", "npx -y x"}, "put the command behind --: mcp-bridge run -- COMMAND"},
		{"a key for serve", []string{"serve", "--token-env", "NAME", missing}, `unknown flag --token-env: write access: [{ name: NAME, token: "${VARIABLE}" }] into the file`},
		{"a key that is not there", []string{"drain", "--token-env", "NOT_SET_ANYWHERE", "http://127.0.0.1:1"}, "--token-env NOT_SET_ANYWHERE: the variable is not set: set it to the key"},
		{"nothing to drain", []string{"drain"}, "as in 'mcp-bridge drain http://127.0.0.1:8808', or its file with -c"},
		{"another", []string{"run", "--outputTransport", "sse"}, "/mcp (Streamable HTTP) and /sse (HTTP+SSE) are both served"},
		{"a flag of mcp-proxy's", []string{"run", "--sse-port", "1"}, "use --port"},
		{"a flag of mcpo's", []string{"serve", "--api-key", "x"}, "with --token-env NAME of run, or under access: in the file"},
		{"a short flag of mcpo's", []string{"run", "-p", "8000"}, "unknown flag -p: use --port"},
		{"a short flag of nobody's", []string{"run", "-y"}, "unknown shorthand flag: 'y' in -y (see 'mcp-bridge run --help')"},
		{"a misspelt flag", []string{"run", "--timout", "1s"}, "did you mean --timeout?"},
		{"a flag before the command", []string{"--listen", "1", "--", "cat"}, "mcp-bridge run --listen …"},
		{"check with two files", []string{"check", "a.yaml", "b.yaml"}, "takes one file"},
		{"serve with two ways", []string{"serve", "a.yaml", "-c", "b.yaml"}, "not both"},
		{"version with an argument", []string{"version", "1"}, "takes no arguments"},

		// connect
		{"no target and no file", []string{"connect"}, "no target: there is no bridge.yaml here. Give a URL"},
		{"a name and no file", []string{"connect", "one"}, `unknown target "one": there is no bridge.yaml here. Give a URL`},
		{"a file that is not there", []string{"connect", "-c", missing}, "none.yaml"},
		{"a name that the file has not", []string{"connect", "twos", "-c", two}, "did you mean two?"},
		{"two targets", []string{"connect", "one", "two", "-c", two}, "takes one target, but got 2"},
		{"a header for the file", []string{"connect", "one", "-c", two, "-H", "A: b"}, "--header needs a URL or an OpenAPI document"},
		{"a transport for the file", []string{"connect", "-c", two, "--transport", "sse"}, "--transport needs the URL of an MCP server"},
		{"a file for a URL", []string{"connect", "https://example.com/mcp", "-c", two}, "--config needs a server of the file"},
		{"a bad URL", []string{"connect", "ftp://example.com/mcp?key=top-secret"}, "the URL has the unknown scheme \"ftp\": write http:// or https://"},
		{"a bad transport", []string{"connect", "https://example.com/mcp", "--transport", "carrier"}, "--transport must be auto, streamable or sse"},
		{"a header without a value", []string{"connect", "https://example.com/mcp", "-H", "top-secret"}, "'NAME: VALUE'"},
		{"a header with an unset variable", []string{"connect", "https://example.com/mcp", "-H", "A: ${NOT_SET_ANYWHERE}"}, "NOT_SET_ANYWHERE is not set"},
		{"a reserved header", []string{"connect", "https://example.com/mcp", "-H", "Host: top-secret"}, "Host is set by the bridge itself"},
		{"a log where the client reads", []string{"connect", "-c", file(t, "log.yaml", "access_log: { to: stdout }\n"+twoRemotes("https://example.com/mcp", "https://example.com/mcp"))}, "access_log: to is stdout"},
		{"a faulty file", []string{"connect", "-c", file(t, "faulty.yaml", "servers: { one: { http: { uri: x } } }")}, `did you mean "url"?`},

		// documents
		{"a document that run cannot serve", []string{"run", hello}, hello + " is neither a program nor an OpenAPI document"},
		{"a document that run cannot serve", []string{"run", "--cwd", filepath.Dir(hello), "--", "./api.yaml"}, "./api.yaml is neither a program nor an OpenAPI document"},
		{"a document that run cannot serve", []string{"run", lost}, "lost.yaml: line 2: "},
		{"a document that run cannot serve", []string{"run", settings}, settings + " is a configuration file: serve it with 'mcp-bridge serve -c " + settings + "'"},
		{"a document that run cannot serve", []string{"run", "--base-url", "https://api.example.com", hello}, "--base-url needs an OpenAPI document, and " + hello + " is not one"},
		{"a document that run cannot serve", []string{"run", "--base-url", "https://api.example.com", "--", "cat", "x"}, "--base-url needs an OpenAPI document"},
		{"a document that run cannot serve", []string{"run", "--base-url", "example", petsAt}, "base_url must be a URL such as"},
		{"a document that run cannot serve", []string{"run", "--era", "modern", petsAt}, "--era needs the URL of an MCP server or a program"},
		{"a flag for documents", []string{"tools", petsAt, "--mode", "serch"}, `--mode is "serch": must be auto, tools or search: did you mean search?`},
		{"a flag for documents", []string{"tools", "http://127.0.0.1:1/mcp", "--all"}, "--all is for tools that are found by search"},
		{"a flag for documents", []string{"tools", "http://127.0.0.1:1/mcp", "--read-only"}, "--read-only needs an OpenAPI document"},
		{"a flag for documents", []string{"connect", "http://127.0.0.1:1/mcp", "--mode", "search"}, "--mode needs an OpenAPI document"},
		{"a flag for documents", []string{"run", "--expose", "all", "http://127.0.0.1:1/mcp"}, "--expose needs an OpenAPI document"},

		// sign-in
		{"a sign-in that cannot be", strings.Fields("connect https://a.example.com/mcp --client-secret-env BRIDGE_TEST_SHORT"), "--client-id"},
		{"a sign-in that cannot be", strings.Fields("connect https://a.example.com/mcp --client-id a --client-secret-env BRIDGE_TEST_SHORT"), "needs an --issuer"},
		{"a sign-in that cannot be", strings.Fields("connect https://a.example.com/mcp --client-id a --client-secret-env NOT_SET_ANYWHERE"), "the variable is not set"},
		{"a sign-in that cannot be", strings.Fields("connect https://a.example.com/mcp --callback https://b.example.com/cb"), "redirect_uri must be an address of this machine"},
		{"a sign-in that cannot be", strings.Fields("connect --client-id a -- cat"), "--client-id needs the URL of an MCP server"},
		{"a sign-in that cannot be", strings.Fields("run --client-id a -- cat"), "--client-id needs the URL of an MCP server"},
		{"a sign-in that cannot be", strings.Fields("connect --device -- cat"), "--device needs the URL of an MCP server"},
		{"a sign-in that cannot be", strings.Fields("run --device -- cat"), "--device needs the URL of an MCP server"},
		{"a sign-in that cannot be", strings.Fields("connect https://a.example.com/mcp --device --no-login"), "leave one out"},
		{"a sign-in that cannot be", strings.Fields("logout"), "or --all"},

		// what others can reach is not served to everybody
		{"serve", []string{"serve", "-c", open}, "listen is 0.0.0.0:0, which other machines can reach, and without access rules anyone there could use every server: add access: to the configuration, listen on 127.0.0.1:0, or pass --insecure"},
		{"serve elsewhere", []string{"serve", "-c", closed, "--listen", "0.0.0.0:0"}, "pass --insecure"},
		{"run", []string{"run", "--listen", "[::]:0", "--", "cat"}, "--token-env, listen on 127.0.0.1:0, or pass --insecure"},
		{"run URL", []string{"run", "--listen", "192.0.2.1:0", "https://tools.example.com/mcp"}, "pass --insecure"},
		{"a variable that is not set", []string{"run", "--listen", ":0", "--token-env", "NOT_SET_ANYWHERE", "--", "cat"}, "--token-env NOT_SET_ANYWHERE: the variable is not set"},
		{"a short key", []string{"run", "--listen", ":0", "--token-env", "BRIDGE_TEST_SHORT", "--", "cat"}, "--token-env BRIDGE_TEST_SHORT: the key in the variable must have at least 16 characters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if all := says(t, exit.Usage, "", test.stderr, test.args...); !strings.HasPrefix(all, "mcp-bridge: ") {
				t.Errorf("stderr begins with %q", all)
			}
		})
	}
}

// A flag of another bridge that has a row in docs/coming-from.md is either one of
// run's or connect's, or is answered with what to write here.
func TestFlagsOfOthers(t *testing.T) {
	page, err := os.ReadFile("../../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	root, n := newRoot(io.Discard, io.Discard, io.Discard, io.Discard), 0
	for row := range strings.Lines(string(page)) {
		theirs, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, flag := range regexp.MustCompile("`--([A-Za-z0-9-]+)").FindAllStringSubmatch(theirs, -1) {
			known := false
			for _, command := range []string{"run", "connect"} {
				c, _, err := root.Find([]string{command})
				known = known || err == nil && (c.Flags().Lookup(flag[1]) != nil || root.PersistentFlags().Lookup(flag[1]) != nil)
			}
			if !strings.HasPrefix(row, "| ") || known {
				continue
			}
			n++
			if _, _, said := in(t, "run", "--"+flag[1], "x"); !strings.Contains(said, "unknown flag --"+flag[1]+": ") && !strings.Contains(said, "did you mean") {
				t.Errorf("--%s: nothing says what to write: %s", flag[1], said)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d flags: the test looks in the wrong place", n)
	}
}

func TestVersion(t *testing.T) {
	stdout := says(t, 0, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, "", "version")
	if same := says(t, 0, "mcp-bridge ", "", "--version"); same != stdout || !strings.HasPrefix(stdout, "mcp-bridge ") {
		t.Errorf("--version prints %q, and version %q", same, stdout)
	}
	if good, bad := version("go1.26.9"), version("go1.26.8"); strings.Contains(good, "HTTP/2") || !strings.Contains(bad, " go1.26.8 ") || !strings.Contains(bad, "without HTTP/2 (GO-2026-6617): build it with Go 1.26.9") {
		t.Errorf("version = %q and, of a Go whose HTTP/2 clients can crash, %q", good, bad)
	}
}

func TestNoCommandPrintsHelp(t *testing.T) {
	code, stdout, stderr := in(t)
	if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want the help on stdout", code, stdout, stderr)
	}
}

const good = `listen: 127.0.0.1:0
servers:
  one: { stdio: { command: ` + missingProgram + ` } }
  two: { stdio: { command: ` + missingProgram + ` }, share: all }
`

// missingProgram is a program that does not exist: nothing is started.
const missingProgram = "no-such-program-anywhere"

func TestCheck(t *testing.T) {
	path := file(t, "bridge.yaml", good)
	contains(t, says(t, 0, "*", "", "check", path),
		"warning: ", missingProgram, path+" is good: 2 servers on 127.0.0.1:0\n", "  one  stdio, share: session, prefix: one__\n", "  two  stdio, share: all, prefix: two__\n")
}

// What is configured is shown in short, without anything that may be a secret.
func TestCheckSummary(t *testing.T) {
	path := file(t, "bridge.yaml", `servers:
  new:
    http: { url: "https://example.com/mcp?key=top-secret", headers: { X-Key: top-secret } }
    forward: [X-Tenant, X-User-Token as Authorization]
    ping: 30s
    tools: { allow: [a, b], deny: [c], rename: { a: d }, override: { b: { title: t } } }
    prompts: { deny: ["*"] }
  old: { sse: { url: "http://localhost:3001/sse#" }, prefix: "" }
`)
	code, stdout, stderr := in(t, "check", "-c", path)
	want := path + ` is good: 2 servers on 127.0.0.1:8808
  new  http https://example.com/mcp, share: session, prefix: new__, forward: X-Tenant as X-Tenant, forward: X-User-Token as Authorization, ping: 30s, tools: allow 2 and deny 1 and rename 1 and override 1, prompts: deny 1
  old  sse http://localhost:3001/sse, share: session, no prefix
`
	if code != 0 || stderr != "" || stdout != want {
		t.Errorf("exit code %d, stderr %q, stdout\n%s\nwant\n%s", code, stderr, stdout, want)
	}
	says(t, 0, "  one  http https://example.com/mcp, share: session\n", "*", "check", "-c", file(t, "one.yaml", "servers: { one: { http: { url: \"https://example.com/mcp\" } } }"))
}

// A file that is no certificate is no fault of the others: check says so, and serve serves them.
func TestCheckBadCertificate(t *testing.T) {
	path := file(t, "bridge.yaml", "servers: { one: { http: { url: \"https://example.com/mcp\", ca_file: bridge.yaml } } }")
	says(t, 0, "warning: "+path+":1: server \"one\": http: ca_file: there is no PEM certificate in it\n", "*", "check", "-c", path)
}

// All faults are reported in one go, each with its line.
func TestCheckReportsFaults(t *testing.T) {
	path := file(t, "bridge.yaml", "servers:\n  one: { stdio: { commnad: cat } }\n  two: { stdio: { command: cat }, timeout: 90 }\n")
	contains(t, says(t, exit.Usage, "", "*", "check", "-c", path), "bridge.yaml:2: ", `did you mean "command"?`, "bridge.yaml:3: ", "add a unit")
}

// While it serves, stdout has what the user needs and stderr the log, nothing
// else on either.
func TestServeOutput(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		urls []string // below the address
	}{
		{"serve", []string{"serve", "-c", file(t, "bridge.yaml", good)}, []string{"/one/mcp", "/two/mcp"}},
		{"serve at another address", []string{"serve", "-c", file(t, "bridge.yaml", "listen: 192.0.2.1:1\n"+strings.SplitN(good, "\n", 2)[1]), "--listen", "127.0.0.1:0"}, []string{"/one/mcp", "/two/mcp"}},
		{"run", []string{"run", "--listen", "127.0.0.1:0", "--", "cat", "--flag"}, []string{"/mcp"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			k := start(ctx, t, test.args...)
			var text strings.Builder
			pasted := test.args[0] == "run" // serve shows it on a terminal
			end := "\nconsole: "
			if pasted {
				end = "\n}\n"
			}
			for !strings.Contains(text.String(), end) {
				line, err := k.out.ReadString('\n')
				text.WriteString(line)
				if err != nil {
					t.Fatalf("stdout ended early: %q", text.String())
				}
			}
			stdout := text.String()
			first, _, _ := strings.Cut(stdout, "\n")
			if several := len(test.urls) > 1; several != strings.HasPrefix(first, "all servers as one: http://127.0.0.1:") || several && !strings.Contains(first, "/mcp (Streamable HTTP)") {
				t.Errorf("stdout begins with %q, want the endpoint of all servers first: %t", first, several)
			}
			base := regexp.MustCompile(`http://127\.0\.0\.1:[1-9]\d*`).FindString(stdout)
			for _, path := range test.urls {
				want := ": " + base + path + " (Streamable HTTP)"
				if pasted {
					want = `"url": "` + base + path + `"`
				}
				if !strings.Contains(stdout, want) {
					t.Errorf("stdout = %q, want it to contain %q", stdout, want)
				}
			}
			var paste struct {
				MCPServers map[string]struct{ Type, URL string } `json:"mcpServers"`
			}
			if !pasted {
				if strings.Contains(stdout, "{") {
					t.Errorf("serve without a terminal shows what to paste: %q", stdout)
				}
			} else if err := json.Unmarshal([]byte(stdout[strings.Index(stdout, "\n{"):]), &paste); err != nil || len(paste.MCPServers) != len(test.urls) {
				t.Errorf("the configuration to paste has %d servers and error %v, want %d and none", len(paste.MCPServers), err, len(test.urls))
			}
			resp, err := http.Get(base + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("/healthz: status %d, want 200", resp.StatusCode)
			}

			stop()
			rest, err := io.ReadAll(k.out)
			if code := <-k.ended; code != 0 {
				t.Errorf("exit code %d, want 0; stderr: %s", code, &k.log)
			}
			if err != nil || len(rest) > 0 {
				t.Errorf("stdout goes on with %q (error %v), want nothing", rest, err)
			}
			warned := false
			for line := range strings.Lines(k.log.String()) {
				var entry struct{ Level, Msg string }
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "" {
					t.Errorf("stderr has %q, want lines of the log only", line)
				}
				warned = warned || entry.Level == "WARN" && strings.Contains(entry.Msg, missingProgram)
			}
			if !warned && test.name != "run" {
				t.Errorf("stderr = %q, want a warning about %s", k.log.String(), missingProgram)
			}
		})
	}
}

func TestTakenAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	says(t, exit.Failure, "", "address already in use: choose another address with --port or listen:, or port 0 for any free one", "run", "--listen", l.Addr().String(), "--", "cat")
}
