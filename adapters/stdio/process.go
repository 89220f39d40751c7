package stdio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// How a child is kept from leaking.
//
// A server is seldom one process: npx starts sh, which starts node. So every
// child leads a group of its own (a process group on Unix, a job on Windows),
// and it is the group that is stopped, waited for and accounted for, never the
// leader alone:
//
//	start --> leader runs --> leader ended, reaped --> group empty
//	               |            closes Exited            closes gone
//	               |                                        ^
//	Stop:  close stdin, wait --> SIGTERM, wait --> SIGKILL -+
//
// If the bridge itself is killed, the operating system takes over: on Linux
// the leader gets SIGKILL from the kernel, on every Unix a watchdog kills the
// groups (watchdog_unix.go), on Windows the job does.
//
// One limit remains on Unix: a descendant that called setsid or setpgid has
// left the group on purpose, as a daemon does. It is not followed.

const (
	// pollEvery is how often a group without its leader is looked at. Only the
	// leader's end is announced by the operating system.
	pollEvery = 20 * time.Millisecond
	// lastWords is how long what the leader has said is read after its end.
	lastWords = 500 * time.Millisecond
	// unkillable is how long to wait after SIGKILL. Who is still there then is
	// stuck in the kernel (a dead network disk) or runs as another user (sudo):
	// waiting longer helps nobody and would keep the bridge from ending.
	unkillable = 5 * time.Second
)

type command struct {
	path string             // program; looked up in the PATH of env, not of the bridge, when it has no separator
	args []string           // without the program's name
	dir  string             // working directory; empty means the bridge's own
	env  []string           // the whole environment of the child, KEY=VALUE
	dead func(state string) // called when the leader has ended, right before Exited is closed; may be nil
}

// stopTimes are the waits of the stop ladder.
type stopTimes struct {
	stdin time.Duration // from closing stdin to SIGTERM
	term  time.Duration // from SIGTERM to SIGKILL
}

// process is a running child together with everything that it started. Whoever
// started it must call Stop, also after it has ended by itself: only Stop
// closes the pipes and ends what the leader left behind.
//
// All methods may be called concurrently.
type process struct {
	group                 *group
	stdin, stdout, stderr *os.File // our ends

	dead   func(state string) // called before Exited is closed
	exited chan struct{}      // closed when the leader has been reaped
	state  string             // how the leader ended; set before exited is closed
	gone   chan struct{}      // closed when the group is empty and nothing of it is held any more

	mu     sync.Mutex // guards rung, killed
	rung   rung       // the highest that was taken
	killed time.Time  // when SIGKILL was sent
}

// rung is a step of the stop ladder.
type rung int

const (
	rungStdin rung = iota
	rungTerm
	rungKill
)

// start runs c. The error names the program and says what to do about it.
func start(c command) (*process, error) {
	p, err := launch(c)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", c.path, err)
	}
	go p.watch()
	return p, nil
}

func launch(c command) (_ *process, err error) {
	if err := checkDir(c.dir); err != nil {
		return nil, err
	}
	path, err := lookPath(c.path, c.env, c.dir)
	if err != nil {
		return nil, err
	}

	var pipes, theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(pipes)
		}
	}()
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, hint(err))
		}
		if i == 0 {
			r, w = w, r // the child reads its stdin and writes the others
		}
		pipes, theirs = append(pipes, r), append(theirs, w)
	}

	g, err := spawn(path, c, theirs)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, hint(err))
	}
	return &process{
		group:  g,
		dead:   c.dead,
		stdin:  pipes[0],
		stdout: pipes[1],
		stderr: pipes[2],
		exited: make(chan struct{}),
		gone:   make(chan struct{}),
	}, nil
}

// Pid is the leader's process id, for logs.
func (p *process) Pid() int { return p.group.pid }

// Exited is closed when the leader has ended and has been reaped. What it
// started may still run.
func (p *process) Exited() <-chan struct{} { return p.exited }

// hasExited reports whether the leader has ended.
func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// State says how the leader ended, such as "exit status 3" or "signal:
// killed", or that it has not.
func (p *process) State() string {
	if p.hasExited() {
		return p.state
	}
	return "running"
}

// Stop ends the whole group in steps and returns when the leader is reaped, no
// member of the group is left and all pipes are closed. A step is taken only
// once, however many callers there are, and every caller waits for the end.
// When ctx is done the rest of the ladder is skipped up to SIGKILL.
//
// What survives SIGKILL for [unkillable] is given up on, so that Stop returns
// in any case.
func (p *process) Stop(ctx context.Context, t stopTimes) {
	p.stdin.Close()
	if !p.goneWithin(ctx, t.stdin) && ctx.Err() == nil {
		p.take(rungTerm)
	}
	if !p.goneWithin(ctx, t.term) {
		p.take(rungKill)
		// Twice the time: the watcher gives up on the group first, this is for
		// the leader that cannot be reaped.
		p.goneWithin(context.Background(), 2*unkillable)
	}
	// A process that left the group may hold the other ends for ever.
	p.stdout.Close()
	p.stderr.Close()
}

// goneWithin reports whether the group ended in time and before ctx did.
func (p *process) goneWithin(ctx context.Context, d time.Duration) bool {
	select {
	case <-p.gone:
		return true
	default: // also when d is 0 or ctx is done already
	}
	select {
	case <-p.gone:
		return true
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// take signals the group, unless another caller has come this far already: a
// second SIGTERM means "at once" to many servers.
func (p *process) take(r rung) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r <= p.rung {
		return
	}
	p.rung = r
	switch r {
	case rungTerm:
		p.group.terminate()
	case rungKill:
		p.killed = time.Now()
		p.group.kill()
	}
}

// watch owns the process until nothing of it is left: it alone reaps.
func (p *process) watch() {
	p.state = p.group.wait()
	if p.dead != nil {
		p.dead(p.state)
	}
	close(p.exited)
	// The leader's last lines may still be in the pipes. A descendant that
	// holds them open must not keep their readers waiting for more.
	for _, f := range []*os.File{p.stdout, p.stderr} {
		readFor(f, lastWords)
	}
	for !p.group.empty() && !p.hopeless() {
		time.Sleep(pollEvery)
	}
	p.group.release()
	close(p.gone)
}

// readFor ends the reading of a pipe after d at the latest.
func readFor(f *os.File, d time.Duration) {
	if err := f.SetReadDeadline(time.Now().Add(d)); errors.Is(err, os.ErrNoDeadline) {
		time.AfterFunc(d, func() { f.Close() }) // as on Windows
	}
}

// hopeless reports whether the group has survived SIGKILL. Until then it sends
// the signal again: whoever joined the group meanwhile has not got it.
func (p *process) hopeless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rung < rungKill {
		return false
	}
	p.group.kill()
	return time.Since(p.killed) > unkillable
}

// checkDir exists because a missing directory is otherwise reported by the
// same error as a missing program.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("working directory %q does not exist: create it or correct cwd: %w", dir, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("working directory %q is not a directory: correct cwd", dir)
	}
	return nil
}

// from resolves a name as the child would in its working directory.
func from(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	return filepath.Abs(name)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
