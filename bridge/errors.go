package bridge

import (
	"context"
	"errors"
	"strconv"
	"time"

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
	ErrOpen = errors.New("left alone")
	// ErrDenied: the caller may not use it.
	ErrDenied = errors.New("not allowed")
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

// Error is a failed operation on a server.
type Error struct {
	Server string
	Kind   error  // ErrUnavailable, ErrUnsent, ErrLost, ErrTimeout or ErrTooLarge
	Public string // what a client may know; no command line, no address
	Err    error  // all that is known, for the log; may be nil
	// After is how long to wait before trying again; 0 means that it is not known.
	After time.Duration
}

func (e *Error) Error() string {
	s := "server " + e.Server + ": " + e.Public
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap makes errors.Is find both the kind and the reason.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// answer makes the JSON-RPC error that a client gets for err (protocol.md D7).
func answer(id []byte, err error) *jsonrpc.Message {
	message := "internal error of the bridge"
	var data []byte
	if e, ok := errors.AsType[*Error](err); ok {
		message = "server " + e.Server + ": " + e.Public
	}
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrUnsent):
		data = []byte(`{"bridge":"upstream_unavailable"}`)
	case errors.Is(err, ErrTimeout):
		data = []byte(`{"bridge":"upstream_timeout"}`)
	case errors.Is(err, ErrTooLarge):
		data = []byte(`{"bridge":"upstream_too_large"}`)
	case errors.Is(err, ErrLost):
		data = []byte(`{"bridge":"upstream_lost"}`)
	case errors.Is(err, ErrOverloaded):
		message, data = "the bridge is overloaded: too many requests are under way; try again later", []byte(`{"bridge":"overloaded"}`)
	case errors.Is(err, ErrShutdown):
		message, data = "the bridge is stopping; try again later", []byte(`{"bridge":"stopping"}`)
	case errors.Is(err, ErrIdle), errors.Is(err, ErrEnded):
		message = "the session has ended"
	case errors.Is(err, ErrCancelled), errors.Is(err, context.Canceled):
		message = "the request was cancelled"
	case errors.Is(err, ErrUnknownServer):
		message = "no such server"
	}
	return jsonrpc.NewError(id, jsonrpc.CodeInternal, message, data)
}

func limitText(what string, n int) string { return what + " (the limit is " + strconv.Itoa(n) + ")" }
