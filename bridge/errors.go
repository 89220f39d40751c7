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

// The reasons why a call had no answer, or why a session ended.
var (
	// ErrUnavailable means that the server could not be reached or started. The request was not delivered.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnsent means that the connection cannot be used, and that the server has certainly not executed the request.
	// The request was not sent, or the server rejected it because the server does not know the session any more. The
	// request may be sent on a new connection.
	ErrUnsent = errors.New("not sent")
	// ErrLost means that the connection ended during the call. Whether the server executed the request is unknown.
	ErrLost = errors.New("lost")
	// ErrInvalid means that the server's response is no valid answer. Whether the server executed the request is
	// unknown. ErrInvalid is a kind of ErrLost.
	ErrInvalid = fmt.Errorf("no valid answer: %w", ErrLost)
	// ErrTimeout means that the server did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrTooLarge means that the server's answer exceeds a limit on its size, or on memory.
	ErrTooLarge = errors.New("answer too large")
	// ErrCancelled means that the client cancelled the request.
	ErrCancelled = errors.New("cancelled by the client")
	// ErrOverloaded means that a limit on requests in flight, or on connections, was reached.
	ErrOverloaded = errors.New("too much in flight")
	// ErrLimited means that the caller exceeded its rate limit.
	ErrLimited = errors.New("too often")
	// ErrOpen means that the server's circuit breaker is open after too many failures. The request was not delivered.
	// ErrOpen is a kind of ErrUnavailable.
	ErrOpen = fmt.Errorf("circuit breaker open: %w", ErrUnavailable)
	// ErrDrained means that an operator drains the server. The request was not delivered. ErrDrained is a kind of
	// ErrUnavailable.
	ErrDrained = fmt.Errorf("drained: %w", ErrUnavailable)
	// ErrRejected means that the server does not accept this request, or does not accept it now. Other requests may
	// succeed. ErrRejected is a kind of ErrUnavailable.
	ErrRejected = fmt.Errorf("declined: %w", ErrUnavailable)
	// ErrCredentials means that the server does not accept the bridge's credentials. ErrCredentials is a kind of
	// ErrRejected.
	ErrCredentials = fmt.Errorf("credentials refused: %w", ErrRejected)
	// ErrSignIn means that a person must first sign in at the server. ErrSignIn is a kind of ErrCredentials.
	ErrSignIn = fmt.Errorf("sign-in needed: %w", ErrCredentials)
	// ErrNoWorker means that no worker started the server's process in time, which is not the server's fault.
	// ErrNoWorker is a kind of ErrUnavailable and of ErrOverloaded.
	ErrNoWorker = fmt.Errorf("no worker: %w, %w", ErrUnavailable, ErrOverloaded)
	// ErrWorkerLost means that the worker with the server's process has ended or cannot be reached, which is not the
	// server's fault. ErrWorkerLost is a kind of ErrLost.
	ErrWorkerLost = fmt.Errorf("worker lost: %w", ErrLost)
	// ErrDenied means that the caller may not do what it requests.
	ErrDenied = errors.New("not allowed")
	// ErrRevoked means that the caller's key was removed. ErrRevoked is a kind of ErrDenied.
	ErrRevoked = fmt.Errorf("key removed: %w", ErrDenied)
	// ErrShutdown means that the bridge is stopping.
	ErrShutdown = errors.New("the bridge is stopping")
	// ErrIdle means that the session was idle for too long.
	ErrIdle = errors.New("session was idle for too long")
	// ErrEnded means that the client, an operator or a change of the servers ended the session.
	ErrEnded = errors.New("session was ended by the client")
	// ErrNoHandshake means that the server answered initialize with an error, or with a revision without sessions, so
	// that it may be a modern server. ErrNoHandshake is a kind of ErrUnavailable.
	ErrNoHandshake = fmt.Errorf("refused to initialize: %w", ErrUnavailable)
	// ErrReplaced means that the server came back with another revision or fewer capabilities, so that its
	// sessions cannot continue.
	ErrReplaced = errors.New("replaced by another server")
	// ErrUnknownServer means that no server has this name.
	ErrUnknownServer = errors.New("no such server")
)

// Error is a failed operation on a server, or an operation that the bridge refused.
type Error struct {
	Server string // name of the server; empty if the error concerns the whole bridge
	Kind   error  // one of the errors above
	Public string // text for clients, without command lines and addresses
	Err    error  // full reason, for the log; may be nil
	// Stderr holds the last lines of the server's process on stderr, for operators. They may contain anything.
	Stderr string
	// After is how long the caller should wait before a retry; 0 means unknown.
	After time.Duration
}

// Error returns the full text for the log: the text for clients, the last lines on stderr, which mostly name the cause,
// and the reason.
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

// Brief returns the text of err without the lines of the server's process on stderr.
func Brief(err error) string {
	s := err.Error()
	if e, ok := errors.AsType[*Error](err); ok && e.Stderr != "" {
		brief := *e
		brief.Stderr = ""
		s = strings.Replace(s, e.Error(), brief.Error(), 1)
	}
	return s
}

// OverLimit returns the text that what exceeds the limit n.
func OverLimit(what string, n int) string { return what + " (the limit is " + strconv.Itoa(n) + ")" }

// Told returns the text for clients: Public, after the name of the server if there is one.
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

// Exhausted reports whether err means that the bridge or the machine has no files, processes or memory left, which is
// not the server's fault.
func Exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)
}

// TakenBack returns the error of a call that the client cancelled with the notification m. It is ErrCancelled, with the
// client's reason if there is one.
func TakenBack(m *jsonrpc.Message) error {
	if why := CancelReason(m); why != "" {
		return &takenBack{why}
	}
	return ErrCancelled
}

// takenBack is ErrCancelled with the client's reason. The reason is not in its text, since only the server may get it.
type takenBack struct{ why string }

func (*takenBack) Error() string { return ErrCancelled.Error() }

func (*takenBack) Unwrap() error { return ErrCancelled }

// MaxReason is the length in bytes to which the reason of a cancellation is cut.
const MaxReason = 1 << 10

// CancelReason returns the reason in notifications/cancelled, cut to MaxReason bytes, or "".
func CancelReason(m *jsonrpc.Message) string {
	given := gjson.GetBytes(m.Params, "reason")
	if given.Type != gjson.String || len(given.Str) <= MaxReason {
		return given.Str
	}
	return strings.ToValidUTF8(given.Str[:MaxReason], "")
}

// ReasonOf returns the client's reason for the cancellation that ended a call with err. given reports whether the
// client cancelled the call and gave a reason.
func ReasonOf(err error) (why string, given bool) {
	taken, given := errors.AsType[*takenBack](err)
	if given {
		why = taken.why
	}
	return why, given
}

// Stopped is the text for calls that are in flight when the bridge stops.
const Stopped = "the bridge is stopping; whether the server acted on the request is unknown"

// NameDoubtful is the text for a request with a member that other readers may take for name, uri or requestState.
const NameDoubtful = "params has a member that differs from name, uri or requestState in case only"
