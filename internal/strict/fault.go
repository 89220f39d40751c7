package strict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

type Fault struct {
	File    string // as the caller named the file; may be empty
	Line    int    // counted from 1; 0 means the whole file
	Message string // key, rule and fix, without values that may be secrets
	Unset   bool   // the fault is outside of this file: a variable is not set, or another file cannot be used

	open string // Message for Faults.Open; empty if it is the same
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

// Faults are all faults of a file, as an error.
type Faults []Fault

// Error returns the faults, each on its own line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Open returns the text of Error, but shows lines of the file that could not be read as they stand there. Only what
// looks like a secret is hidden, so the text is for the terminal of the file's owner, and not for a log.
func (f Faults) Open() string {
	open := slices.Clone(f)
	for i := range open {
		open[i].Message = cmp.Or(f[i].open, f[i].Message)
	}
	return open.Error()
}

// Sorted returns the faults sorted by line, without repetitions. Repetitions occur because a value with an anchor is
// read again for each of its aliases.
func (f Faults) Sorted() Faults {
	slices.SortStableFunc(f, func(f, b Fault) int { return cmp.Compare(f.Line, b.Line) })
	return slices.Compact(f)
}
