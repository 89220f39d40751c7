package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func init() {
	children["process 1"] = processOne
	children["careless process 1"] = carelessProcessOne
	children["stops a leaver"] = stopsLeaver
}

// leaksNothing compares file descriptors, children and goroutines at the
// test's end with those at the call.
func leaksNothing(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	percent := debug.SetGCPercent(-1) // it would close what was forgotten
	// The runtime keeps its poller's descriptors once it has them.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	fds, before := openFds(t), childPids(t)
	t.Cleanup(func() {
		defer debug.SetGCPercent(percent)
		eventually(t, "descriptors are back to where they were", func() bool { return openFds(t) <= fds })
		if after := childPids(t); after != before {
			t.Errorf("children = %q, want %q", after, before)
		}
		goleak.VerifyNone(t, ignore)
	})
}

func openFds(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func threads(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// childPids are the children of all our threads, zombies too.
func childPids(t testing.TB) string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var pids string
	for _, e := range entries {
		// The thread may have ended meanwhile; its children are another's now.
		text, err := os.ReadFile("/proc/self/task/" + e.Name() + "/children")
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Skip("this kernel does not list children")
		}
		pids += string(text)
	}
	return pids
}

// watched is some process, held so that its end can be waited for.
type watched struct{ pid, fd int }

func hold(t testing.TB, pid int) watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd_open(%d): %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return watched{pid, fd}
}

// poll waits for the end, for so many milliseconds or, if that is negative, for as long as it takes.
func (w watched) poll(milliseconds int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, milliseconds)
		if err != unix.EINTR {
			return n == 1
		}
	}
}

func (w watched) ended() bool { return w.poll(0) }
func (w watched) wait()       { w.poll(-1) }

// kill ends a process that should have ended before.
func (w watched) kill() {
	unix.Kill(w.pid, unix.SIGKILL)
	w.wait()
}

func sh(script string, more ...string) command {
	return command{path: "sh", args: append([]string{"-c", script, "sh"}, more...), env: os.Environ()}
}

var brief = stopTimes{stdin: 50 * time.Millisecond, term: 50 * time.Millisecond}

// Stop ends the whole group: a grandchild behind sh -c, as npx has it, and what holds the pipes when its leader has ended.
// Where there are no pidfds, waiting takes a thread but works all the same.
func TestStopEndsTheGroup(t *testing.T) {
	grandchild := sh(`"$1" & wait`, os.Args[0])
	grandchild.env = childEnv("stubborn")
	for _, c := range []struct {
		name    string
		command command
		leaves  bool // the leader ends first
		pidfd   bool
	}{
		{"a grandchild", grandchild, false, true},
		{"what the leader left", self(t, "leaves"), true, true},
		{"what the leader left, without pidfds", self(t, "leaves"), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaksNothing(t)
			p, err := launch(c.command)
			if err != nil {
				t.Fatal(err)
			}
			if !c.pidfd {
				p.group.leader.Close()
				p.group.leader = nil
			}
			go p.watch()
			left := hold(t, readPid(t, p.stdout))
			if c.leaves {
				<-p.Exited()
				if got, want := p.State(), "exit status 0"; got != want {
					t.Errorf("State() = %q, want %q", got, want)
				}
				if left.ended() {
					t.Fatal("the test needs a process that outlives its parent")
				}
			}
			p.Stop(t.Context(), brief)
			if !left.ended() {
				t.Error("a process of the group lives when Stop has returned")
				left.kill()
			}
		})
	}
}

// Without the gentle steps nobody of the group would need them: the leader
// ends with its stdin, and what it left with SIGTERM.
func TestStopIsGentleWithWhatTheLeaderLeft(t *testing.T) {
	leaksNothing(t)
	c := sh(`"$1" & echo ready; read -r _`, os.Args[0])
	c.env = childEnv("polite")
	p := mustStart(t, c)
	out := bufio.NewReader(p.stdout)
	for ready := 0; ready < 2; ready++ { // both say something, in either order
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	go p.Stop(t.Context(), patient)
	<-p.Exited() // the leader has ended: the next step need not wait
	p.Stop(t.Context(), stopTimes{stdin: 0, term: time.Hour})
	if got, want := p.State(), "exit status 1"; got != want { // what read returns at the end of a file
		t.Errorf("State() = %q, want %q", got, want)
	}
}

// A process that has left the group keeps its freedom, but must not make Stop
// or a reader of the pipes hang.
func TestStopDoesNotWaitForWhoLeftTheGroup(t *testing.T) {
	leaksNothing(t)
	c := sh(`setsid "$1" & wait`, os.Args[0])
	c.env = childEnv("stubborn")
	p := mustStart(t, c)
	daemon := hold(t, readPid(t, p.stdout))
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, p.stdout)
		read <- err
	}()
	p.Stop(t.Context(), brief)
	if err := <-read; err == nil {
		t.Error("the reader saw the end of a pipe that is held open: this tests nothing")
	}
	daemon.kill()
}

func TestManyChildren(t *testing.T) {
	leaksNothing(t)
	var all sync.WaitGroup
	for i := range scaletest.Of(60, 200) {
		all.Go(func() {
			c := sh("exec cat")
			if i%4 == 0 {
				c = sh("sleep 1000 & exec cat") // leaves one behind that needs SIGTERM
			}
			p, err := start(c)
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintln(p.stdin, i)
			line, err := bufio.NewReader(p.stdout).ReadString('\n')
			if line != fmt.Sprintln(i) {
				t.Errorf("child %d said %q, %v", i, line, err)
			}
			if i%10 == 1 {
				p.Stop(done(), patient)
			}
			p.Stop(context.Background(), stopTimes{stdin: 100 * time.Millisecond, term: time.Hour})
		})
	}
	all.Wait()
}

func TestIdleChildrenHoldNoThreads(t *testing.T) {
	leaksNothing(t)
	before := threads(t)
	for range 50 {
		mustStart(t, sh("exec cat"))
	}
	if more := threads(t) - before; more > 10+runtime.GOMAXPROCS(0) {
		t.Errorf("50 idle children need %d threads", more)
	}
}

func TestFailedStartLeaksNothing(t *testing.T) {
	nowhere := t.TempDir() + "/nowhere"
	leaksNothing(t)
	for range 20 {
		for _, c := range []command{
			{path: "/proc/self/cmdline"},                  // not executable
			{path: "sh", env: os.Environ(), dir: nowhere}, // before the pipes
			{path: os.Args[0], args: []string{"\x00"}},    // after them, in fork
		} {
			if _, err := start(c); err == nil {
				t.Fatalf("start(%v) succeeded", c)
			}
		}
	}
}

func TestStartWithoutDescriptorsLeft(t *testing.T) {
	leaksNothing(t)
	keep := mustStart(t, sh("exec cat")) // a bridge that runs already
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	used := openFds(t)
	failed := false
	for spare := range uint64(16) {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(used) + spare, Max: limit.Max})
		p, err := start(sh("exec cat"))
		if err == nil {
			p.Stop(t.Context(), patient)
			continue
		}
		failed = true
		if !bridge.Exhausted(err) { // or the server's circuit breaker would count it
			t.Errorf("start with %d spare descriptors: %v, want one for which Exhausted is true", spare, err)
		}
	}
	unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	if !failed {
		t.Error("no start failed: this tests nothing")
	}
	keep.Stop(t.Context(), patient)
}

func TestChildInheritsOnlyItsStandardStreams(t *testing.T) {
	leaksNothing(t)
	// Open descriptors of the parent process do not count.
	for fd := 3; fd < 1024; fd++ {
		unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	}
	mustStart(t, sh("exec cat"))
	p := mustStart(t, sh("exec ls -l /proc/self/fd"))
	list, err := io.ReadAll(p.stdout)
	if err != nil {
		t.Fatal(err)
	}
	// The fourth is the folder that ls itself reads.
	if n := strings.Count(string(list), " -> "); n != 4 || strings.Count(string(list), "pipe:") != 3 {
		t.Errorf("descriptors of a child:\n%s", list)
	}
}

// The kernel's signal upon the parent's death is tied to the thread that
// forked, and Go ends threads.
func TestChildSurvivesTheCallersThread(t *testing.T) {
	leaksNothing(t)
	var p *process
	var tid int
	var caller func(ended chan<- struct{})
	caller = func(ended chan<- struct{}) {
		runtime.LockOSThread()
		if tid = unix.Gettid(); tid == os.Getpid() {
			go caller(ended) // on another thread: the first one of a process never ends
			<-t.Context().Done()
			runtime.UnlockOSThread()
			return
		}
		var err error
		if p, err = start(sh("exec cat")); err != nil {
			t.Error(err)
		}
		close(ended) // and, still locked, the thread with the goroutine
	}
	ended := make(chan struct{})
	go caller(ended)
	if <-ended; p == nil {
		return
	}
	eventually(t, "the thread has ended", func() bool { return unix.Tgkill(os.Getpid(), tid, 0) != nil })
	defer p.Stop(t.Context(), patient)
	fmt.Fprintln(p.stdin, "hello")
	if line, err := bufio.NewReader(p.stdout).ReadString('\n'); err != nil {
		t.Errorf("read %q, %v: %s", line, err, p.State())
	}
}

// The script is run by whatever shell a machine has.
func TestWatchdogScript(t *testing.T) {
	for _, shell := range [][]string{{"/bin/sh"}, {"dash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"ksh"}} {
		t.Run(shell[0], func(t *testing.T) {
			path, err := exec.LookPath(shell[0])
			if err != nil {
				t.Skip(err)
			}
			leaksNothing(t)
			groups := make([]*process, 4)
			lives := make([]watched, len(groups))
			for i := range groups {
				groups[i] = mustStart(t, sh("exec cat"))
				lives[i] = hold(t, groups[i].Pid())
			}
			dog := exec.Command(path, append(shell[1:], "-c", watchdogScript)...)
			dog.Env = []string{}
			dog.Stderr = os.Stderr
			dog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			in, err := dog.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := dog.Start(); err != nil {
				t.Fatal(err)
			}
			for _, p := range groups {
				fmt.Fprintf(in, "+ %d\n", p.Pid())
			}
			fmt.Fprintf(in, "- %d\n", groups[1].Pid())
			fmt.Fprintf(in, "- %d\n", groups[3].Pid())
			fmt.Fprintf(in, "+ %d\n", groups[3].Pid())
			in.Close()
			dog.Wait()
			lives[0].wait()
			lives[2].wait()
			lives[3].wait()
			if lives[1].ended() {
				t.Error("killed a group that was taken off the list")
			}
		})
	}
}

func TestWatchdogIsToldOfAllGroups(t *testing.T) {
	leaksNothing(t)
	keep := mustStart(t, sh("exec cat"))
	r, tap, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var pipe *os.File
	theStarter.do(func(w *watchdog) { pipe, w.pipe = w.pipe, tap })
	p := mustStart(t, sh("exec cat"))
	p.Stop(t.Context(), patient)
	theStarter.do(func(w *watchdog) { w.pipe = pipe })
	tap.Close()
	told, err := io.ReadAll(r)
	if want := fmt.Sprintf("+ %[1]d\n- %[1]d\n", p.Pid()); string(told) != want || err != nil {
		t.Errorf("the watchdog was told %q, %v, want %q", told, err, want)
	}
	keep.Stop(t.Context(), patient)
}

func TestWatchdogIsReplaced(t *testing.T) {
	leaksNothing(t)
	first := mustStart(t, sh("exec cat"))
	pid := func() (pid int) {
		theStarter.do(func(w *watchdog) { pid = w.proc.Pid })
		return pid
	}
	old := hold(t, pid())
	// It lives through what a service manager sends to all.
	unix.Kill(old.pid, unix.SIGTERM)
	old.kill()
	second := mustStart(t, sh("exec cat"))
	if pid() == old.pid {
		t.Fatal("the watchdog was not replaced")
	}
	// The new one knows both: its stdin ends as if the bridge were dead.
	theStarter.do(func(w *watchdog) {
		w.pipe.Close()
		w.proc.Wait()
		w.proc, w.pipe = nil, nil
	})
	for _, p := range []*process{first, second} {
		<-p.Exited()
		if got, want := p.State(), "signal: killed"; got != want {
			t.Errorf("State() = %q, want %q", got, want)
		}
	}
}

func TestWatchdogIgnoresSIGTERM(t *testing.T) {
	leaksNothing(t)
	p := mustStart(t, sh("exec cat"))
	var dog watched
	theStarter.do(func(w *watchdog) { dog = hold(t, w.proc.Pid) })
	eventually(t, "the shell has set its traps", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", dog.pid))
		if err != nil {
			t.Fatal(err)
		}
		_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
		var ignored uint64
		fmt.Sscanf(mask, "%x", &ignored)
		return ignored&(1<<(unix.SIGTERM-1)) != 0
	})
	if sid, err := unix.Getsid(dog.pid); err != nil || sid != dog.pid {
		t.Errorf("session of the watchdog %d = %d, %v, want one of its own", dog.pid, sid, err)
	}
	p.Stop(t.Context(), patient)
	if !dog.ended() {
		t.Error("the watchdog lives without anybody to watch over")
	}
}

// In a container the bridge may be process 1, and gets the orphans as children.
func TestProcessOneReaps(t *testing.T) {
	run(t, "process 1")
}

func processOne() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return
	}
	stopsLeaver()
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		fmt.Printf("a child is left: %d, %v\n", pid, err)
	}
}

// It may also be a process that never reaps.
func TestZombiesOfOthersDoNotDelayStop(t *testing.T) {
	run(t, "careless process 1")
}

func carelessProcessOne() {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
		return
	}
	c := exec.Command(os.Args[0])
	c.Env = childEnv("stops a leaver")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Println(err)
	}
	if pid, err := unix.Wait4(-1, nil, 0, nil); err != nil {
		fmt.Printf("wait4 = %d, %v, want the zombie that was left to us\n", pid, err)
	}
}

// stopsLeaver is a bridge that stops a child whose leader exits first, and whose
// other process was killed. Stop returns only if it does not wait for the
// zombie. It is silent unless something is wrong.
func stopsLeaver() {
	p, err := start(command{path: os.Args[0], env: childEnv("leaves")})
	if err != nil {
		fmt.Println(err)
		return
	}
	var pid int
	if _, err := fmt.Fscanf(p.stdout, "pid %d\n", &pid); err != nil {
		fmt.Println(err)
	}
	<-p.Exited()
	unix.Kill(pid, unix.SIGKILL)
	p.Stop(context.Background(), patient)
}

// run fails the test with what the child prints.
func run(t *testing.T, mode string) {
	t.Helper()
	leaksNothing(t)
	c := self(t, mode)
	cmd := exec.Command(c.path)
	cmd.Env = c.env
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", mode, err, out)
	}
}

// A child is over when it has ended, also while a descendant of it keeps on
// talking.
func TestTalkativeGrandchild(t *testing.T) {
	quiet(t)
	a := New("fake", Config{Command: "/bin/sh", StopStdin: hasty, StopTerm: hasty, Args: []string{"-c", `
		read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
		read -r line; read -r line
		(while :; do echo noise; sleep 0.02; done) &
		exit 3`}}, conn.Options{Log: slog.New(slog.DiscardHandler)})
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, a, rest)
	if o := call(t, up, `{}`); o.Err == nil || !strings.Contains(o.Err.Error(), "its process has ended (exit status 3)") {
		t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
	}
	rest.WaitGone(t)
}

// A child that has not read the question is starting, however long that takes:
// it gets no initialize, and is not ended.
func TestColdStart(t *testing.T) {
	quiet(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	var a *Adapter
	var journal func() string
	looked, waited := 0, make(chan struct{})
	log := slog.New(seen{"has not read", func() {
		if looked++; looked == silenceChecks+1 {
			a.silence = time.Hour // it may be slow when it has read
			close(waited)
		}
	}})
	a, journal = scripted(t, conn.Options{Log: log}, part{Hold: gate, Discover: isModern, Initialize: tooOld})
	a.silence = 100 * time.Millisecond
	var era string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		era, err = opened(t, a, adaptertest.ModernCaller())
	}()
	<-waited
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	<-done
	if era != "modern" || err != nil {
		t.Errorf("the connection is %q, %v", era, err)
	}
	if got := journal(); got != asModern {
		t.Errorf("the server has received %q", got)
	}
}
