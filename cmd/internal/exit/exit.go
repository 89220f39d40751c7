// Package exit defines the exit codes of the program, and errors that carry one.
//
// The text of such an error is safe for a terminal: its control characters are escaped.
// Only main exits.
package exit

import (
	"fmt"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Exit codes, beside 0.
const (
	Failure     = 1   // the command failed
	Answer      = 1   // the tool answered with isError, or the server with a JSON-RPC error
	Usage       = 2   // the command line or the configuration is wrong
	Server      = 3   // the server could not be reached or started, or failed during the command
	Timeout     = 4   // the server was silent for too long
	Interrupted = 130 // the code of shells for SIGINT
)

// Error ends a command with a code. Without an inner error nothing is printed.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of the inner error, with control characters escaped.
func (e Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return sanitize.Text(e.Err.Error()) // it may contain text of a server or a document
}

// Unwrap returns the inner error.
func (e Error) Unwrap() error { return e.Err }

// With returns an Error with that code; err may be nil.
func With(code int, err error) error { return Error{code, err} }

// Usagef returns an Error with code Usage, formatted as by fmt.Errorf.
func Usagef(format string, args ...any) error { return Error{Usage, fmt.Errorf(format, args...)} }
