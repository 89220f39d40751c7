// Package exit defines the exit codes of the program, and errors with an exit code. Only main exits.
//
// The text of such an error is safe for a terminal, because control characters are escaped.
package exit

import (
	"fmt"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// These constants are the exit codes besides 0.
const (
	Failure     = 1   // the command failed
	Answer      = 1   // the tool answered with isError, or the server with a JSON-RPC error
	Usage       = 2   // the command line or the configuration is wrong
	Server      = 3   // the server could not be reached or started, or failed during the command
	Timeout     = 4   // the server did not answer in time
	Interrupted = 130 // the code of shells for SIGINT
)

// Error ends a command with a code. Without an inner error, nothing is printed.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of the inner error, with control characters escaped.
func (e Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return sanitize.Text(e.Err.Error()) // the text may be partly from a server or a document
}

func (e Error) Unwrap() error { return e.Err }

// With returns an Error with a code. err may be nil.
func With(code int, err error) error { return Error{code, err} }

// Usagef returns an Error with code Usage, formatted as by fmt.Errorf.
func Usagef(format string, args ...any) error { return Error{Usage, fmt.Errorf(format, args...)} }
