package conn

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Options are the limits of a server's connections, and the eras and revisions to use.
type Options struct {
	Log        *slog.Logger // nil means slog.Default()
	MaxMessage int          // bytes of one message from the server; 0 means 16 MiB
	Timeouts   Timeouts     // of each call; 0 means none
	// FailFast means that a server that refuses connections is not tried again for a while. Otherwise
	// it may be about to start.
	FailFast bool
	// Era limits the eras of the protocol; empty means conn.EraAuto. A transport of one era ignores
	// it.
	Era Era
	// Revision is the newest revision that a legacy server is offered; empty means no limit.
	Revision string

	odd *oddities // of the server
}

// Filled returns the options with their defaults, for the server of that name.
func (o Options) Filled(server string) Options {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", server)
	o.MaxMessage = cmp.Or(max(o.MaxMessage, 0), 16<<20)
	o.odd = new(oddities)
	return o
}

// EnvelopeRoom is the number of bytes that a message may have beyond the limit on its payload, for
// the names around it. An answer of the limit's size to a request of that size must not fail for a
// few bytes.
const EnvelopeRoom = 64 << 10

// Name is the name of a server. Its methods return errors about the server: why is for clients, err
// is the cause, for the log only, or nil.
type Name string

// Error returns an error of any kind.
func (n Name) Error(kind error, why string, err error) *bridge.Error {
	return &bridge.Error{
		Server: string(n),
		Kind:   kind,
		Public: why,
		Err:    err,
	}
}

// unknown completes the text about a call that may have had an effect.
const unknown = "; whether it acted on the request is unknown"

// Lost is the error of a call that may have reached the server.
func (n Name) Lost(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrLost, why+unknown, err)
}

// Invalid is the error of a call whose response is not an answer. The server may have acted on it.
func (n Name) Invalid(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrInvalid, why+unknown, err)
}

// Unavailable is the error of a call that the server has not acted on.
func (n Name) Unavailable(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrUnavailable, why, err)
}

// Rejected is the error of a call that the server refused as it was.
func (n Name) Rejected(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrRejected, why, err)
}

// Unsent is the error of a call that may be made on another connection.
func (n Name) Unsent(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrUnsent, why, err)
}

// Refused is the error of a request that a server refused over HTTP with that status, without an
// answer. shown is the header with the credentials of the request; empty without one. asked
// reports whether the response has a Retry-After, and after is its value. words are the server's; empty
// without any. A failed request may have had an effect, unless harmless is set.
func (n Name) Refused(status int, shown string, after time.Duration, asked, harmless bool, words string) *bridge.Error {
	var e *bridge.Error
	said := func(what string) string { return Said(what, status, words) }
	says := ""
	if words != "" {
		says = "; it says: " + words
	}
	switch {
	case status == http.StatusUnauthorized && shown != "":
		return n.Error(bridge.ErrCredentials, "it refuses the credentials in the header "+shown+" (HTTP 401): check them", nil)
	case status == http.StatusForbidden && shown != "":
		return n.Error(bridge.ErrCredentials, "it does not let the caller in whose credentials are in the header "+shown+" (HTTP 403): check them"+says, nil)
	case status == http.StatusUnauthorized:
		return n.Error(bridge.ErrCredentials, "it wants credentials (HTTP 401): configure headers for it, such as Authorization", nil)
	case status == http.StatusForbidden:
		return n.Error(bridge.ErrCredentials, "it does not let this caller in (HTTP 403): configure headers for it, such as Authorization"+says, nil)
	case status == http.StatusTooManyRequests: // the server works, and limits this client
		e = n.Rejected(said("it is overloaded or limits its clients"), nil)
	case status == http.StatusServiceUnavailable:
		e = n.Unavailable(said("it is overloaded or limits its clients"), nil)
	case status >= 500 && !harmless:
		return n.Lost(said("it failed"), nil)
	case status >= 500:
		e = n.Unavailable(said("it failed"), nil)
	case status == http.StatusRequestEntityTooLarge:
		return n.Rejected(said("the request is too large for it"), nil)
	case status/100 == 4:
		return n.Rejected(said("it refused the request"), nil)
	default:
		return n.Unavailable(said("it refused the request"), nil)
	}
	if e.After = after; asked {
		e.Public += fmt.Sprintf("; try again in %d s", int(after.Seconds()))
	}
	return e
}

// Said completes a text about a refusal with its status, and the server's words, if any.
func Said(what string, status int, words string) string {
	what = fmt.Sprintf("%s (HTTP %d)", what, status)
	if words == "" {
		return what
	}
	return what + ": " + words
}

// Closed is the error of calls that were in flight when their connection was closed.
func (n Name) Closed() *bridge.Error {
	return n.Error(bridge.ErrLost, "its connection was closed", nil)
}

// Unopened converts the error of a handshake to an error of Open, because the lost or unsent
// request was no client's.
func (n Name) Unopened(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || !errors.Is(e.Kind, bridge.ErrLost) && e.Kind != bridge.ErrUnsent {
		return err
	}
	return n.Unavailable("handshake: "+strings.TrimSuffix(e.Public, unknown), e.Err)
}

// Ended is the error of Open for a handshake that failed with err. If the connection has ended by
// itself, over is the better reason.
func (n Name) Ended(over *bridge.Error, err error) error {
	if over == nil {
		return n.Unopened(err)
	}
	failed := n.Lost(strings.TrimSuffix(over.Public, unknown), nil)
	if e, ok := errors.AsType[*bridge.Error](err); ok && e.Public != over.Public {
		if why, again := errors.AsType[*bridge.Error](e.Err); !again || why.Public != over.Public {
			failed.Err = e.Err
		}
	}
	return n.Unopened(failed)
}

// Life is the state of a connection whose end one goroutine detects, which then calls Gone.
type Life struct {
	mu     sync.Mutex // guards the rest
	open   bool
	closed bool
	over   *bridge.Error
}

// Opened records that Open succeeds. If the connection has ended meanwhile, it returns why.
func (l *Life) Opened() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	l.open = true
	return nil
}

// IsOpen reports whether Open has succeeded.
func (l *Life) IsOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Close records that the bridge ends the connection: its end is not reported then.
func (l *Life) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// IsClosed reports whether the bridge has ended the connection.
func (l *Life) IsClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// End records why the connection has ended by itself. news is false if the bridge has ended it
// before. gone reports whether Gone must be called.
func (l *Life) End(why *bridge.Error) (news, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.over = why
	}
	return !l.closed, !l.closed && l.open
}

// Over returns why the connection has ended by itself, or nil.
func (l *Life) Over() *bridge.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}
