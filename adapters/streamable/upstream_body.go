package streamable

import (
	"errors"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/conn"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// trusted is how much of an announced length is believed at once. For more, the
// memory grows as the bytes come.
const trusted = 1<<20 + conn.EnvelopeRoom

var errUnkept = errors.New("larger than the limit, or without room")

// readBody reads a response of at most limit bytes straight into the memory of
// its message, as far as in has room for it. The HTTP connection of one that is not
// kept is not used again.
func readBody(res *http.Response, limit int, in *conn.Intake) (*jsonrpc.Buffer, error) {
	defer res.Body.Close()
	if res.ContentLength > int64(limit) {
		return nil, errUnkept
	}
	buf := jsonrpc.NewBuffer(int(min(max(res.ContentLength, 0), trusted)) + 1) // with room to see the end
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
			return nil, errUnkept
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			buf.Free()
			return nil, err
		}
	}
}

// maxDiscard is how much of a body that says nothing is read for the sake of
// its HTTP connection.
const maxDiscard = 4 << 10

// discard reads what is left of a response, so that its HTTP connection can be
// used again.
func discard(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDiscard)
	abort(res)
}

// abort gives a response up, and its HTTP connection with it unless all of it
// was read.
func abort(res *http.Response) { _ = res.Body.Close() }

// messages hands on the messages of a text, of which each owns what it is made
// of, and has the room that in has taken. It takes buf. The error says what of it is no
// message.
func (l *link) messages(buf *jsonrpc.Buffer, in *conn.Intake, each func(*jsonrpc.Message)) error {
	texts := conn.Parser{Options: l.a.o, Conn: l.Conn}
	return texts.Parse(buf, buf.B, in, each)
}

// hear takes what the server says on the stream of the call of that number, or by
// itself, which is 0. When rest has been told of the connection's end, only the
// progress of calls is of use.
func (w *wire) hear(on int64, m *jsonrpc.Message) {
	if w.over.Load() && m.Method != "notifications/progress" {
		m.Release()
		return
	}
	w.DeliverOn(on, m)
}
