package bridge

import (
	"context"
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
	// ErrOpen: the server has failed so often that it is left alone for a while;
	// the request was not delivered. It is a kind of ErrUnavailable.
	ErrOpen = fmt.Errorf("left alone: %w", ErrUnavailable)
	// ErrDeclined: the server is there, and does not take the request as it is,
	// or not now. That says nothing about other requests. It is a kind of
	// ErrUnavailable.
	ErrDeclined = fmt.Errorf("declined: %w", ErrUnavailable)
	// ErrCredentials: the server does not accept who the bridge says it is. It is
	// a kind of ErrDeclined.
	ErrCredentials = fmt.Errorf("credentials refused: %w", ErrDeclined)
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
	// ErrRefused: the server has answered initialize with an error, or with a
	// revision that has no sessions. It may be a modern one.
	ErrRefused = errors.New("refused to initialize")
	// ErrUnknownServer: no server has this name.
	ErrUnknownServer = errors.New("no such server")
)

// errLack: the bridge itself has no room for another connection. It is a kind of
// ErrUnavailable and of ErrOverloaded.
var errLack = fmt.Errorf("%w: %w", ErrUnavailable, ErrOverloaded)

// lacking reports whether err is that the bridge, or the machine, has no files,
// processes or memory left. That says nothing about a server.
func lacking(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN)
}

// Error is a failed operation on a server, or one that the bridge has refused.
type Error struct {
	Server string // empty when it is about the bridge as a whole
	Kind   error  // one of those above
	Public string // what a client may know; no command line, no address
	Err    error  // all that is known, for the log; may be nil
	// After is how long to wait before trying again; 0 means that it is not known.
	After time.Duration
}

func (e *Error) Error() string {
	s := e.public()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// public is what clients are told.
func (e *Error) public() string {
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

// dataOf says what data.bridge is, by which a client's program can tell why a
// call failed. The first kind that fits counts.
var dataOf = []struct {
	kind error
	word string
}{
	{ErrLimited, "rate_limited"},
	{ErrRevoked, "unauthorized"}, // before what it is a kind of
	{ErrDenied, "denied"},
	{ErrOpen, "circuit_open"}, // before what it is a kind of
	{ErrOverloaded, "overloaded"},
	{ErrUnavailable, "upstream_unavailable"},
	{ErrUnsent, "upstream_unavailable"},
	{ErrTimeout, "upstream_timeout"},
	{ErrTooLarge, "upstream_too_large"},
	{ErrInvalid, "upstream_invalid"}, // before what it is a kind of
	{ErrLost, "upstream_lost"},
	{ErrShutdown, "stopping"},
}

// answer makes the JSON-RPC error that a client gets for err (protocol.md D7).
func answer(id []byte, err error) *jsonrpc.Message {
	var data []byte
	for _, d := range dataOf {
		if errors.Is(err, d.kind) {
			data = refusal(d.word, err)
			break
		}
	}
	message, code := "internal error of the bridge", jsonrpc.CodeInternal
	if errors.Is(err, ErrDenied) {
		code = jsonrpc.CodeInvalidRequest
	}
	e, ours := errors.AsType[*Error](err)
	switch {
	case ours:
		message = e.public()
	case errors.Is(err, ErrOverloaded):
		message = "the bridge is overloaded: too many requests are under way; try again later"
	case errors.Is(err, ErrShutdown):
		message = "the bridge is stopping; try again later"
	case errors.Is(err, ErrIdle), errors.Is(err, ErrEnded):
		message = "the session has ended"
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		message = "the request was cancelled"
	case errors.Is(err, ErrUnknownServer):
		message = "no such server"
	}
	return jsonrpc.NewError(id, code, message, data)
}

// refusal is the data of an error. Of what the bridge itself refuses it names
// the server, and it says when to try again, where that is known.
func refusal(word string, err error) []byte {
	data := `{"bridge":"` + word + `"`
	e, ours := errors.AsType[*Error](err)
	if ours && e.Server != "" && (e.After > 0 || !strings.HasPrefix(word, "upstream_")) {
		data += `,"server":` + quote(e.Server)
	}
	if ours && e.After > 0 {
		data += `,"retryAfterMs":` + strconv.FormatInt(int64((e.After+time.Millisecond-1)/time.Millisecond), 10)
	}
	return []byte(data + "}")
}

func limitText(what string, n int) string { return what + " (the limit is " + strconv.Itoa(n) + ")" }

// TakenBack returns why a call ends that the client's notification n takes back:
// ErrCancelled, with the reason that n gives for the server.
func TakenBack(n *jsonrpc.Message) error {
	if why := cancelReason(n); why != "" {
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

// maxReason bounds the reason of a cancellation, in bytes. What is longer is cut.
const maxReason = 1 << 10

// cancelReason returns the reason that notifications/cancelled gives, or nothing.
func cancelReason(n *jsonrpc.Message) string {
	given := gjson.GetBytes(n.Params, "reason")
	if given.Type != gjson.String || len(given.Str) <= maxReason {
		return given.Str
	}
	return strings.ToValidUTF8(given.Str[:maxReason], "")
}
