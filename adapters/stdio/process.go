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

// How the bridge stops a child with all its processes.
//
// A server is seldom only one process: npx starts sh, which starts node. So every child leads a group
// of its own (a process group on Unix, a job on Windows). The bridge stops and awaits the whole group,
// and not only the leader:
//
//	start --> leader runs --> leader ended, reaped --> group empty
//	               |            closes Exited            closes gone
//	               |                                        ^
//	Stop:  close stdin, wait --> SIGTERM, wait --> SIGKILL -+
//
// If the bridge itself is killed, the operating system takes over. On Linux the kernel sends
// SIGKILL to the leader. On every Unix a watchdog kills the groups (watchdog_unix.go). On Windows
// the job does.
//
// One limit remains on Unix: a descendant that called setsid or setpgid, as a daemon does, has left
// the group on purpose. The bridge does not stop such a process.

const (
	// pollEvery is the pause between checks of a group whose leader has ended, since the operating
	// system announces only the end of the leader.
	pollEvery = 20 * time.Millisecond
	// lastWords is how long the output of the leader is read after its end.
	lastWords = 500 * time.Millisecond
	// unkillable is how long to wait after SIGKILL. A process that still runs then is stuck in the
	// kernel, as by a dead network disk, or runs as another user, as by sudo. Waiting longer would
	// only delay the end of the bridge.
	unkillable = 5 * time.Second
)

type command struct {
	path  string             // program; without a separator, it is looked up in the PATH of env, not of the bridge
	args  []string           // without the program's name
	dir   string             // working directory; empty means the bridge's own
	env   []string           // the whole environment of the child, as KEY=VALUE
	ended func(state string) // called when the leader has ended, right before Exited is closed; may be nil
}

// stopTimes bound the waits between the steps of Stop.
type stopTimes struct {
	stdin time.Duration // from closing stdin to SIGTERM
	term  time.Duration // from SIGTERM to SIGKILL
}

// process is a running child with all processes that it started. The caller of start must call
// Stop, even after the child has ended by itself, since only Stop closes the pipes and ends the rest of
// the group.
//
// All methods may be called concurrently.
type process struct {
	group                 *group
	stdin, stdout, stderr *os.File // the bridge's ends

	ended  func(state string) // as in command
	exited chan struct{}      // closed after the leader was reaped
	state  string             // how the leader ended; set before exited is closed
	gone   chan struct{}      // closed after the group was released

	mu     sync.Mutex // guards rung and killed
	rung   rung       // the last step of Stop
	killed time.Time  // when SIGKILL was sent first
}

// rung is a step of Stop.
type rung int

const (
	rungStdin rung = iota
	rungTerm
	rungKill
)

// start runs c. The error names the program and the fix.
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
			r, w = w, r // of stdin, the child has the end for reading
		}
		pipes, theirs = append(pipes, r), append(theirs, w)
	}

	g, err := spawn(path, c, theirs)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, hint(err))
	}
	return &process{
		group:  g,
		ended:  c.ended,
		stdin:  pipes[0],
		stdout: pipes[1],
		stderr: pipes[2],
		exited: make(chan struct{}),
		gone:   make(chan struct{}),
	}, nil
}

// Pid returns the leader's process id, for logs.
func (p *process) Pid() int { return p.group.pid }

// Exited returns a channel that is closed after the leader was reaped, while other processes of the
// group may still run.
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

// State returns how the leader ended, such as "exit status 3" or "signal: killed", or "running".
func (p *process) State() string {
	if p.hasExited() {
		return p.state
	}
	return "running"
}

// Stop ends the whole group in steps. It returns when the leader is reaped, the group is empty and
// all pipes are closed. Concurrent callers share the steps, and each waits for the end. When ctx
// ends, Stop goes on with SIGKILL at once.
//
// If a process survives SIGKILL for [unkillable], Stop gives up and returns.
func (p *process) Stop(ctx context.Context, s stopTimes) {
	p.stdin.Close()
	if !p.goneWithin(ctx, s.stdin) && ctx.Err() == nil {
		p.take(rungTerm)
	}
	if !p.goneWithin(ctx, s.term) {
		p.take(rungKill)
		// The bound is for a leader that cannot be reaped. On the rest of the group, watch gives up
		// earlier.
		p.goneWithin(context.Background(), 2*unkillable)
	}
	// A process that left the group may keep the other ends open for ever.
	p.stdout.Close()
	p.stderr.Close()
}

// goneWithin waits until the group is gone, d has passed or ctx ends. It reports whether the group
// is gone.
func (p *process) goneWithin(ctx context.Context, d time.Duration) bool {
	select {
	case <-p.gone:
		return true
	default: // a group that is gone counts even if d is 0 or ctx is done
	}
	select {
	case <-p.gone:
		return true
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// take signals the group, unless another caller did before: to many servers, a second SIGTERM means
// "at once".
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

// watch waits for the end of the leader, and then of its group. Only watch reaps the leader.
func (p *process) watch() {
	p.state = p.group.wait()
	if p.ended != nil {
		p.ended(p.state)
	}
	close(p.exited)
	// The leader's last lines may still be in the pipes. The readers must not wait for more from a
	// descendant that keeps the pipes open.
	for _, f := range []*os.File{p.stdout, p.stderr} {
		readFor(f, lastWords)
	}
	for !p.group.empty() && !p.survivesKill() {
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

// survivesKill reports whether the group has survived SIGKILL for unkillable. It repeats the signal for
// processes that have joined the group since.
func (p *process) survivesKill() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rung < rungKill {
		return false
	}
	p.group.kill()
	return time.Since(p.killed) > unkillable
}

// checkDir returns an error for an unusable directory. Without this check, a missing directory would
// have the same error as a missing program.
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

// from returns the absolute path of a name in the child's working directory.
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
