package stdio

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/windows"

	jobs "github.com/mcp-bridge/bridge/internal/process"
)

// group is a job: a leader and the processes that the leader started.
type group struct {
	pid int

	mu     sync.Mutex     // guards leader and job, which release closes
	leader windows.Handle // 0 when closed
	job    *jobs.Job      // nil when closed
}

// spawn starts the program at path with the three files as its standard
// streams, as the first member of a new job.
func spawn(path string, c command, files []*os.File) (_ *group, err error) {
	members, err := jobs.New()
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: &syscall.SysProcAttr{
		// Suspended, so that the program starts no other before it is in the job.
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
		HideWindow:    true,
	}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, handle, err := syscall.StartProcess(path, append([]string{c.path}, c.args...), attr)
	runtime.KeepAlive(files)
	if err != nil {
		members.Close()
		return nil, os.NewSyscallError("CreateProcess", err)
	}
	g := &group{pid: pid, leader: windows.Handle(handle), job: members}
	if err := members.Run(pid); err != nil {
		windows.TerminateProcess(g.leader, 1)
		g.release()
		return nil, err
	}
	return g, nil
}

// wait returns how the leader ended, when it has ended. It blocks a thread.
func (g *group) wait() string {
	// This needs no lock: only the caller closes the handle, after wait has returned.
	if _, err := windows.WaitForSingleObject(g.leader, windows.INFINITE); err != nil {
		return "unknown: " + err.Error()
	}
	var code uint32
	if err := windows.GetExitCodeProcess(g.leader, &code); err != nil {
		return "unknown: " + err.Error()
	}
	if code >= 1<<16 { // an NTSTATUS, which people write in hexadecimal
		return "exit status 0x" + strconv.FormatUint(uint64(code), 16)
	}
	return "exit status " + strconv.FormatUint(uint64(code), 10)
}

// terminate sends an event to the leader's console group. Without a common console, it has no effect.
func (g *group) terminate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader != 0 { // while the handle is open, no other process has the id
		windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
	}
}

// kill ends all members.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != nil {
		_ = g.job.Kill()
	}
}

// empty reports whether no member is left.
func (g *group) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.job != nil && g.job.Empty()
}

// release closes the handles. Closing the job ends the members that are left.
func (g *group) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	windows.CloseHandle(g.leader)
	g.job.Close()
	g.leader, g.job = 0, nil
}

// hint returns what to do about a failed start, or "" if the error itself says enough.
func hint(err error) string {
	switch {
	case errors.Is(err, windows.ERROR_BAD_EXE_FORMAT):
		return ": it is not a program for this machine: run a script by its interpreter"
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return ": check the rights of the program and of cwd"
	case errors.Is(err, windows.ERROR_FILENAME_EXCED_RANGE):
		return ": args are too long"
	}
	return ""
}
