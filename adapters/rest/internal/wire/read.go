package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/mcp-bridge/bridge/internal/cut"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// answer is an HTTP answer with its body read.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	more     bool    // body is only the beginning
	why      string  // why body is incomplete, after "The answer"
	buf      *[]byte // the buffer of body, if it is from bodies
	streamed bool    // body has the parts of a stream, one a line
}

// contentType returns the media type without its parameters.
func (a *answer) contentType() string { return httpio.MediaType(a.header) }

// tooLarge is the why of an answer that was too large.
const tooLarge = "is larger than what is read of one"

// note says why the answer is incomplete; empty if it is complete.
func (a *answer) note() string {
	if !a.more {
		return ""
	}
	return "The answer " + a.why + ": what is shown is its beginning."
}

// read reads the body of an answer, at most Limits.Body bytes. An answer that breaks off is an
// error unless it is a stream.
func (s *Source) read(ctx context.Context, res *http.Response, progress func(int, string)) (*answer, error) {
	defer func() { _ = res.Body.Close() }()
	a, most := &answer{status: res.StatusCode, header: res.Header}, int(s.o.Limits.Body)
	t := a.contentType()
	if events := t == "text/event-stream"; res.StatusCode < 300 && (events || httpio.IsLines(t)) {
		a.streamed = true
		j := &joiner{
			s:        s,
			a:        a,
			limit:    most,
			progress: progress,
		}
		if events {
			j.readEvents(ctx, res.Body)
		} else {
			j.readLines(ctx, res.Body)
		}
		return a, nil
	}
	a.buf = bodies.Get().(*[]byte)
	b, err := readAll(res.Body, *a.buf, int(min(res.ContentLength, int64(most))), most+1)
	*a.buf = b
	if err != nil {
		a.free()
		return nil, err
	}
	if len(b) > most {
		b, a.more, a.why = b[:most], true, tooLarge
	}
	a.body = b
	return a, nil
}

// bodies are buffers for bodies. Most APIs do not announce the length of an answer, and a new buffer
// for each answer would grow in many steps, each of which copies.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// free returns the body's buffer to bodies. The body must not be used afterwards.
func (a *answer) free() {
	if a.buf != nil && cap(*a.buf) <= announcedRoom {
		bodies.Put(a.buf)
	}
	a.buf, a.body = nil, nil
}

const (
	// announcedRoom bounds the memory that is allocated at once for an announced length, in bytes,
	// since a sender can announce any length.
	announcedRoom = 2 << 20
	// unknownRoom is the memory that is allocated at once if no length is announced, in bytes.
	unknownRoom = 4 << 10
)

// readAll reads r to its end, or until it has most bytes. It reuses buf if that is large enough.
// announced is the probable length, or negative. The buffer never outgrows most, and grows to the
// announced length in few steps, since each step copies.
func readAll(r io.Reader, buf []byte, announced, most int) ([]byte, error) {
	room := unknownRoom
	if announced >= 0 {
		room = min(announced, announcedRoom) + 1 // the read that finds the end needs room as well
	}
	b := buf[:0:min(cap(buf), most)]
	if cap(b) < min(room, most) {
		b = make([]byte, 0, min(room, most))
	}
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF, err == nil && len(b) == most:
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			room = 2 * cap(b)
			if announced >= cap(b) {
				room = min(4*cap(b), announced+1)
			}
			b = append(make([]byte, 0, min(room, most)), b...)
		}
	}
}

const (
	// maxProgress bounds the text of a progress notification, in bytes.
	maxProgress = 2 << 10
	// maxParts bounds the progress notifications of a call. The result has all parts.
	maxParts = 10000
)

// joiner joins the parts of a stream to the body of an answer.
type joiner struct {
	s        *Source
	a        *answer
	limit    int // bytes of the body
	n        int // parts so far
	progress func(int, string)
}

// add adds a part and reports whether to read more.
func (j *joiner) add(part []byte) bool {
	j.n++
	part = j.s.mask(part)
	if j.progress != nil && j.n <= maxParts {
		j.progress(j.n, cut.Head(part, maxProgress))
	}
	if len(j.a.body)+len(part)+1 > j.limit {
		j.a.more, j.a.why = true, tooLarge
		return false
	}
	if j.n > 1 {
		j.a.body = append(j.a.body, '\n')
	}
	j.a.body = append(j.a.body, part...)
	return true
}

// end records how the stream ended. After a fault, the parts that arrived are still a result.
func (j *joiner) end(ctx context.Context, err error) {
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case errors.Is(err, errTooMuch), errors.Is(err, httpio.ErrQuiet):
		j.a.more, j.a.why = true, tooLarge
	case ctx.Err() != nil:
		j.a.more, j.a.why = true, "had not ended in time"
	default:
		j.a.more, j.a.why = true, "broke off"
	}
}

// readEvents reads the data of server-sent events.
func (j *joiner) readEvents(ctx context.Context, body io.Reader) {
	r := httpio.NewReader(&capped{body, j.limit + maxOverhead}, j.limit)
	for {
		e, err := r.Next()
		if e.Oversized != nil {
			j.a.more, j.a.why = true, tooLarge
			return
		}
		if err != nil {
			j.end(ctx, err)
			return
		}
		if e.Data == nil {
			continue
		}
		over := string(e.Data.B) == "[DONE]" // how many APIs end a stream
		more := over || j.add(e.Data.B)
		e.Data.Free()
		if over || !more {
			return
		}
	}
}

// maxOverhead bounds the bytes of a stream besides its data, such as comments.
const maxOverhead = 4 << 20

// errTooMuch is the error of a stream with more bytes than capped allows.
var errTooMuch = errors.New("too much")

// capped ends a stream after left bytes: the server may send much that is no data.
type capped struct {
	r    io.Reader
	left int
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// readLines reads JSON texts, one a line.
func (j *joiner) readLines(ctx context.Context, body io.Reader) {
	r := bufio.NewReaderSize(&capped{body, j.limit + maxOverhead}, 32<<10)
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) <= j.limit {
			continue
		}
		if text := bytes.TrimSpace(line); len(text) > 0 && !j.add(text) {
			return
		}
		if line = line[:0]; err != nil {
			j.end(ctx, err)
			return
		}
	}
}
