package conns

import (
	"bytes"
	"os"
	"strconv"
)

// Memory returns how much memory the groups of processes of this machine use: a child that
// the bridge starts leads a group of its own, in which what it starts is too. It reads all
// of /proc, so that it is for when somebody looks.
func Memory() Used {
	used := Used{}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read will do
	page := int64(os.Getpagesize())
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		if group, pages, ok := stat(text); ok {
			used[group] += pages * page
		}
	}
	return used
}

// stat reads the group of a process and its resident pages from /proc/PID/stat. The name of
// the program, in parentheses, may have anything in it.
func stat(text []byte) (group int, pages int64, ok bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return 0, 0, false
	}
	group, err := strconv.Atoi(string(fields[2]))
	pages, wrong := strconv.ParseInt(string(fields[21]), 10, 64)
	return group, pages, err == nil && wrong == nil && group > 0 && pages >= 0
}
