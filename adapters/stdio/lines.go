package stdio

import (
	"bytes"
	"io"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Most children are silent most of the time, so an idle reader holds little
// and takes a large buffer only while there is much to read.
const (
	idleBuffer = 1 << 10
	busyBuffer = 64 << 10
)

var busyBuffers = sync.Pool{New: func() any { b := make([]byte, busyBuffer); return &b }}

// lineReader reads lines of any length. (A bufio.Scanner would not.)
type lineReader struct {
	r    io.Reader
	idle []byte
	busy *[]byte
	data []byte // read, not yet handed on; a part of idle or busy
	full bool   // the last read took all there was room for
	wide bool   // the pipe was widened
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, idle: make([]byte, idleBuffer)}
}

// next appends the next line, without its line break, to dst. Of a line longer
// than limit nothing is kept; it goes to rest instead, and long is true. A
// last line without a line break counts as a line.
func (l *lineReader) next(dst *jsonrpc.Buffer, limit int, rest io.Writer) (long bool, err error) {
	for {
		if len(l.data) == 0 {
			if err := l.fill(); err != nil {
				if err == io.EOF && (len(dst.B) > 0 || long) {
					return long, nil
				}
				return long, err
			}
		}
		part, found := l.data, false
		if i := bytes.IndexByte(l.data, '\n'); i >= 0 {
			part, found = l.data[:i], true
			l.data = l.data[i+1:]
		} else {
			l.data = nil
		}
		if !long && len(dst.B)+len(part) > limit {
			long = true
			_, _ = rest.Write(dst.B)
			dst.B = dst.B[:0]
		}
		if long {
			_, _ = rest.Write(part)
		} else {
			dst.Append(part)
		}
		if len(dst.B) > busyBuffer && !l.wide {
			l.wide = true
			widen(l.r)
		}
		if found {
			return long, nil
		}
	}
}

// fill reads more. What was read before has been handed on.
func (l *lineReader) fill() error {
	to := l.idle
	if l.full { // the last read took all there was room for: more is waiting
		if l.busy == nil {
			l.busy = busyBuffers.Get().(*[]byte)
		}
		to = *l.busy
	} else if l.busy != nil {
		busyBuffers.Put(l.busy)
		l.busy = nil
	}
	n, err := l.r.Read(to)
	l.data = to[:n]
	l.full = n == len(to) || l.busy != nil && n > idleBuffer
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
