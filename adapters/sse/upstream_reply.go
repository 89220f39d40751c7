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

// maxReply bounds the bytes of a response without an answer that are read, so that the HTTP connection
// can be reused.
const maxReply = 64 << 10

// posted handles the response to a POST. The answer to a call should come on the stream, but some
// servers send it in this response.
func (c *connection) posted(p *post, res *http.Response) {
	defer res.Body.Close()
	ok := res.StatusCode >= 200 && res.StatusCode < 300
	mine := p.Call != 0 && remote.Kind(res) == httpio.JSON
	limit := maxReply
	if ok && mine {
		limit = c.u.o.MaxMessage + conn.EnvelopeRoom
	}
	in := c.Intake()
	defer in.Drop()
	body, err := io.ReadAll(&within{Reader: io.LimitReader(res.Body, int64(limit)+1), in: &in}) // an incomplete body is not a message
	switch status := res.StatusCode; {
	case ok && mine && (len(body) > limit || errors.Is(err, errNoRoom)): // so large a body can only be the answer
		c.AnswerNotKept(&in, strconv.AppendInt(nil, p.Call, 10), c.u.o.MaxMessage)
	case ok && mine && isCoding(err):
		c.settle(p, remote.Broken(c.u.name, "", err))
	case ok:
		if mine {
			c.answered(p, body, &in)
		}
	case forgotten(status, body):
		c.forget(p, status)
	case mine && status != http.StatusUnauthorized && status != http.StatusForbidden && c.answered(p, body, &in):
	default:
		c.settle(p, c.u.refusal(res, body))
	}
}

// isCoding reports whether err says that a body does not have its Content-Encoding.
func isCoding(err error) bool {
	_, is := errors.AsType[remote.CodingError](err)
	return is
}

// within is a body that reserves memory for its bytes with in, while they are read.
type within struct {
	io.Reader
	in *conn.Intake
	n  int // bytes read
}

var errNoRoom = errors.New("no memory for it")

// Read implements io.Reader.
func (w *within) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if w.n += n; !w.in.Size(w.n) {
		return 0, errNoRoom
	}
	return n, err
}

// answered delivers the body of the response to a POST if it is the answer to the call. It reports
// whether the body is the answer. An error without an id is about the POST.
func (c *connection) answered(p *post, body []byte, in *conn.Intake) bool {
	id := strconv.AppendInt(nil, p.Call, 10)
	m, err := c.u.o.Read(body)
	if err != nil || !m.IsResponse() || m.ID != nil && string(m.ID) != string(id) {
		return false
	}
	m.ID = id
	if m.Len() > c.u.o.MaxMessage+2*conn.EnvelopeRoom || !in.Size(m.Len()) { // may have grown: U+FFFD, for an invalid byte, has three
		c.AnswerNotKept(in, id, c.u.o.MaxMessage)
		return true
	}
	in.Give(m)
	c.Deliver(m)
	return true
}

// forgotten reports whether a refusal means that the server has forgotten the session.
func forgotten(status int, body []byte) bool {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return true
	case http.StatusBadRequest: // how many servers answer, including those of the official SDKs
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

// forget ends the connection because the server has lost the session. The server has not acted on
// p, which it has refused.
func (c *connection) forget(p *post, status int) {
	why := c.u.name.Unsent(fmt.Sprintf("it has forgotten the session (HTTP %d)", status), nil)
	if !c.life.IsOpen() {
		why = c.u.name.Unavailable(fmt.Sprintf("its endpoint does not take messages (HTTP %d)", status), nil)
	}
	c.Abort(p.Call, why)
	c.giveUp(why)
}

// refusal returns the error of a request that got this response; body is the beginning of its body.
// After a fault of the server or a gateway, the server may have acted on a POST.
func (u *Upstream) refusal(res *http.Response, body []byte) *bridge.Error {
	after, asked := remote.RetryAfter(res.Header)
	harmless := res.Request.Method != http.MethodPost || res.StatusCode == http.StatusNotImplemented
	return u.name.Refused(res.StatusCode, remote.Credentials(res.Request), after, asked, harmless, remote.Words(res, body))
}
