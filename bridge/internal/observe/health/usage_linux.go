package health

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is the unit of processor time in /proc: USER_HZ is 100 on every platform of Go.
const tick = 10 * time.Millisecond

// Usage returns the use of the groups of processes of this machine. A child process of the bridge leads a group, which
// includes its own children. Usage reads all of /proc, so call it only for operators.
func Usage() Used {
	used := Used{}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // an incomplete list is good enough
	page := int64(os.Getpagesize())
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // the process ended
		}
		if group, pages, ticks, ok := stat(text); ok {
			of := used[group]
			of.RSS += pages * page
			of.CPU += time.Duration(ticks) * tick
			used[group] = of
		}
	}
	return used
}

// stat reads from /proc/PID/stat the group of a process, its resident pages, and its processor time with that of
// awaited children. The program's name, in parentheses, may contain any character.
func stat(text []byte) (group int, pages, ticks int64, ok bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return 0, 0, 0, false
	}
	group, err := strconv.Atoi(string(fields[2]))
	pages, wrong := strconv.ParseInt(string(fields[21]), 10, 64)
	ok = err == nil && wrong == nil && group > 0 && pages >= 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		ok = ok && err == nil && n >= 0
		ticks += n
	}
	return group, pages, ticks, ok
}
