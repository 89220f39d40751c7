package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/mcp-bridge/bridge/internal/cut"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

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
