package wire

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/internal/httpio"
)

// answer is an HTTP answer that was read.
type answer struct {
	status int
	header http.Header
	body   []byte
	// more: there was more than may be read, or the answer broke off; why says
	// which.
	more bool
	why  string
	// streamed: the body is the parts of a stream, joined.
	streamed bool
}

// contentType returns the media type without its parameters.
func (a *answer) contentType() string { return httpio.MediaType(a.header) }

// tooLarge is why there is more.
const tooLarge = "is larger than what is read of one"

// read reads the body of an answer, of at most limit bytes. An
// answer that breaks off is an error unless it is a stream.
func (s *Source) read(ctx context.Context, res *http.Response, progress func(int, string)) (*answer, error) {
	defer func() { _ = res.Body.Close() }()
	a := &answer{status: res.StatusCode, header: res.Header}
	if res.StatusCode < 300 {
		switch t := a.contentType(); {
		case t == "text/event-stream":
			s.readEvents(ctx, a, res.Body, progress)
			return a, nil
		case httpio.IsLines(t):
			s.readLines(ctx, a, res.Body, progress)
			return a, nil
		}
	}
	b, err := readAll(io.LimitReader(res.Body, int64(s.o.MaxBody)+1), min(res.ContentLength, int64(s.o.MaxBody)))
	if err != nil {
		return nil, err
	}
	if len(b) > s.o.MaxBody {
		b, a.more, a.why = b[:s.o.MaxBody], true, tooLarge
	}
	a.body = b
	return a, nil
}

const (
	// announcedRoom is how much of an announced length is believed at once: an
	// announcement costs its sender nothing.
	announcedRoom = 2 << 20
	unknownRoom   = 4 << 10
)

// readAll reads until the end. announced is how much there probably is, or
// negative; compressed, there is more.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	room := unknownRoom
	if announced >= 0 {
		room = int(min(announced, announcedRoom)) + bytes.MinRead // without which a buffer grows before the end is seen
	}
	b := bytes.NewBuffer(make([]byte, 0, room))
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}
