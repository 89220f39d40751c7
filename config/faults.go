package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	if name := other[fold(key)]; slices.Contains(valid, name) {
		return name
	}
	best, least := "", max(1, len(fold(key))/3)+1
	for _, name := range valid {
		if n := distance(fold(key), fold(name)); n < least {
			best, least = name, n
		}
	}
	return best
}

// fold makes maxMessage, max-message and max_message equal.
func fold(key string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
}

// distance is the number of letters to insert, delete or replace to get from a
// to b (Levenshtein). Keys are cut first: a name is short, a file may be not.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
