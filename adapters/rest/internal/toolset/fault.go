package toolset

import (
	"fmt"
	"strings"
)

// Fault is a fault in the configuration of tools, of arguments for all operations, of rules or of
// expose.
type Fault struct {
	Key  string // such as "issues/lock: args: owner: "
	Line int    // in the configuration; 0 if unknown
	Text string // the fault

	common bool // the fault is in no entry of Config.Tools
}

// String returns the fault as operators read it.
func (f Fault) String() string {
	if f.common {
		return f.Key + f.Text
	}
	return "tools: " + f.Key + f.Text
}

// Faults is an error with a line for each fault.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// Fault returns a fault of the whole entry.
func (e *Entry) Fault(format string, args ...any) Fault { return e.KeyFault("", format, args...) }

// KeyFault returns a fault of one of the entry's keys. key is as in Lines.
func (e *Entry) KeyFault(key, format string, args ...any) Fault {
	return Fault{
		Key:  e.Key + ": ",
		Line: e.LineOf(key),
		Text: fmt.Sprintf(format, args...),
	}
}

// LineOf returns the line of a key as in Lines, or of the nearest outer key with a known line.
func (e *Entry) LineOf(key string) int {
	for {
		if line := e.Lines[key]; line > 0 {
			return line
		}
		i := strings.LastIndex(key, ": ")
		if i < 0 {
			return e.Line
		}
		key = key[:i]
	}
}

// fault returns a fault of an argument of the entry e or, if e is nil, of Config.Args or a rule.
func (a *Arg) fault(e *Entry, text string) Fault {
	f := Fault{
		Key:    a.where + "args: " + a.Name + ": ",
		Line:   a.Line,
		Text:   text,
		common: e == nil,
	}
	if e != nil {
		f.Key = e.Key + ": " + f.Key
	}
	return f
}
