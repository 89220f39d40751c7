package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one fault of a file.
type Fault struct {
	File    string // as the caller named it; may be empty
	Line    int    // from 1; 0 for the whole file
	Message string // key, rule and fix, without values that may be secrets
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

// Faults is the error of a file: all its faults.
type Faults []Fault

// Error returns the faults, each on a new line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Sorted returns the faults by line and without repetitions: a value with an anchor is read for
// each of its aliases.
func (f Faults) Sorted() Faults {
	slices.SortStableFunc(f, func(f, b Fault) int { return cmp.Compare(f.Line, b.Line) })
	return slices.Compact(f)
}
