package integration

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// dieWithParent makes a child end with the test binary, also when a timeout of
// go test kills that without a chance to clean up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// A family is every process that was ever seen among the descendants of one.
// An orphan is handed to init, so who descended from whom must be noted while
// the parents live: a goroutine looks again and again.
type family struct {
	root int

	mu   sync.Mutex       // guards seen
	seen map[int]procStat // by process id
}

// watched are the families that live. One goroutine looks for all of them: a
// list of all processes takes milliseconds.
var watched struct {
	mu       sync.Mutex // guards what follows
	families map[*family]bool
	stop     chan struct{} // ends the goroutine, which runs while there are families
	stopped  chan struct{}
}

// procStat is what /proc tells of a process. A process is known by its id and
// its time of start, since ids are used again.
type procStat struct {
	pid, parent int
	state       byte
	start       string
	name        string
}

func watch(pid int) *family {
	f := &family{root: pid, seen: map[int]procStat{}}
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if len(watched.families) == 0 {
		watched.families = map[*family]bool{}
		watched.stop, watched.stopped = make(chan struct{}), make(chan struct{})
		go lookAtAll(watched.stop, watched.stopped)
	}
	watched.families[f] = true
	return f
}

// lookAtAll looks at all families until it is to stop.
func lookAtAll(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		children := byParent(processes())
		watched.mu.Lock()
		all := slices.Collect(maps.Keys(watched.families))
		watched.mu.Unlock()
		for _, f := range all {
			f.note(children)
		}
	}
}

func (f *family) close() {
	watched.mu.Lock()
	delete(watched.families, f)
	stopped := watched.stopped
	last := len(watched.families) == 0
	if last {
		close(watched.stop)
	}
	watched.mu.Unlock()
	if last {
		<-stopped
	}
}

// look notes and returns the living descendants.
func (f *family) look() []string { return f.note(byParent(processes())) }

func byParent(all map[int]procStat) map[int][]procStat {
	children := map[int][]procStat{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	return children
}

// note notes and returns the living descendants, by what each process has for children.
func (f *family) note(children map[int][]procStat) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	queue := []int{f.root}
	for len(queue) > 0 {
		for _, p := range children[queue[0]] {
			f.seen[p.pid] = p
			names = append(names, p.String())
			queue = append(queue, p.pid)
		}
		queue = queue[1:]
	}
	return names
}

// ever looks and returns all who were ever seen.
func (f *family) ever() []string {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, p := range f.seen {
		names = append(names, p.String())
	}
	return names
}

// left returns those of the family that still live.
func (f *family) left() []string {
	all := processes()
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for pid, was := range f.seen {
		if is, ok := all[pid]; ok && is.start == was.start {
			names = append(names, is.String())
		}
	}
	return names
}

func (p procStat) String() string {
	return fmt.Sprintf("%d (%s) state %c, parent %d", p.pid, p.name, p.state, p.parent)
}

// processes lists the living; zombies only wait for a parent to notice.
func processes() map[int]procStat {
	all := map[int]procStat{}
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		// The name is in parentheses and may hold anything, parentheses too.
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text[end+1:]))
		parent, _ := strconv.Atoi(fields[1])
		p := procStat{pid: pid, parent: parent, state: fields[0][0], start: fields[19], name: string(text[open+1 : end])}
		if p.state != 'Z' && p.state != 'X' {
			all[pid] = p
		}
	}
	return all
}

// descriptors counts the open files of a process.
func descriptors(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(entries)
}
