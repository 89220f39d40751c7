package sse

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// maxReply is how much of a body is read that says nothing to us, so that the
// HTTP connection can be used again.
const maxReply = 64 << 10

// posted takes the answer to a POST. The answer to a call comes on the stream;
// that of some servers comes here.
func (c *connection) posted(p *post, res *http.Response) {
	defer res.Body.Close()
	ok := res.StatusCode >= 200 && res.StatusCode < 300
	mine := p.Call != 0 && httpio.MediaType(res.Header) == httpio.JSON
	limit := maxReply
	if ok && mine {
		limit = c.u.o.MaxMessage + conn.EnvelopeRoom
	}
	in := c.Intake()
	defer in.Drop()
	body, err := io.ReadAll(&within{Reader: io.LimitReader(res.Body, int64(limit)+1), in: &in}) // what is not whole is no message
	switch status := res.StatusCode; {
	case ok && mine && (len(body) > limit || errors.Is(err, errNoRoom)): // nothing but the answer is so large
		c.Unkept(&in, strconv.AppendInt(nil, p.Call, 10), c.u.o.MaxMessage)
	case ok:
		if mine {
			c.answered(p, body, &in)
		}
	case forgotten(status, body):
		c.forget(p, status)
	case mine && status != http.StatusUnauthorized && status != http.StatusForbidden && c.answered(p, body, &in):
	default:
		c.settle(p, c.u.refusal(res))
	}
}

// within is a body, as far as there is room for it.
type within struct {
	io.Reader
	in *conn.Intake
	n  int // bytes that have come
}

var errNoRoom = errors.New("no room for it")

// Read implements io.Reader.
func (w *within) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if w.n += n; !w.in.Size(w.n) {
		return 0, errNoRoom
	}
	return n, err
}

// answered takes the body of a POST if it is the answer to the call, and
// reports whether it was. An error without id is about what was POSTed.
func (c *connection) answered(p *post, body []byte, in *conn.Intake) bool {
	id := strconv.AppendInt(nil, p.Call, 10)
	m, err := c.u.o.Read(body)
	if err != nil || !m.IsResponse() || m.ID != nil && string(m.ID) != string(id) {
		return false
	}
	m.ID = id
	if m.Len() > c.u.o.MaxMessage+2*conn.EnvelopeRoom || !in.Size(m.Len()) { // U+FFFD has three bytes
		c.Unkept(in, id, c.u.o.MaxMessage)
		return true
	}
	in.Give(m)
	c.Deliver(m)
	return true
}

// forgotten reports whether a refusal says that the server does not know the
// session any more.
func forgotten(status int, body []byte) bool {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return true
	case http.StatusBadRequest: // so do many, also the official SDKs
		text := strings.ToLower(string(body[:min(len(body), 1<<10)]))
		if !strings.Contains(text, "session") {
			return false
		}
		for _, word := range []string{"not found", "no transport", "no session", "not exist", "unknown", "invalid", "expired", "closed", "terminated", "could not find"} {
			if strings.Contains(text, word) {
				return true
			}
		}
	}
	return false
}

// forget ends the connection: the server has refused a message because it does
// not know the session. It has not acted on that one.
func (c *connection) forget(p *post, status int) {
	why := c.u.name.Unsent(fmt.Sprintf("it has forgotten the session (HTTP %d)", status), nil)
	if !c.life.IsOpen() {
		why = c.u.name.Unavailable(fmt.Sprintf("its endpoint does not take messages (HTTP %d)", status), nil)
	}
	c.Abort(p.Call, why)
	c.giveUp(why)
}

// refusal is the error of a request that had this response. Whether the server
// acted on it is unknown when the fault is one of its own or of a gateway.
func (u *Upstream) refusal(res *http.Response) *bridge.Error {
	after, asked := remote.RetryAfter(res.Header)
	harmless := res.Request.Method != http.MethodPost || res.StatusCode == http.StatusNotImplemented
	return u.name.Refused(res.StatusCode, after, asked, harmless, func(what string) string { return fmt.Sprintf("%s (HTTP %d)", what, res.StatusCode) })
}
