package process

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Job holds processes and the processes that they start. No process can leave the job. When the bridge dies, the job's
// handle is closed and Windows ends all members.
type Job struct{ handle windows.Handle }

// New returns an empty job.
func New() (*Job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		windows.CloseHandle(handle)
		return nil, fmt.Errorf("job object: %w", err)
	}
	return &Job{handle}, nil
}

// Limit bounds the memory of each member in bytes, and its processor time, and lets the job have one member only.
func (j *Job) Limit(memory uint64, processor time.Duration) error {
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_PROCESS_MEMORY |
		windows.JOB_OBJECT_LIMIT_PROCESS_TIME | windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS
	limits.BasicLimitInformation.PerProcessUserTimeLimit = int64(processor / 100) // in units of 100 ns
	limits.BasicLimitInformation.ActiveProcessLimit = 1
	limits.ProcessMemoryLimit = uintptr(memory)
	if _, err := windows.SetInformationJobObject(j.handle, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return fmt.Errorf("job object: %w", err)
	}
	return nil
}

// Run adds a process to the job and resumes it. The process was created suspended, so it has not started anything yet.
// The caller holds a handle of the process, so the id is not reused.
func (j *Job) Run(pid int) error {
	if err := j.add(pid); err != nil {
		return fmt.Errorf("job object: %w", err)
	}
	return nil
}

func (j *Job) add(pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(j.handle, process); err != nil {
		return err
	}
	// CreateProcess returned the thread's handle, but package syscall closes the handle. So this searches for the
	// thread. There is exactly one thread.
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != uint32(pid) {
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
	return fmt.Errorf("thread of process %d: %w", pid, err)
}

// Kill ends all members.
func (j *Job) Kill() error { return windows.TerminateJobObject(j.handle, 1) }

// Empty reports whether no member is left.
func (j *Job) Empty() bool {
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION
	var info struct {
		TotalUserTime, TotalKernelTime, ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64
		TotalPageFaultCount, TotalProcesses, ActiveProcesses, TotalTerminatedProcesses     uint32
	}
	err := windows.QueryInformationJobObject(j.handle, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.ActiveProcesses == 0
}

// Close closes the job, which ends its members.
func (j *Job) Close() { windows.CloseHandle(j.handle) }
