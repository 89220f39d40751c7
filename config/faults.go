package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/similar"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	File    string
	Line    int // counts from 1; 0 when it is about the whole file
	Message string
}

// String returns the fault as "file:line: message".
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Faults is the error of Load and Parse: all that is wrong with the file, by
// line.
type Faults []Fault

// Error returns the faults, one after the other, each beginning a new line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders the faults by line and drops repetitions: an anchor that is used
// twice would show its fault twice.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return slices.Compact(f)
}

// nearest returns the valid name that was probably meant by key, or "".
func nearest(key string, valid []string) string {
	// What people know from other tools, and what counting letters gets wrong.
	other := map[string]string{
		"cmd": "command", "arguments": "args", "environment": "env",
		"address": "url", "endpoint": "url",
		"dir": "cwd", "workdir": "cwd", "working_directory": "cwd",
	}
	if name := other[similar.Fold(key)]; slices.Contains(valid, name) {
		return name
	}
	best, least := "", max(1, len(similar.Fold(key))/3)+1
	for _, name := range valid {
		if n := similar.Distance(similar.Fold(key), similar.Fold(name)); n < least {
			best, least = name, n
		}
	}
	return best
}
