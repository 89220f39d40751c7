package docs

import (
	"bytes"
	"context"
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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Commands that are not run.
var notRun = exceptions{why: map[exception]string{
	{"README.md", "make test"}:                                            "this is one of the tests that it runs",
	{"README.md", "git clone https://github.com/mcp-bridge/bridge"}:       "needs the network",
	{"README.md", "cd bridge"}:                                            "the folder of the clone",
	{"CONTRIBUTING.md", "make test"}:                                      "this is one of the tests that it runs",
	{"CONTRIBUTING.md", "make check"}:                                     "runs this test",
	{"CONTRIBUTING.md", "make soak"}:                                      "takes too long",
	{"CONTRIBUTING.md", "make bench"}:                                     "CI runs the benchmark",
	{"CONTRIBUTING.md", "make fuzz"}:                                      "takes too long; every test runs the seeds of the fuzz targets",
	{"CONTRIBUTING.md", "go test ./bridge -run TestArchitecture -update"}: "writes a page",
	{"docs/install.md", "git clone https://github.com/mcp-bridge/bridge"}: "needs the network",
	{"docs/install.md", "cd bridge"}:                                      "the folder of the clone",
	{"docs/install.md", "docker build -f deploy/image/Dockerfile --target mcp-bridge -t mcp-bridge ."}:                                  "needs Docker and the network: a test in deploy/check runs the commands of the Dockerfile",
	{"docs/install.md", "docker run -p 127.0.0.1:8808:8808 -e AGENTS_TOKEN -v ./bridge.yaml:/etc/mcp-bridge/bridge.yaml:ro mcp-bridge"}: "needs Docker",
	{"docs/install.md", `kubectl create secret generic mcp-keys --from-literal=agents="$(openssl rand -hex 32)"`}:                       "needs a cluster",
	{"docs/install.md", "helm install tools deploy/helm/mcp-bridge -f values.yaml"}:                                                     "needs a cluster: a test in deploy/check renders the chart, and runs its pod",
	{"docs/install.md", "helm test tools"}: "needs a cluster",
	{"docs/coming-from.md", `supergateway --stdio "npx -y @modelcontextprotocol/server-filesystem ." --outputTransport streamableHttp --port 8000`}: "another program",
	{"docs/coming-from.md", `mcp-proxy --port 8080 --apiKey "$KEY" -- npx -y @modelcontextprotocol/server-filesystem .`}:                            "another program",
	{"docs/coming-from.md", "mcp-proxy --port 8080 --pass-environment uvx mcp-server-fetch"}:                                                        "another program",
	{"docs/configuration.md", "mcp-bridge import claude-desktop -o bridge.yaml"}:                                                                    "there is a bridge.yaml, and no such client: a test of cmd/bridge does it",
	{"docs/operations.md", "mcp-bridge check bridge.yaml --against http://127.0.0.1:8808"}:                                                          "needs a bridge that serves the file: a test of cmd/bridge does it",
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
	{"docs/rest.md", `curl -X POST -H "Authorization: Bearer $HOOK_SECRET" http://127.0.0.1:8808/hooks/flows`}:                                      "needs an engine of workflows: a test of examples/workflow-tools does it",
}}

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
		s.Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	os.Exit(programtest.Main(m))
}

// A world is a folder with what the commands of the pages need.
type world struct {
	dir         string
	environment []string
	// replace has what is elsewhere on the reader's machine, or not on this one.
	replace *strings.Replacer
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
	for _, name := range []string{"sh", "curl", "awk", "tr"} {
		if _, err := exec.LookPath(name); err != nil {
			required := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ",")
			if slices.Contains(required, name) || slices.Contains(required, "all") {
				t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE: %v", name, err)
			}
			t.Skipf("needs %s: %v", name, err)
		}
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
	// What the pages have the go command compile is already built.
	write(t, filepath.Join(bin, "go"), fmt.Sprintf(`#!/bin/sh
export %[2]s
case "$#|$*" in
*"|run ./cmd/bridge"*) shift 2; exec %[1]s/mcp-bridge "$@";;
*"|run ./examples/everything"*) shift 2; exec %[1]s/everything "$@";;
*"|build -o bin/ ./cmd/mcp-bridge ./examples/everything") exit 0;;
esac
echo "go $*: newWorld has nothing built for this command" >&2
exit 2
`, bin, scaletest.AtOnce), 0o700)
	for _, name := range []string{"npx", "uvx"} {
		write(t, filepath.Join(bin, name), fmt.Sprintf("#!/bin/sh\n%s=1 exec %s\n", standIn, self), 0o700)
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
	w := &world{dir: dir, environment: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + t.TempDir(), scaletest.AtOnce}}
	for _, name := range []string{"TOKEN", "KEY", "SEARCH_TOKEN", "GITHUB_TOKEN"} {
		w.environment = append(w.environment, name+"=a-value-that-is-long")
	}
	remote := w.start(t, "everything streamableHttp -port 0")
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "json" && strings.Contains(b.text, `"calls": [`) {
				write(t, filepath.Join(dir, "calls.json"), b.text, 0o600)
			}
		}
	}
	write(t, filepath.Join(dir, "bridge.yaml"), "servers:\n  files: { stdio: { command: npx } }\n  search: { http: { url: \""+remote+"/mcp\" } }\n", 0o600)
	w.replace = strings.NewReplacer("https://tools.example.com", remote, "http://127.0.0.1:8808", w.start(t, "mcp-bridge run --listen 127.0.0.1:0 -- everything stdio"))
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

var served = regexp.MustCompile(`(?m)(http://127\.0\.0\.1:[1-9]\d*)/\S*(?:.|\n)*\n`)

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

// start runs a command that serves until it is interrupted, waits until it
// does, and returns its address. At the end of the test it must stop.
func (w *world) start(t *testing.T, line string) string {
	t.Helper()
	out := &said{where: make(chan string, 1)}
	cmd := w.command("exec env " + line)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil && !strings.HasPrefix(line, "everything") { // which has no orderly end
			t.Errorf("%s: %v, after\n%s", line, err, out)
		}
	})
	select {
	case where := <-out.where:
		return where
	case err := <-ended:
		ended <- err
		t.Fatalf("%s has ended (%v):\n%s", line, err, out)
	}
	return ""
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

// try runs a command. What serves is stopped once it does.
func (w *world) try(t *testing.T, line string) (stdout string) {
	t.Helper()
	if build, then, ok := strings.Cut(line, " && "); ok && serves.MatchString(then) {
		w.try(t, build)
		line = then
	}
	switch {
	case serves.MatchString(line):
		line = serves.ReplaceAllString(listens.ReplaceAllString(line, ""), "$0 --listen 127.0.0.1:0")
		w.start(t, w.replace.Replace(line))
		return ""
	case examples.MatchString(line):
		w.start(t, "everything "+examples.FindStringSubmatch(line)[1]+" -port 0")
		return ""
	}
	cmd := w.command(w.replace.Replace(line))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
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
	n, compared := 0, 0
	for _, p := range pages(t) {
		all := p.blocks()
		for i, b := range all {
			if b.language != "sh" {
				continue
			}
			var lines []string
			for _, line := range b.commands() {
				if !notRun.has(p.name, line) {
					lines = append(lines, line)
				}
			}
			n += len(lines)
			var want string
			if i+1 < len(all) && all[i+1].follows && (all[i+1].language == "text" || all[i+1].language == "json") && len(lines) > 0 {
				want = all[i+1].text
				compared++
			}
			t.Run(b.String(), func(t *testing.T) {
				t.Parallel()
				var got string
				for _, line := range lines {
					got = w.try(t, line)
				}
				if want != "" && !same(want, got) {
					t.Errorf("%s prints\n%s\nwant\n%s", lines[len(lines)-1], got, want)
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

// What docs/library.md shows is code that tests run.
func TestLibrary(t *testing.T) {
	var code strings.Builder
	for _, file := range []string{
		"bridge/server/example_test.go", "adapters/inprocess/example_test.go", "config/example_test.go",
		"examples/adapter/main.go",
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
