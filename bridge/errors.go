package bridge

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Why a call had no answer, or a session ended.
var (
	// ErrUnavailable: the server could not be reached or started; the request
	// was not delivered.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnsent: the connection is of no use any more, and the server has
	// certainly not acted on the request: it was not sent, or was refused for
	// the sake of a session that the server has forgotten. It may be sent again
	// on a new connection.
	ErrUnsent = errors.New("not sent")
	// ErrLost: the connection ended while the request was under way. Whether
	// the server acted on it is unknown.
	ErrLost = errors.New("lost")
	// ErrInvalid: what the server answered is no answer to the request. Whether it
	// acted on the request is unknown: it is a kind of ErrLost.
	ErrInvalid = fmt.Errorf("no valid answer: %w", ErrLost)
	// ErrTimeout: the server did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrTooLarge: the server's answer is above the limit.
	ErrTooLarge = errors.New("answer too large")
	// ErrCancelled: the client took the request back.
	ErrCancelled = errors.New("cancelled by the client")
	// ErrOverloaded: a limit on what may be under way is reached.
	ErrOverloaded = errors.New("too much under way")
	// ErrLimited: the caller does it too often.
	ErrLimited = errors.New("too often")
	// ErrOpen: the server has failed so often that its circuit breaker is open; the
	// request was not delivered. It is a kind of ErrUnavailable.
	ErrOpen = fmt.Errorf("circuit breaker open: %w", ErrUnavailable)
	// ErrDrained: an operator wants no new calls made to the server; the request was not
	// delivered. It is a kind of ErrUnavailable.
	ErrDrained = fmt.Errorf("drained: %w", ErrUnavailable)
	// ErrRejected: the server is there, and does not take the request as it is,
	// or not now. That says nothing about other requests. It is a kind of
	// ErrUnavailable.
	ErrRejected = fmt.Errorf("declined: %w", ErrUnavailable)
	// ErrCredentials: the server does not accept who the bridge says it is. It is
	// a kind of ErrRejected.
	ErrCredentials = fmt.Errorf("credentials refused: %w", ErrRejected)
	// ErrSignIn: a person has to sign in at the server first. It is a kind of
	// ErrCredentials.
	ErrSignIn = fmt.Errorf("sign-in needed: %w", ErrCredentials)
	// ErrNoWorker: no worker has started the server's process in time. It says nothing
	// about the server. It is a kind of ErrUnavailable and of ErrOverloaded.
	ErrNoWorker = fmt.Errorf("no worker: %w, %w", ErrUnavailable, ErrOverloaded)
	// ErrWorkerLost: the worker that had the server's process has ended, or cannot be
	// reached any more. It says nothing about the server. It is a kind of ErrLost.
	ErrWorkerLost = fmt.Errorf("worker lost: %w", ErrLost)
	// ErrDenied: the caller may not use it.
	ErrDenied = errors.New("not allowed")
	// ErrRevoked: the caller's key was taken away. It is a kind of ErrDenied.
	ErrRevoked = fmt.Errorf("key taken away: %w", ErrDenied)
	// ErrShutdown: the bridge is stopping.
	ErrShutdown = errors.New("the bridge is stopping")
	// ErrIdle: the session was not used for too long.
	ErrIdle = errors.New("session was idle for too long")
	// ErrEnded: the client ended the session.
	ErrEnded = errors.New("session was ended by the client")
	// ErrNoHandshake: the server has answered initialize with an error, or with a
	// revision that has no sessions. It may be a modern one. It is a kind of
	// ErrUnavailable.
	ErrNoHandshake = fmt.Errorf("refused to initialize: %w", ErrUnavailable)
	// ErrReplaced: the server came back as one that those who use the connection
	// cannot go on with: with another revision, or fewer capabilities.
	ErrReplaced = errors.New("came back another")
	// ErrUnknownServer: no server has this name.
	ErrUnknownServer = errors.New("no such server")
)

// Error is a failed operation on a server, or one that the bridge has refused.
type Error struct {
	Server string // empty when it is about the bridge as a whole
	Kind   error  // one of those above
	Public string // what a client may know; no command line, no address
	Err    error  // all that is known, for the log; may be nil
	// Stderr is what the server's process wrote last to its standard error, for
	// whoever runs the bridge: lines, or nothing. Anything can be in it.
	Stderr string
	// After is how long to wait before trying again; 0 means that it is not known.
	After time.Duration
}

// Error returns all that is known, for the log: what clients are told, what the
// server's process wrote last, which mostly says why, and the reason.
func (e *Error) Error() string {
	s, before := e.Told(), ": "
	if e.Stderr != "" {
		s += "\nits last lines on stderr:\n  " + strings.ReplaceAll(e.Stderr, "\n", "\n  ")
		before = "\n"
	}
	if e.Err != nil {
		s += before + e.Err.Error()
	}
	return s
}

// Brief returns the text of err without what a server's process wrote to its
// standard error.
func Brief(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*Error](err); ok && e.Stderr != "" {
		brief := *e
		brief.Stderr = ""
		s = strings.Replace(s, e.Error(), brief.Error(), 1)
	}
	return s
}

// OverLimit says that what is there is above the limit n.
func OverLimit(what string, n int) string { return what + " (the limit is " + strconv.Itoa(n) + ")" }

// Told is what clients are told.
func (e *Error) Told() string {
	if e.Server == "" {
		return e.Public
	}
	return "server " + e.Server + ": " + e.Public
}

// Unwrap makes errors.Is find both the kind and the reason.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// RetryAfter returns how long to wait before the call that failed with err is
// made again; 0 when that is not known.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.After
	}
	return 0
}

// Exhausted reports whether err is that the bridge, or the machine, has no files,
// processes or memory left. That says nothing about a server.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)
}

// TakenBack returns why a call ends that the client's notification n takes back:
// ErrCancelled, with the reason that n gives for the server.
func TakenBack(n *jsonrpc.Message) error {
	if why := CancelReason(n); why != "" {
		return &takenBack{why}
	}
	return ErrCancelled
}

// takenBack is ErrCancelled with the client's reason, which is for the server
// alone: it may be about anything.
type takenBack struct{ why string }

// Error says the same as ErrCancelled.
func (*takenBack) Error() string { return ErrCancelled.Error() }

// Unwrap returns ErrCancelled.
func (*takenBack) Unwrap() error { return ErrCancelled }

// MaxReason bounds the reason of a cancellation, in bytes. What is longer is cut.
const MaxReason = 1 << 10

// CancelReason returns the reason that notifications/cancelled gives, or nothing.
func CancelReason(n *jsonrpc.Message) string {
	given := gjson.GetBytes(n.Params, "reason")
	if given.Type != gjson.String || len(given.Str) <= MaxReason {
		return given.Str
	}
	return strings.ToValidUTF8(given.Str[:MaxReason], "")
}

// ReasonOf returns the reason that a client gave for taking back the call that
// ended with err, and whether it was taken back with one.
func ReasonOf(err error) (why string, given bool) {
	taken, given := errors.AsType[*takenBack](err)
	if given {
		why = taken.why
	}
	return why, given
}

// Stopped is what is said of calls that were under way when the bridge stopped.
const Stopped = "the bridge is stopping; whether the server acted on the request is unknown"

// NameDoubtful is what a client is told whose request has a member that other
// readers may take for the name of a tool, a prompt or a resource, or for the state
// that the server gave another client.
const NameDoubtful = "params has a member that differs from name, uri or requestState in case only"
