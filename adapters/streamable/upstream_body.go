package streamable

import (
	"errors"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// trusted bounds the memory that is allocated at once for an announced length, in bytes. For a longer
// body, the memory grows as bytes arrive.
const trusted = 1<<20 + conn.EnvelopeRoom

// errNotKept is the error of readBody for a body that is larger than the limit, or for which there
// is no room.
var errNotKept = errors.New("larger than the limit, or without room")

// readBody reads the body of a response, of at most limit bytes, and reserves room for it with in. If
// it returns an error, the HTTP connection is not reused.
func readBody(res *http.Response, limit int, in *conn.Intake) (*jsonrpc.Buffer, error) {
	defer res.Body.Close()
	if res.ContentLength > int64(limit) {
		return nil, errNotKept
	}
	buf := jsonrpc.NewBuffer(int(min(max(res.ContentLength, 0), trusted)) + 1) // one byte more, to detect the end
	for {
		if len(buf.B) == cap(buf.B) {
			bigger := jsonrpc.NewBuffer(2 * cap(buf.B))
			bigger.B = append(bigger.B, buf.B...)
			buf.Free()
			buf = bigger
		}
		n, err := res.Body.Read(buf.B[len(buf.B):cap(buf.B)])
		buf.B = buf.B[:len(buf.B)+n]
		switch {
		case len(buf.B) > limit || !in.Size(len(buf.B)):
			buf.Free()
			return nil, errNotKept
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			buf.Free()
			return nil, err
		}
	}
}

// maxDiscard bounds the bytes of an unused body that discard reads.
const maxDiscard = 4 << 10

// discard reads the rest of a response, so that its HTTP connection can be reused.
func discard(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDiscard)
	abort(res)
}

// abort closes a response. Unless the response was read to its end, its HTTP connection closes as
// well.
func abort(res *http.Response) { _ = res.Body.Close() }

// messages parses a text, and calls each with every message in it. The messages own buf and the
// room that in has reserved. The error describes the first part that is no message.
func (l *link) messages(buf *jsonrpc.Buffer, in *conn.Intake, each func(*jsonrpc.Message)) error {
	texts := conn.Parser{Options: l.a.o, Conn: l.Conn}
	return texts.Parse(buf, buf.B, in, each)
}

// receive delivers a message from the stream of the call with that number; 0 means the standalone
// stream. After rest.Gone, it delivers only progress, and drops other messages.
func (w *wire) receive(on int64, m *jsonrpc.Message) {
	if w.clientNotified.Load() && m.Method != "notifications/progress" {
		m.Release()
		return
	}
	w.DeliverOn(on, m)
}
