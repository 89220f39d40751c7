package stdio

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable makes the test binary one of the children when it is set.
const (
	childVariable = "BRIDGE_TEST_CHILD"
	depthVariable = "BRIDGE_TEST_DEPTH"
)

// children are what the test binary can be when it is started again.
var children = map[string]func(){
	"echo":     func() { io.Copy(os.Stdout, os.Stdin) },
	"fails":    func() { fmt.Fprint(os.Stderr, "starting\nset FOO_KEY\n"); os.Exit(3) },
	"polite":   polite,
	"stubborn": stubborn,
	"leaves":   leaves,
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVariable); mode != "" {
		// A child that by mistake starts itself must not fill the machine.
		if strings.Count(os.Getenv(depthVariable), "I") > 4 {
			fmt.Fprintf(os.Stderr, "child %q is nested too deeply\n", mode)
			os.Exit(2)
		}
		child, ok := children[mode]
		if !ok {
			fmt.Fprintf(os.Stderr, "there is no child %q\n", mode)
			os.Exit(2)
		}
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// polite ends on the first SIGTERM only, and says how many it got.
func polite() {
	terms := make(chan os.Signal, 10)
	signal.Notify(terms, syscall.SIGTERM)
	fmt.Printf("pid %d\n", os.Getpid())
	<-terms
	fmt.Println("term")
	// A second signal would come while this is read; it ends with the test's pipe.
	time.AfterFunc(100*time.Millisecond, func() { os.Exit(7) })
	for range terms {
		fmt.Println("term")
	}
}

// stubborn ends neither with its stdin nor on SIGTERM.
func stubborn() {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	fmt.Printf("pid %d\n", os.Getpid())
	if os.Getenv(readyVariable) != "" {
		_ = os.NewFile(3, "ready").Close()
	}
	for range terms {
	}
}

// readyVariable is in the environment of a child that closes its descriptor 3 when it has
// printed its pid.
const readyVariable = "BRIDGE_TEST_READY"

// leaves starts a stubborn process in its group and ends when that has printed its pid:
// what is printed later may be lost.
func leaves() {
	ready, printed, err := os.Pipe()
	if err == nil {
		c := exec.Command(os.Args[0])
		c.Env = append(childEnv("stubborn"), readyVariable+"=3")
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.ExtraFiles = []*os.File{printed}
		err = c.Start()
		_ = printed.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, ready)
}

// childEnv is the environment that makes the test binary the child of that name.
func childEnv(mode string) []string {
	env := slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return name == childVariable || name == depthVariable || name == "GORACE"
	})
	return append(env, childVariable+"="+mode, depthVariable+"="+os.Getenv(depthVariable)+"I",
		"GORACE=atexit_sleep_ms=0") // the race detector's children would take a second to end
}

// self is the test binary as a child.
func self(t testing.TB, mode string) command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return command{path: path, env: childEnv(mode)}
}

func mustStart(t testing.TB, c command) *process {
	t.Helper()
	p, err := start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(done(), stopTimes{}) })
	return p
}

// done is a context that has ended.
func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// readPid reads what the children above say first.
func readPid(t testing.TB, r io.Reader) (pid int) {
	t.Helper()
	if _, err := fmt.Fscanf(r, "pid %d\n", &pid); err != nil {
		t.Fatalf("no pid from the child: %v", err)
	}
	return pid
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	for !so() {
		time.Sleep(5 * time.Millisecond)
	}
}

// patient is a ladder that a test never gets to the next step of.
var patient = stopTimes{stdin: time.Hour, term: time.Hour}

func TestChildTalksAndEndsWithItsStdin(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := mustStart(t, self(t, "echo"))
	if got := p.State(); got != "running" {
		t.Errorf("State() = %q, want %q", got, "running")
	}
	fmt.Fprintln(p.stdin, "hello")
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if line != "hello\n" || err != nil {
		t.Errorf("read %q, %v, want %q", line, err, "hello\n")
	}
	p.Stop(t.Context(), patient)
	<-p.Exited()
	if got, want := p.State(), "exit status 0"; got != want {
		t.Errorf("State() = %q, want %q", got, want)
	}
	if _, err := p.stdout.Read(make([]byte, 1)); err == nil {
		t.Error("stdout is still open after Stop")
	}
}

// A child that ignores the end of its stdin and SIGTERM.
func TestStopKillsWhoIgnoresTheRest(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := mustStart(t, self(t, "stubborn"))
	readPid(t, p.stdout)
	began := time.Now()
	p.Stop(t.Context(), stopTimes{stdin: 50 * time.Millisecond, term: 70 * time.Millisecond})
	if took := time.Since(began); took < 120*time.Millisecond {
		t.Errorf("Stop took %v: a step was skipped", took)
	}
	if got, want := p.State(), "signal: killed"; got != want && runtime.GOOS != "windows" {
		t.Errorf("State() = %q, want %q", got, want)
	}
}

func TestStopTakesEachStepOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	defer goleak.VerifyNone(t)
	p := mustStart(t, self(t, "polite"))
	readPid(t, p.stdout)
	var said []byte
	var all sync.WaitGroup
	all.Go(func() { said, _ = io.ReadAll(p.stdout) })
	for i := range 20 {
		all.Go(func() {
			p.Stop(t.Context(), stopTimes{stdin: time.Duration(i) * time.Millisecond, term: time.Hour})
			select {
			case <-p.Exited():
			default:
				t.Error("Stop returned before the end")
			}
		})
	}
	all.Wait()
	if got, want := p.State(), "exit status 7"; got != want {
		t.Errorf("State() = %q, want %q", got, want)
	}
	if got := strings.Count(string(said), "term"); got != 1 {
		t.Errorf("%d SIGTERMs for 20 callers, want 1", got)
	}
}

func TestStopIsCutShortByItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := mustStart(t, self(t, "stubborn"))
	readPid(t, p.stdout)

	first := make(chan struct{})
	go func() { // has no reason to hurry, and waits for what the other does
		defer close(first)
		p.Stop(context.Background(), patient)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	p.Stop(ctx, patient)
	<-first
}

func TestStartSaysWhatToDo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and #! lines")
	}
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "text", 0o644)
	noLine := write("noline", "text", 0o755)
	orphan := write("orphan", "#!/nowhere/python\n", 0o755)
	path := []string{"PATH=" + dir}

	for _, c := range []struct {
		name string
		command
		want string
	}{
		{"not in PATH", command{path: "npx", env: path}, `start "npx": executable file not found in $PATH: install the program`},
		{"no PATH", command{path: "sh"}, "or set PATH in env"},
		{"not executable in PATH", command{path: "plain", env: path}, "plain is not executable: make it so"},
		{"does not exist", command{path: "./npx", dir: dir}, "/npx does not exist: correct command"},
		{"not executable", command{path: plain}, "is not executable: make it so (chmod +x)"},
		{"directory", command{path: dir}, "is a directory: name the program in it"},
		{"not a program", command{path: noLine}, "run it by its interpreter"},
		{"no interpreter", command{path: "orphan", env: path}, "the interpreter that its first line names"},
		{"no such cwd", command{path: "sh", dir: dir + "/none"}, "does not exist: create it or correct cwd"},
		{"cwd is a file", command{path: "sh", dir: plain}, "is not a directory: correct cwd"},
		{"NUL", command{path: orphan, args: []string{"a\x00b"}}, "must not hold a NUL character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := start(c.command)
			if err == nil {
				p.Stop(done(), stopTimes{})
				t.Fatalf("start succeeded, want an error with %q", c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v\nwant it to say %q", err, c.want)
			}
		})
	}
}
