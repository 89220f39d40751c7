package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/mcp-bridge/bridge/internal/adapters/media"
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
func (a *answer) contentType() string { return media.Of(a.header) }

// tooLarge is why there is more.
const tooLarge = "is larger than what is read of one"

var errEncoding = errors.New("the answer is compressed in a way that was not asked for")

// read reads the body of an answer, of at most limit bytes, decompressed. An
// answer that breaks off is an error unless it is a stream.
func (s *Source) read(ctx context.Context, res *http.Response, progress func(int, string)) (*answer, error) {
	defer func() { _ = res.Body.Close() }()
	a := &answer{status: res.StatusCode, header: res.Header}
	var body io.Reader = res.Body
	switch enc := strings.ToLower(strings.TrimSpace(res.Header.Get("Content-Encoding"))); {
	case enc == "" || enc == "identity" || res.ContentLength == 0 || empty(res.StatusCode):
	case enc == "gzip" || enc == "x-gzip":
		r := bufio.NewReader(res.Body)
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			break
		}
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		body = z
	default:
		return nil, errEncoding
	}
	if res.StatusCode < 300 {
		switch t := a.contentType(); {
		case t == "text/event-stream":
			s.readEvents(ctx, a, body, progress)
			return a, nil
		case media.IsLines(t):
			s.readLines(ctx, a, body, progress)
			return a, nil
		}
	}
	b, err := readAll(io.LimitReader(body, int64(s.o.MaxBody)+1), min(res.ContentLength, int64(s.o.MaxBody)))
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

// empty reports whether answers with a status have no body.
func empty(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}
