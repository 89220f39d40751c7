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

// Options are the limits of a server's connections, and the eras and revisions that the bridge uses with it.
type Options struct {
	Log        *slog.Logger // nil means slog.Default()
	MaxMessage int          // bytes of one message from the server; 0 means 16 MiB
	Timeouts   Timeouts     // limits of each call; 0 means none
	// FailFast means that after a server refused a connection, the bridge does not try again for a while. Without it,
	// the server may be about to start.
	FailFast bool
	// Era limits the eras that the bridge uses; empty means EraAuto. A transport that has only one era ignores Era.
	Era Era
	// Revision is the newest revision that the bridge offers to a legacy server; empty means no limit.
	Revision string

	odd *oddities // shared by all connections to the server
}

// Filled returns the options with their defaults, for the server of that name.
func (o Options) Filled(server string) Options {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", server)
	o.MaxMessage = cmp.Or(max(o.MaxMessage, 0), 16<<20)
	o.odd = new(oddities)
	return o
}

// EnvelopeRoom is how many bytes a message may have beyond the limit on its payload, for the members around the
// payload. So an answer that is as large as the limit allows does not fail because of these members.
const EnvelopeRoom = 64 << 10

// Name is the name of a server. Its methods return errors about the server. why is for clients. err is the cause for
// the log, or nil.
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

// unknown is the end of the text about a call that the server may have executed.
const unknown = "; whether it acted on the request is unknown"

// Lost returns the error of a call that the server may have executed.
func (n Name) Lost(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrLost, why+unknown, err)
}

// Invalid returns the error of a call whose response is not a valid answer. The server may have executed the call.
func (n Name) Invalid(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrInvalid, why+unknown, err)
}

// Unavailable returns the error of a call that the server has not executed.
func (n Name) Unavailable(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrUnavailable, why, err)
}

// Rejected returns the error of a call that the server has rejected, while it may accept others.
func (n Name) Rejected(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrRejected, why, err)
}

// Unsent returns the error of a call that the bridge may make again on another connection.
func (n Name) Unsent(why string, err error) *bridge.Error {
	return n.Error(bridge.ErrUnsent, why, err)
}

// Refused returns the error of a request that got this HTTP status and no answer. shown is the header with the
// request's credentials, or empty. asked reports whether the response has Retry-After, and after is its value. words
// are the server's explanation, or empty. After a status of 500 and above, the server may have executed the request,
// unless harmless is set.
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
	case status == http.StatusTooManyRequests: // the server works, but limits this client
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

// Said appends the status to a text about a refusal, and the server's explanation if there is one.
func Said(what string, status int, words string) string {
	what = fmt.Sprintf("%s (HTTP %d)", what, status)
	if words == "" {
		return what
	}
	return what + ": " + words
}

// Closed returns the error of calls that were in flight when the bridge closed their connection.
func (n Name) Closed() *bridge.Error {
	return n.Error(bridge.ErrLost, "its connection was closed", nil)
}

// Unopened turns the error of a handshake into an error of Open: the lost or unsent request was that of the bridge, not
// of a client.
func (n Name) Unopened(err error) error {
	e, ok := errors.AsType[*bridge.Error](err)
	if !ok || !errors.Is(e.Kind, bridge.ErrLost) && e.Kind != bridge.ErrUnsent {
		return err
	}
	return n.Unavailable("handshake: "+strings.TrimSuffix(e.Public, unknown), e.Err)
}

// Ended returns the error of Open for a handshake that failed with err. over, if not nil, is why the connection ended
// by itself, and is the better reason.
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

// Life is the state of a connection whose end one goroutine notices, and reports with Client.Gone.
type Life struct {
	mu     sync.Mutex // guards the rest
	open   bool
	closed bool
	over   *bridge.Error
}

// Opened records that Open succeeds. If the connection has already ended, Opened returns the reason.
func (l *Life) Opened() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	l.open = true
	return nil
}

// IsOpen reports whether Opened has succeeded.
func (l *Life) IsOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Close records that the bridge closes the connection, so that its end is not reported.
func (l *Life) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// IsClosed reports whether Close was called.
func (l *Life) IsClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// End records why the connection ended by itself. news is false if the bridge closed the connection before. gone
// reports whether the caller must call Client.Gone.
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
