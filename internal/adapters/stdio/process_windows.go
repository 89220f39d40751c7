package stdio

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is a leader and what it started: a job. Nobody can leave it, and when
// the bridge dies its handle is closed and Windows ends all members.
type group struct {
	pid int

	mu     sync.Mutex     // guards the handles, which release closes
	leader windows.Handle // 0 when closed
	job    windows.Handle // 0 when closed
}

// spawn starts the program at path with the three files as its standard
// streams, as the first member of a new job.
func spawn(path string, c command, files []*os.File) (_ *group, err error) {
	job, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	attr := &syscall.ProcAttr{Dir: c.dir, Env: c.env, Sys: &syscall.SysProcAttr{
		// Suspended, so that it starts nothing before it is in the job.
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
		HideWindow:    true,
	}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, handle, err := syscall.StartProcess(path, append([]string{c.path}, c.args...), attr)
	runtime.KeepAlive(files)
	if err != nil {
		windows.CloseHandle(job)
		return nil, os.NewSyscallError("CreateProcess", err)
	}
	g := &group{pid: pid, leader: windows.Handle(handle), job: job}
	if err := g.enclose(); err != nil {
		windows.TerminateProcess(g.leader, 1)
		g.release()
		return nil, fmt.Errorf("job object: %w", err)
	}
	return g, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

// enclose puts the suspended leader into the job and lets it run.
func (g *group) enclose() error {
	if err := windows.AssignProcessToJobObject(g.job, g.leader); err != nil {
		return err
	}
	// CreateProcess had the handle of the leader's thread; package syscall
	// closes it, so the thread is looked for. There is exactly one.
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != uint32(g.pid) {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(thread)
		_, err = windows.ResumeThread(thread)
		return err
	}
	return fmt.Errorf("thread of process %d: %w", g.pid, err)
}

// wait returns when the leader has ended. It holds a thread meanwhile.
func (g *group) wait() string {
	// No lock: only the caller closes the handle, later.
	if _, err := windows.WaitForSingleObject(g.leader, windows.INFINITE); err != nil {
		return "unknown: " + err.Error()
	}
	var code uint32
	if err := windows.GetExitCodeProcess(g.leader, &code); err != nil {
		return "unknown: " + err.Error()
	}
	if code >= 1<<16 { // an NTSTATUS, which is known by its hexadecimal form
		return "exit status 0x" + strconv.FormatUint(uint64(code), 16)
	}
	return "exit status " + strconv.FormatUint(uint64(code), 10)
}

// terminate asks the leader's console group to end. It is the best effort:
// without a common console there is no way to ask.
func (g *group) terminate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leader != 0 { // as long as it is open the id is the leader's
		windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
	}
}

// kill ends all members.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.job != 0 {
		windows.TerminateJobObject(g.job, 1)
	}
}

// empty reports whether no member is left.
func (g *group) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
	var info struct {
		TotalUserTime, TotalKernelTime, ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64
		TotalPageFaultCount, TotalProcesses, ActiveProcesses, TotalTerminatedProcesses     uint32
	}
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.ActiveProcesses == 0
}

// release closes the handles; closing the job ends whoever is still in it.
func (g *group) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	windows.CloseHandle(g.leader)
	windows.CloseHandle(g.job)
	g.leader, g.job = 0, 0
}

// hint says what to do about a failed start, where the bare error does not.
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

// atEnd calls watch in a goroutine of its own.
func (g *group) atEnd(watch func()) { go watch() }
