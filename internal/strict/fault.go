package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	File    string // as it was named; empty if there is none
	Line    int    // counts from 1; 0 when it is about the whole file
	Message string // the key, the rule and the fix; no value that may be a secret
}

// String returns the fault as "file:line: message".
func (f Fault) String() string {
	switch {
	case f.File == "":
		return f.Message
	case f.Line == 0:
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Faults is an error: all that is wrong with a file.
type Faults []Fault

// Error returns the faults, one after the other, each beginning a new line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Sorted orders the faults by line and drops repetitions: an anchor that is used
// twice would show its fault twice.
func (f Faults) Sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return slices.Compact(f)
}
