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

// theStarter is a variable of the package because what it stands for exists
// once per process: threads that are parents, and the process's own death.
var theStarter starter

// starter is where children are started and what dies with the bridge.
//
// Linux kills a child not when its parent process ends but when the thread
// that forked it does, and Go ends threads: when a goroutine returns that has
// locked itself to one. So all children are forked by one goroutine that keeps
// its thread for as long as a child lives. It runs the watchdog too, and both
// are there only while they are needed.
type starter struct {
	mu    sync.Mutex           // guards the following
	users int                  // starts under way and groups that live
	jobs  chan func(*watchdog) // nil without users
	ended chan struct{}        // closed when the goroutine that serves jobs has ended
}

// fork calls the function where children are to be forked. Each success must
// be followed by leave, when the group has ended.
func (n *starter) fork(f func() (pid int, err error)) (pid int, err error) {
	n.mu.Lock()
	if n.users == 0 {
		n.jobs, n.ended = make(chan func(*watchdog)), make(chan struct{})
		go serve(n.jobs, n.ended)
	}
	n.users++
	n.mu.Unlock()

	n.do(func(w *watchdog) {
		w.wake() // before the child, so that it is told of it at once
		if pid, err = f(); err == nil {
			w.add(pid)
		}
	})
	if err != nil {
		n.quit()
	}
	return pid, err
}

// leave says that a group has ended. When it was the last one, leave returns
// after the thread has been given back and the watchdog has been reaped.
func (n *starter) leave(pid int) {
	n.do(func(w *watchdog) { w.remove(pid) })
	n.quit()
}

// do runs f on the starter's thread. The caller is one of its users.
func (n *starter) do(f func(*watchdog)) {
	n.mu.Lock()
	jobs := n.jobs
	n.mu.Unlock()
	done := make(chan struct{})
	jobs <- func(w *watchdog) {
		defer close(done)
		f(w)
	}
	<-done
}

func (n *starter) quit() {
	n.mu.Lock()
	n.users--
	last, ended := n.users == 0, n.ended
	if last {
		close(n.jobs)
	}
	n.mu.Unlock()
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

// watchdogScript keeps the list of the groups that live, and kills what is on
// it when its stdin ends: then the bridge is dead. It uses nothing but what is
// built into a shell, and ignores the signals that a service manager sends to
// all processes of a service, or a terminal to those on it.
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

// watchdog is a small process that outlives the bridge by an instant. On
// SIGKILL of the bridge nobody else would end the groups: the kernel kills at
// most the leaders, and whoever ignores the end of its stdin lives on. It has
// a session of its own, so that no signal to a group or a terminal reaches it.
//
// Without a shell, as in an image that holds only the bridge, there is none.
// It learns of a group when the leader runs already: a bridge that is killed
// in that instant (microseconds) leaves what the leader has started in it.
// It belongs to the starter's goroutine.
type watchdog struct {
	groups map[int]bool // those that live
	proc   *os.Process  // nil when it does not run
	pipe   *os.File     // its stdin; nobody else must hold this end
}

func (w *watchdog) add(pgid int) {
	w.groups[pgid] = true
	w.tell(fmt.Sprintf("+ %d\n", pgid))
}

func (w *watchdog) remove(pgid int) {
	delete(w.groups, pgid)
	w.tell(fmt.Sprintf("- %d\n", pgid))
}

// tell writes to the watchdog. One that does not take it is replaced.
func (w *watchdog) tell(lines string) {
	if w.proc == nil {
		return
	}
	// It reads at once; a deadline because nothing here may hang on it.
	w.pipe.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := w.pipe.WriteString(lines); err != nil {
		w.end()
		w.wake()
	}
}

// wake starts the watchdog if it does not run. Failure means going on without.
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
		Dir:   "/", // keeps no disk busy
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

// end stops the watchdog without letting it do its work: it is killed before
// its stdin is closed.
func (w *watchdog) end() {
	if w.proc == nil {
		return
	}
	w.proc.Kill()
	w.proc.Wait()
	w.pipe.Close()
	w.proc, w.pipe = nil, nil
}
