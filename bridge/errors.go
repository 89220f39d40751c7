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

// These are the reasons why a call had no answer, or a session ended.
var (
	// ErrUnavailable means that the server could not be reached or started. The request was not delivered.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnsent means that the connection is unusable, and that the server has certainly not acted on the
	// request. It was not sent, or rejected because the server forgot the session. It may be sent again on a new
	// connection.
	ErrUnsent = errors.New("not sent")
	// ErrLost means that the connection ended during the call. Whether the server acted on the request is
	// unknown.
	ErrLost = errors.New("lost")
	// ErrInvalid means that the server's answer does not match the request. Whether the server acted on the request is
	// unknown. ErrInvalid is a kind of ErrLost.
	ErrInvalid = fmt.Errorf("no valid answer: %w", ErrLost)
	// ErrTimeout means that the server did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrTooLarge means that the server's answer exceeds the limit.
	ErrTooLarge = errors.New("answer too large")
	// ErrCancelled means that the client cancelled the request.
	ErrCancelled = errors.New("cancelled by the client")
	// ErrOverloaded means that a limit on requests or connections in flight is reached.
	ErrOverloaded = errors.New("too much in flight")
	// ErrLimited means that the caller exceeds its rate limit.
	ErrLimited = errors.New("too often")
	// ErrOpen means that the server's circuit breaker is open after too many failures. The request was not delivered.
	// ErrOpen is a kind of ErrUnavailable.
	ErrOpen = fmt.Errorf("circuit breaker open: %w", ErrUnavailable)
	// ErrDrained means that an operator drains the server. The request was not delivered. ErrDrained is a kind of
	// ErrUnavailable.
	ErrDrained = fmt.Errorf("drained: %w", ErrUnavailable)
	// ErrRejected means that the server does not accept this request, or not now. Other requests may succeed.
	// ErrRejected is a kind of ErrUnavailable.
	ErrRejected = fmt.Errorf("declined: %w", ErrUnavailable)
	// ErrCredentials means that the server does not accept the bridge's credentials. It is a kind of
	// ErrRejected.
	ErrCredentials = fmt.Errorf("credentials refused: %w", ErrRejected)
	// ErrSignIn means that a person must sign in at the server first. It is a kind of ErrCredentials.
	ErrSignIn = fmt.Errorf("sign-in needed: %w", ErrCredentials)
	// ErrNoWorker means that no worker started the server's process in time. The server is not at fault. ErrNoWorker is
	// a kind of ErrUnavailable and of ErrOverloaded.
	ErrNoWorker = fmt.Errorf("no worker: %w, %w", ErrUnavailable, ErrOverloaded)
	// ErrWorkerLost means that the worker of the server's process has ended or is unreachable. The server is not at
	// fault. ErrWorkerLost is a kind of ErrLost.
	ErrWorkerLost = fmt.Errorf("worker lost: %w", ErrLost)
	// ErrDenied means that the caller's request is not allowed.
	ErrDenied = errors.New("not allowed")
	// ErrRevoked means that the caller's key was removed. It is a kind of ErrDenied.
	ErrRevoked = fmt.Errorf("key removed: %w", ErrDenied)
	// ErrShutdown means that the bridge is stopping.
	ErrShutdown = errors.New("the bridge is stopping")
	// ErrIdle means that the session was idle for too long.
	ErrIdle = errors.New("session was idle for too long")
	// ErrEnded means that the client ended the session.
	ErrEnded = errors.New("session was ended by the client")
	// ErrNoHandshake means that the server answered initialize with an error, or with a revision without
	// sessions. It may be a modern one. It is a kind of ErrUnavailable.
	ErrNoHandshake = fmt.Errorf("refused to initialize: %w", ErrUnavailable)
	// ErrReplaced means that the server came back with another revision or fewer capabilities, so that its
	// sessions cannot continue.
	ErrReplaced = errors.New("replaced by another server")
	// ErrUnknownServer means that no server has this name.
	ErrUnknownServer = errors.New("no such server")
)

// Error is a failed operation on a server, or one that the bridge refused.
type Error struct {
	Server string // empty if it concerns the whole bridge
	Kind   error  // one of the errors above
	Public string // for clients; no command line, no address
	Err    error  // the full reason for the log; may be nil
	// Stderr holds the last lines of the server process on stderr, for the operator. They may contain anything.
	Stderr string
	// After is how long to wait before a retry; 0 means unknown.
	After time.Duration
}

// Error returns the full text for the log: the text for clients, the last lines on stderr, and the reason. The lines on
// stderr mostly have the cause.
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

// Brief returns the text of err without the lines from a server's stderr.
func Brief(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*Error](err); ok && e.Stderr != "" {
		brief := *e
		brief.Stderr = ""
		s = strings.Replace(s, e.Error(), brief.Error(), 1)
	}
	return s
}

// OverLimit returns the message that the named part, what, exceeds the limit n.
func OverLimit(what string, n int) string { return what + " (the limit is " + strconv.Itoa(n) + ")" }

// Told returns the text for clients.
func (e *Error) Told() string {
	if e.Server == "" {
		return e.Public
	}
	return "server " + e.Server + ": " + e.Public
}

// Unwrap lets errors.Is find the kind and the reason.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// RetryAfter returns how long to wait before a retry of the call that failed with err; 0 if unknown.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.After
	}
	return 0
}

// Exhausted reports whether the bridge or the machine has no files, processes or memory left. The server is not
// at fault.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)
}

// TakenBack returns the error of a call that the client's notification m cancels. It is ErrCancelled, with the
// client's reason for the server.
func TakenBack(m *jsonrpc.Message) error {
	if why := CancelReason(m); why != "" {
		return &takenBack{why}
	}
	return ErrCancelled
}

// takenBack is ErrCancelled with the client's reason. Only the server gets the reason, because it may contain
// anything.
type takenBack struct{ why string }

// Error returns the text of ErrCancelled.
func (*takenBack) Error() string { return ErrCancelled.Error() }

// Unwrap returns ErrCancelled.
func (*takenBack) Unwrap() error { return ErrCancelled }

// MaxReason is the length to which the reason of a cancellation is cut, in bytes.
const MaxReason = 1 << 10

// CancelReason returns the reason in notifications/cancelled, cut to MaxReason bytes, or "".
func CancelReason(m *jsonrpc.Message) string {
	given := gjson.GetBytes(m.Params, "reason")
	if given.Type != gjson.String || len(given.Str) <= MaxReason {
		return given.Str
	}
	return strings.ToValidUTF8(given.Str[:MaxReason], "")
}

// ReasonOf returns the client's reason for the cancellation that ended a call with err. given reports whether
// the client cancelled it with a reason.
func ReasonOf(err error) (why string, given bool) {
	taken, given := errors.AsType[*takenBack](err)
	if given {
		why = taken.why
	}
	return why, given
}

// Stopped is the message for calls in flight when the bridge stops.
const Stopped = "the bridge is stopping; whether the server acted on the request is unknown"

// NameDoubtful is the message for a request with a member that other readers may take for name, uri or
// requestState.
const NameDoubtful = "params has a member that differs from name, uri or requestState in case only"
