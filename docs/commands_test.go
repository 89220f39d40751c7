package docs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Commands that are not run.
var notRun = exceptions{why: map[exception]string{
	{"README.md", "make test"}:                                                              "takes minutes",
	{"README.md", "git clone https://github.com/mcp-bridge/bridge"}:                         "needs the network",
	{"README.md", "cd bridge"}:                                                              "the folder of the clone",
	{"CONTRIBUTING.md", "go test ./bridge -run TestArchitecture -update"}:                   "writes a page",
	{"docs/quick-start.md", "npm install -g mcp-bridge"}:                                    "needs the network: deploy/dist tests the packages",
	{"docs/quick-start.md", "sudo install -m 600 team.key ops.key /etc/mcp-bridge/"}:        "needs root",
	{"docs/quick-start.md", "sudo install -m 644 service.yaml /etc/mcp-bridge/bridge.yaml"}: "needs root",
	{"docs/quick-start.md", "sudo systemctl edit mcp-bridge"}:                               "needs systemd: a test in deploy/systemd has it read the unit",
	{"docs/quick-start.md", "sudo systemctl enable --now mcp-bridge"}:                       "needs systemd: a test in deploy/systemd has it read the unit",
	{"docs/quick-start.md", "docker run -d -p 127.0.0.1:8808:8808 -e TEAM_KEY -e OPS_KEY -v ./bridge.yaml:/etc/mcp-bridge/bridge.yaml:ro -v ./data:/data:ro mcp-bridge:node"}:                                                                            "needs Docker",
	{"docs/recipes.md", "sudo systemd-run --pipe --wait -p EnvironmentFile=-/etc/mcp-bridge/env -p LoadCredential=team:/etc/mcp-bridge/team.key -p LoadCredential=ops:/etc/mcp-bridge/ops.key /usr/bin/mcp-bridge check -c /etc/mcp-bridge/bridge.yaml"}: "needs systemd",
	{"docs/recipes.md", "sudo systemctl restart mcp-bridge"}:                                                                                        "needs systemd",
	{"docs/recipes.md", "mcp-bridge status -c /etc/mcp-bridge/bridge.yaml"}:                                                                         "needs that service",
	{"docs/recipes.md", "mcp-bridge whoami https://mcp.example.com/tools --token-env TEAM_KEY"}:                                                     "needs nginx: a test of integration has it",
	{"docs/install.md", "git clone https://github.com/mcp-bridge/bridge"}:                                                                           "needs the network",
	{"docs/install.md", "cd bridge"}:                                                                                                                "the folder of the clone",
	{"docs/install.md", "docker build -f deploy/image/Dockerfile --target mcp-bridge -t mcp-bridge ."}:                                              "needs Docker and the network: a test in deploy/check runs the commands of the Dockerfile",
	{"docs/install.md", "docker run -p 127.0.0.1:8808:8808 -e AGENTS_TOKEN -v ./bridge.yaml:/etc/mcp-bridge/bridge.yaml:ro mcp-bridge"}:             "needs Docker",
	{"docs/install.md", `kubectl create secret generic mcp-keys --from-literal=agents="$(openssl rand -hex 32)"`}:                                   "needs a cluster",
	{"docs/install.md", "helm install tools deploy/helm/mcp-bridge -f values.yaml"}:                                                                 "needs a cluster: a test in deploy/check renders the chart, and runs its pod",
	{"docs/install.md", "helm test tools"}:                                                                                                          "needs a cluster",
	{"docs/clients.md", "claude mcp add --scope project --transport http files http://127.0.0.1:8808/files/mcp --header 'X-API-Key: ${KEY}'"}:       "another program",
	{"docs/clients.md", `claude mcp add search -- "$(which mcp-bridge)" connect https://tools.example.com/mcp`}:                                     "another program",
	{"docs/clients.md", "npx @modelcontextprotocol/inspector --cli http://127.0.0.1:8808/mcp --method tools/list"}:                                  "another program: a test of integration uses it",
	{"docs/clients.md", "npx @modelcontextprotocol/inspector --cli mcp-bridge connect http://127.0.0.1:8808/mcp --method tools/list"}:               "another program",
	{"docs/coming-from.md", `supergateway --stdio "npx -y @modelcontextprotocol/server-filesystem ." --outputTransport streamableHttp --port 8000`}: "another program",
	{"docs/coming-from.md", `mcp-proxy --port 8080 --apiKey "$KEY" -- npx -y @modelcontextprotocol/server-filesystem .`}:                            "another program",
	{"docs/coming-from.md", "mcp-proxy --port 8080 --pass-environment uvx mcp-server-fetch"}:                                                        "another program",
	{"docs/configuration/import.md", "mcp-bridge import claude-desktop -o bridge.yaml"}:                                                             "there is a bridge.yaml, and no such client: a test of cmd/bridge does it",
	{"docs/reload.md", "mcp-bridge check bridge.yaml --against http://127.0.0.1:8808"}:                                                              "needs a bridge that serves the file: a test of cmd/bridge does it",
	{"docs/admin.md", "mcp-bridge top --once"}:                                                                                                      "needs a bridge that runs: a test of cmd/bridge does it",
	{"docs/admin.md", "mcp-bridge drain files --wait 5m"}:                                                                                           "needs a bridge that runs: a test of cmd/bridge does it",
	{"docs/admin.md", "mcp-bridge resume files"}:                                                                                                    "needs a bridge that runs: a test of cmd/bridge does it",
	{"docs/admin.md", "mcp-bridge sessions"}:                                                                                                        "needs a bridge that runs: a test of cmd/bridge does it",
	{"docs/admin.md", "curl -N 'http://127.0.0.1:8808/ui/api/v1/events?topics=servers,calls'"}:                                                      "does not end: a test of server does it",
	{"docs/admin.md", "curl -N 'http://127.0.0.1:8808/ui/api/v1/events?topics=traffic&server=files'"}:                                               "does not end: a test of server does it",
	{"docs/admin.md", "curl -X POST -H 'Content-Type: application/json' -d '{}' http://127.0.0.1:8808/ui/api/v1/servers/files/drain"}:               "needs a bridge that runs: a test of server does it",
	{"docs/admin.md", "curl -X POST -H 'Content-Type: application/json' -d '{}' http://127.0.0.1:8808/ui/api/v1/servers/files/resume"}:              "needs a bridge that runs: a test of server does it",
	{"docs/observability.md", "docker run -d -p 16686:16686 -p 4318:4318 jaegertracing/jaeger:2.5.0"}:                                               "needs Docker and the network",
	{"docs/signing-in.md", "mcp-bridge login https://notes.example.com/mcp"}:                                                                        "needs a server that wants a sign-in, and a browser: a test of cmd/bridge does it",
	{"examples/adapter/README.md", "socat TCP-LISTEN:9000,bind=127.0.0.1,fork EXEC:'npx -y @modelcontextprotocol/server-everything'"}:               "needs socat: a test of examples/adapter has a server on a socket",
	{"examples/adapter/README.md", "cd examples/adapter"}:                                                                                           "a module of its own",
	{"examples/adapter/README.md", "go run . tcp://127.0.0.1:9000"}:                                                                                 "needs that server: a test of examples/adapter does it",
	{"docs/catalogues.md", `curl -X POST -H "Authorization: Bearer $HOOK_SECRET" http://127.0.0.1:8808/hooks/flows`}:                                "needs an engine of workflows: a test of examples/workflow-tools does it",
}}

// dialogues are the pages whose blocks are run one after the other, as their reader does it. Each dialogue has a
// world of its own, and begins after this text; an empty text means that the page is one dialogue.
var dialogues = map[string]string{"docs/quick-start.md": "", "docs/recipes.md": "\n## "}

// The test binary is the server that npx and uvx would download.
const standIn = "DOCS_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(standIn) != "" {
		s := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "read_file"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Path string `json:"path"`
		}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the text of " + in.Path}}}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "read_text_file"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Path string `json:"path"`
		}) (*mcp.CallToolResult, any, error) {
			text, err := os.ReadFile(in.Path)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, err
		})
		s.Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	os.Exit(programtest.Main(m))
}

// A world is a folder with what the commands of the pages need.
type world struct {
	dir         string
	environment []string
	// remote and bridge are what the pages call https://tools.example.com and http://127.0.0.1:8808, or
	// https://mcp.example.com:8443.
	remote, bridge string
}

// here returns a text of a page with the addresses of this world.
func (w *world) here(text string) string {
	pairs := []string{"https://tools.example.com", w.remote}
	if w.bridge != "" {
		pairs = append(pairs, "http://127.0.0.1:8808", w.bridge, "https://mcp.example.com:8443", w.bridge)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the pages show commands for a POSIX shell")
	}
	for _, name := range []string{"sh", "curl", "awk", "tr", "openssl", "make"} {
		programtest.Need(t, name)
	}
	above, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"./cmd/bridge": "mcp-bridge", "./examples/everything": "everything"} {
		if err := os.Link(programtest.Build(t, from, scaletest.Raced), filepath.Join(bin, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(above, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(above, "Makefile"), filepath.Join(dir, "Makefile")); err != nil {
		t.Fatal(err)
	}
	// What the pages have the go command compile is already built.
	write(t, filepath.Join(bin, "go"), fmt.Sprintf(`#!/bin/sh
export %[2]s
case "$#|$*" in
*"|run ./cmd/bridge"*) shift 2; exec %[1]s/mcp-bridge "$@";;
*"|run ./examples/everything"*) shift 2; exec %[1]s/everything "$@";;
*"|build -v -o bin/mcp-bridge ./cmd/bridge" | *"|build -v -o bin/everything ./examples/everything") exit 0;;
*"|list -deps ./cmd/bridge ./examples/everything" | *"|env "*) exit 0;;
esac
echo "go $*: newWorld has nothing built for this command" >&2
exit 2
`, bin, scaletest.AtOnce), 0o700)
	for _, name := range []string{"npx", "uvx"} {
		write(t, filepath.Join(bin, name), fmt.Sprintf(`#!/bin/sh
case "$*" in *server-everything*) exec %s/everything stdio;; esac
%s=1 exec %s
`, bin, standIn, self), 0o700)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id":2,"name":"Rex"}`)
	}))
	t.Cleanup(api.Close)
	write(t, filepath.Join(dir, "openapi.yaml"), "openapi: 3.1.0\ninfo: { title: Pets, version: \"1\" }\nservers: [{ url: "+api.URL+" }]\n"+
		"paths:\n  /pets/{id}:\n    get:\n      operationId: getPet\n      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]\n"+
		"      responses: { \"200\": { description: ok, content: { application/json: { schema: { type: object } } } } }\n", 0o600)
	if err := os.Mkdir(filepath.Join(dir, ".vscode"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".vscode", "mcp.json"), `{ "servers": { "github": { "type": "http", "url": "https://mcp.example.com/mcp" } } }`, 0o600)
	secure := httptest.NewTLSServer(nil) // for its certificate, which is good for 127.0.0.1
	secure.Close()
	key, err := x509.MarshalPKCS8PrivateKey(secure.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tls.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})), 0o600)
	write(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})), 0o600)
	w := &world{dir: dir, environment: []string{"SSL_CERT_FILE=" + filepath.Join(dir, "tls.crt"), "PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + t.TempDir(), scaletest.AtOnce}}
	for _, name := range []string{"TOKEN", "KEY", "SEARCH_TOKEN", "GITHUB_TOKEN", "N8N_KEY"} {
		w.environment = append(w.environment, name+"=a-value-that-is-long")
	}
	w.remote = w.start(t, "everything streamableHttp -port 0")
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "json" && strings.Contains(b.text, `"calls": [`) {
				write(t, filepath.Join(dir, "calls.json"), b.text, 0o600)
			}
		}
	}
	write(t, filepath.Join(dir, "bridge.yaml"), "servers:\n  files: { stdio: { command: npx } }\n  search: { http: { url: \""+w.remote+"/mcp\" } }\n", 0o600)
	return w
}

func (w *world) command(line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = w.dir, w.environment
	return cmd
}

// said collects what a command prints, and tells when it has said where it serves.
type said struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	where chan string
}

var served = regexp.MustCompile(`(?m)(https?://127\.0\.0\.1:[1-9]\d*)/\S*(?:.|\n)*\n`)

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	if m := served.FindSubmatch(s.text.Bytes()); m != nil {
		select {
		case s.where <- string(m[1]):
		default:
		}
	}
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// endLimit is the time in which an interrupted command must end, and close what it prints to.
const endLimit = 30 * time.Second

// start runs a command that serves until it is interrupted, waits until it
// does, and returns its address. At the end of the test it must stop.
func (w *world) start(t *testing.T, line string) string {
	t.Helper()
	where, stop := w.serve(t, line)
	t.Cleanup(func() { stop() })
	return where
}

// serve is start for a command that stop ends. stop returns what the command printed.
func (w *world) serve(t *testing.T, line string) (where string, stop func() string) {
	t.Helper()
	out := &said{where: make(chan string, 1)}
	cmd := w.command("exec env " + line)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, endLimit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceValue(func() string {
		cmd.Process.Signal(os.Interrupt)
		defer time.AfterFunc(endLimit, func() { cmd.Process.Kill() }).Stop()
		if err := <-ended; err != nil && !strings.HasPrefix(line, "everything") { // which has no orderly end
			t.Errorf("%s: %v, after\n%s", line, err, out)
		}
		return out.String()
	})
	select {
	case where = <-out.where:
	case err := <-ended:
		t.Fatalf("%s has ended (%v):\n%s", line, err, out)
	}
	return where, stop
}

var (
	assigns  = regexp.MustCompile(`(?m)^\w+=\S*$|^\w+\(\) \{`)
	comment  = regexp.MustCompile(`\s+# .*$`)
	serves   = regexp.MustCompile(`^(?:\w+=\S+ )*(?:(?:bin/)?mcp-bridge|go run \./cmd/bridge) (run|serve)\b`)
	listens  = regexp.MustCompile(`--(listen|port|host)[ =]\S+`)
	examples = regexp.MustCompile(`^go run \./examples/everything (sse|streamableHttp|bridged)$`)
)

// commands returns the commands of a block: its lines, or the whole if they
// build on each other.
func (b block) commands() []string {
	if assigns.MatchString(b.text) {
		return []string{strings.TrimSpace(b.text)}
	}
	var all []string
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimRight(line, "\n"), "")); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// anyPort returns the command line of a bridge that serves, with a free port, and false for any other command.
func anyPort(line string) (string, bool) {
	if !serves.MatchString(line) {
		return line, false
	}
	return serves.ReplaceAllString(listens.ReplaceAllString(line, ""), "$0 --listen 127.0.0.1:0"), true
}

// try runs a command. What serves is stopped once it does.
func (w *world) try(t *testing.T, line string) (stdout string) {
	t.Helper()
	if line == "make demo" { // whose last command serves
		recipe := strings.Split(strings.TrimSpace(w.try(t, "make -s -n demo RUN='--listen 127.0.0.1:0'")), "\n")
		last := len(recipe) - 1
		if said := w.try(t, "set -e\n"+strings.Join(recipe[:last], "\n")); !strings.HasSuffix(said, "\nThe sum of 2 and 3 is 5.\n") {
			t.Errorf("make demo prints %q", said)
		}
		w.start(t, strings.TrimPrefix(recipe[last], "exec "))
		return ""
	}
	if line, ok := anyPort(line); ok {
		w.start(t, w.here(line))
		return ""
	}
	if examples.MatchString(line) {
		w.start(t, "everything "+examples.FindStringSubmatch(line)[1]+" -port 0")
		return ""
	}
	cmd := w.command(w.here(line))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
}

var saved = regexp.MustCompile(`^# ([a-z]+\.yaml)\n`)

// play runs a dialogue: it saves the files and runs the commands. What serves goes on until the next command serves.
func (w *world) play(t *testing.T, steps []step) {
	stop := func() {}
	defer func() { stop() }()
	for _, s := range steps {
		if file := saved.FindStringSubmatch(s.text); file != nil {
			write(t, filepath.Join(w.dir, file[1]), w.here(s.text), 0o600)
		}
		if len(s.lines) == 0 {
			continue
		}
		last, ok := anyPort(s.lines[len(s.lines)-1])
		if !ok {
			if got, want := w.try(t, "set -e\n"+strings.Join(s.lines, "\n")), w.here(s.want); want != "" && !same(want, got) {
				t.Errorf("%s prints\n%s\nwant\n%s", s, got, want)
			}
			continue
		}
		if before := s.lines[:len(s.lines)-1]; len(before) > 0 {
			w.try(t, "set -e\n"+strings.Join(before, "\n"))
		}
		stop()
		where, end := w.serve(t, w.here(last))
		w.bridge = where
		want := w.here(s.want)
		stop = func() {
			if got := end(); !within(want, got) {
				t.Errorf("%s prints\n%s\nwant\n%s", s, got, want)
			}
		}
	}
}

// within reports whether the lines that a page shows are in what was printed, in this order.
func within(shown, printed string) bool {
	for line := range strings.Lines(shown) {
		line = strings.TrimSpace(line)
		_, rest, ok := strings.Cut(printed, line+"\n")
		if !ok {
			return false
		}
		printed = rest
	}
	return true
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		shown, printed string
		want           bool
	}{
		{"", "a\n", true},
		{"a\nc\n", "a\nb\nc\n", true},
		{"c\na\n", "a\nb\nc\n", false},
		{"a\n", "ab\n", false},
	} {
		if got := within(test.shown, test.printed); got != test.want {
			t.Errorf("within(%q, %q) = %v, want %v", test.shown, test.printed, got, test.want)
		}
	}
}

// A step is a block, the commands in it that can be run here, and what the page says that they print.
type step struct {
	block
	lines []string
	want  string
}

// steps returns the blocks of a page with their commands.
func steps(p page) []step {
	all := p.blocks()
	out := make([]step, len(all))
	for i, b := range all {
		out[i].block = b
		if b.language != "sh" {
			continue
		}
		for _, line := range b.commands() {
			if !notRun.has(p.name, line) {
				out[i].lines = append(out[i].lines, line)
			}
		}
		if i+1 < len(all) && all[i+1].follows && (all[i+1].language == "text" || all[i+1].language == "json") && len(out[i].lines) > 0 {
			out[i].want = all[i+1].text
		}
	}
	return out
}

// same reports whether a command has printed what a page shows. Tabs are shown
// as spaces.
func same(shown, printed string) bool {
	even := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\t", "    ") }
	return even(shown) == even(printed)
}

// Every command of the pages works, and prints what they show.
func TestCommands(t *testing.T) {
	w := newWorld(t)
	w.bridge = w.start(t, "mcp-bridge run --listen 127.0.0.1:0 -- everything stdio")
	n, compared := 0, 0
	count := func(s step) {
		n += len(s.lines)
		if s.want != "" {
			compared++
		}
	}
	for _, p := range pages(t) {
		if at, ok := dialogues[p.name]; ok {
			for _, part := range p.parts(at) {
				all := steps(part)
				if len(all) == 0 {
					continue
				}
				for _, s := range all {
					count(s)
				}
				t.Run(all[0].String(), func(t *testing.T) {
					t.Parallel()
					newWorld(t).play(t, all)
				})
			}
			continue
		}
		for _, s := range steps(p) {
			if s.language != "sh" {
				continue
			}
			count(s)
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()
				var got string
				for _, line := range s.lines {
					got = w.try(t, line)
				}
				if s.want != "" && !same(s.want, got) {
					t.Errorf("%s prints\n%s\nwant\n%s", s.lines[len(s.lines)-1], got, s.want)
				}
			})
		}
	}
	notRun.check(t)
	if n < 30 || compared < 5 {
		t.Errorf("only %d commands, and %d outputs: the test looks in the wrong place", n, compared)
	}
}

var (
	inCode = regexp.MustCompile("`mcp-bridge ([a-z]+)([^`\n]*)`")
	flag   = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
)

// unknown returns what is wrong with the commands in a text, given the help of
// each command, which is empty if there is no such command.
func unknown(text string, help func(command string) string) []string {
	var faults []string
	for _, m := range inCode.FindAllStringSubmatch(text, -1) {
		has := help(m[1])
		if has == "" {
			faults = append(faults, "there is no command "+m[1])
			continue
		}
		ours, _, _ := strings.Cut(m[2], " -- ")
		for _, f := range flag.FindAllStringSubmatch(ours, -1) {
			if !regexp.MustCompile(`(?m)^ +(-\w, )?` + f[1] + `\b`).MatchString(has) {
				faults = append(faults, m[1]+" has no flag "+f[1])
			}
		}
	}
	return faults
}

// The commands in the midst of sentences exist, with their flags.
func TestCommandsInSentences(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	texts := map[string]string{}
	help := func(command string) string {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := texts[command]; !ok {
			out, err := w.command("mcp-bridge " + command + " --help").Output()
			if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			if strings.Contains(string(out), "\n  mcp-bridge "+command+" ") {
				texts[command] = string(out)
			} else { // it is the help of another command
				texts[command] = ""
			}
		}
		return texts[command]
	}
	for _, p := range pages(t) {
		if p.name == "CHANGELOG.md" {
			continue
		}
		for _, fault := range unknown(p.text, help) {
			t.Errorf("%s: %s", p.name, fault)
		}
	}
	if len(texts) < 5 {
		t.Errorf("only %d commands: the test looks in the wrong place", len(texts))
	}
	if got := unknown("`mcp-bridge sreve` and `mcp-bridge run --nonsense -- x --y`, `mcp-bridge run --env A -- x`", help); !slices.Equal(got, []string{"there is no command sreve", "run has no flag --nonsense"}) {
		t.Errorf("unknown = %q", got)
	}
}

// The code in Go that pages show is code that tests run.
func TestLibrary(t *testing.T) {
	var code strings.Builder
	for _, file := range []string{
		"bridge/server/example_test.go", "adapters/inprocess/example_test.go", "config/example_test.go",
		"examples/adapter/main.go", "examples/gin/main.go", "docs/sdk_test.go",
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	n := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "go" {
				if n++; !strings.Contains(code.String(), b.text) {
					t.Errorf("%s: none of these files has\n%s", b, b.text)
				}
			}
		}
	}
	if n < 5 {
		t.Errorf("the pages show %d pieces of code: too few, the test looks for the wrong thing", n)
	}
}
