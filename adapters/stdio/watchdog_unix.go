//go:build unix

package stdio

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// theStarter is the starter of the whole process: its thread is the parent of all children, and
// there is one watchdog.
var theStarter starter

// starter forks the children and runs the watchdog.
//
// Linux kills a child when the thread that forked the child ends, and not when the process ends. Go
// ends a thread when a goroutine that is locked to the thread returns. So one goroutine forks all
// children, and keeps its thread while a child lives. The same goroutine runs the watchdog. The
// goroutine and the watchdog exist only while there are users.
type starter struct {
	mu    sync.Mutex           // guards the fields below
	users int                  // starts in flight, and live groups
	jobs  chan func(*watchdog) // what serve runs; nil without users
	ended chan struct{}        // closed when serve has ended
}

// fork calls f on the starter's thread. If f succeeds, the caller must call leave when the group has
// ended.
func (s *starter) fork(f func() (pid int, err error)) (pid int, err error) {
	s.mu.Lock()
	if s.users == 0 {
		s.jobs, s.ended = make(chan func(*watchdog)), make(chan struct{})
		go serve(s.jobs, s.ended)
	}
	s.users++
	s.mu.Unlock()

	s.do(func(w *watchdog) {
		w.wake() // runs before the child starts, so that the watchdog gets the child's group at once
		if pid, err = f(); err == nil {
			w.add(pid)
		}
	})
	if err != nil {
		s.quit()
	}
	return pid, err
}

// leave records that a group has ended. For the last group, leave returns after the thread is released
// and the watchdog is reaped.
func (s *starter) leave(pid int) {
	s.do(func(w *watchdog) { w.remove(pid) })
	s.quit()
}

// do runs f on the starter's thread. The caller is one of its users.
func (s *starter) do(f func(*watchdog)) {
	s.mu.Lock()
	jobs := s.jobs
	s.mu.Unlock()
	done := make(chan struct{})
	jobs <- func(w *watchdog) {
		defer close(done)
		f(w)
	}
	<-done
}

func (s *starter) quit() {
	s.mu.Lock()
	s.users--
	last, ended := s.users == 0, s.ended
	if last {
		close(s.jobs)
	}
	s.mu.Unlock()
	if last {
		<-ended
	}
}

func serve(jobs <-chan func(*watchdog), ended chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(ended)
	w := watchdog{groups: map[int]bool{}}
	for job := range jobs {
		job(&w)
	}
	w.end()
}

// watchdogScript keeps a list of the live groups, and kills them when its stdin ends, since the bridge
// is dead then. It uses only commands that are built into a shell. It ignores the signals that a
// service manager sends to all processes of a service, or a terminal to its processes.
const watchdogScript = `# ends what the MCP bridge started, should the bridge be killed
trap '' HUP INT QUIT TERM
live=' '
while read -r op group; do
	case $op in
	+) live="$live$group " ;;
	-) live="${live%% $group *} ${live#* $group }" ;;
	esac
done
for group in $live; do kill -s KILL -- "-$group"; done`

const shell = "/bin/sh"

// watchdog is a small process that outlives the bridge by an instant, and ends the groups after a
// SIGKILL of the bridge. Without the watchdog, the kernel would kill at most the leaders, and other
// processes that ignore the end of their stdin would go on. The watchdog has a session of its own, so
// that no signal to a group or a terminal reaches it.
//
// Without a shell, as in an image with only the bridge, there is no watchdog. The watchdog learns of a
// group only after the leader has started. If the bridge is killed within these microseconds, the
// processes that the leader has started stay. Only the starter's goroutine uses the watchdog.
type watchdog struct {
	groups map[int]bool // live groups
	proc   *os.Process  // nil if the watchdog does not run
	pipe   *os.File     // the bridge's end of the watchdog's stdin; no child may inherit it
}

func (w *watchdog) add(pgid int) {
	w.groups[pgid] = true
	w.tell(fmt.Sprintf("+ %d\n", pgid))
}

func (w *watchdog) remove(pgid int) {
	delete(w.groups, pgid)
	w.tell(fmt.Sprintf("- %d\n", pgid))
}

// tell writes to the watchdog. It replaces a watchdog that does not read.
func (w *watchdog) tell(lines string) {
	if w.proc == nil {
		return
	}
	// The watchdog reads at once. The deadline keeps a faulty watchdog from blocking the bridge.
	w.pipe.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := w.pipe.WriteString(lines); err != nil {
		w.end()
		w.wake()
	}
}

// wake starts the watchdog if it does not run. If that fails, there is no watchdog.
func (w *watchdog) wake() {
	if w.proc != nil {
		return
	}
	if _, err := os.Stat(shell); err != nil {
		return
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer null.Close()
	stdin, pipe, err := os.Pipe()
	if err != nil {
		return
	}
	defer stdin.Close()
	proc, err := os.StartProcess(shell, []string{"sh", "-c", watchdogScript}, &os.ProcAttr{
		Dir:   "/", // so that other file systems can be unmounted
		Env:   []string{},
		Files: []*os.File{stdin, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		pipe.Close()
		return
	}
	w.proc, w.pipe = proc, pipe

	var lines strings.Builder
	for pgid := range w.groups {
		fmt.Fprintf(&lines, "+ %d\n", pgid)
	}
	pipe.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := pipe.WriteString(lines.String()); err != nil {
		w.end()
	}
}

// end stops the watchdog. It kills the watchdog before it closes the watchdog's stdin, so that the
// watchdog kills no group.
func (w *watchdog) end() {
	if w.proc == nil {
		return
	}
	w.proc.Kill()
	w.proc.Wait()
	w.pipe.Close()
	w.proc, w.pipe = nil, nil
}
