// Package exit says how a command ends: the exit codes of the program, and
// errors that carry one.
//
// It promises that what such an error says may be shown on a terminal, whatever
// a server or a document has put into it. It ends nothing itself: main does.
package exit

import (
	"fmt"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Exit codes, beside 0.
const (
	Failure     = 1   // something did not work
	Answer      = 1   // the tool answered with isError, or the server with a JSON-RPC error
	Usage       = 2   // the command line or the configuration is wrong
	Server      = 3   // the server could not be reached or started, or failed under way
	Timeout     = 4   // the server was silent for too long
	Interrupted = 130 // as shells say it of SIGINT
)

// Error ends a command with a code. Without an error inside, everything has
// been said.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of the error inside, with nothing hidden in it.
func (e Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return sanitize.Text(e.Err.Error()) // there may be text of a server's or of a document in it
}

// Unwrap returns the error inside.
func (e Error) Unwrap() error { return e.Err }

// With gives an error its exit code; nil when everything has been said.
func With(code int, err error) error { return Error{code, err} }

// Usagef is the error of a mistake of the user's, made as fmt.Errorf makes it.
func Usagef(format string, args ...any) error { return Error{Usage, fmt.Errorf(format, args...)} }
