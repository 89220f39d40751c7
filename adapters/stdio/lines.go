package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// readBuffer is how much is read at once: what a pipe holds.
const readBuffer = 64 << 10

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// errQuiet says that nothing came for some time.
var errQuiet = errors.New("nothing to read")

// lineReader reads lines of any length. (A bufio.Scanner would not.) Most
// children are silent most of the time: while nothing comes it holds no buffer.
type lineReader struct {
	r       io.Reader
	limit   int                 // of a line
	rest    func() io.Writer    // takes what a longer line says
	room    func(size int) bool // asked before a line grows to size bytes; where there is none, the line is treated as a longer one. nil means that there always is
	quiet   time.Duration       // after which next gives up with errQuiet; 0 means never
	watched func()              // called after a deadline was set for that

	file    *os.File        // r, where it can be waited for without a buffer
	raw     syscall.RawConn // of file
	try     func(fd uintptr) bool
	n       int   // what try read
	err     error // and how it ended
	until   time.Time
	buf     *[]byte         // holds data; nil while there is none
	data    []byte          // read, not yet handed on
	line    *jsonrpc.Buffer // begun, not yet ended
	over    io.Writer       // takes the rest of line
	widened bool            // the pipe was made larger
}

func newLineReader(r io.Reader, limit int, rest func() io.Writer) *lineReader {
	l := &lineReader{r: r, limit: limit, rest: rest}
	if f, ok := r.(*os.File); ok && canTry {
		if raw, err := f.SyscallConn(); err == nil {
			l.file, l.raw, l.try = f, raw, l.tryRead
		}
	}
	return l
}

// next returns the next line, without its line break. Of a line longer than
// the limit, or without room, nothing is kept: over is what has taken it. A last line without a
// line break counts as a line. After errQuiet it can be called again, and goes
// on where it was.
func (l *lineReader) next() (line *jsonrpc.Buffer, over io.Writer, err error) {
	for {
		if len(l.data) == 0 {
			if err := l.fill(); err != nil {
				if err == io.EOF && l.line != nil {
					line, over = l.end()
					return line, over, nil
				}
				return nil, nil, err
			}
		}
		if l.line == nil {
			l.line = jsonrpc.NewBuffer(0)
		}
		part, found := l.data, false
		if i := bytes.IndexByte(l.data, '\n'); i >= 0 {
			part, found = l.data[:i], true
			l.data = l.data[i+1:]
		} else {
			l.data = nil
		}
		l.take(part)
		if found {
			line, over = l.end()
			return line, over, nil
		}
	}
}

// take adds to the line.
func (l *lineReader) take(part []byte) {
	if l.over == nil && (len(l.line.B)+len(part) > l.limit || l.room != nil && !l.room(len(l.line.B)+len(part))) {
		l.over = l.rest()
		_, _ = l.over.Write(l.line.B)
		l.line.Free()
	}
	if l.over != nil {
		_, _ = l.over.Write(part)
		return
	}
	l.line.Append(part)
	if len(l.line.B) > readBuffer && !l.widened {
		l.widened = true
		widen(l.r)
	}
}

func (l *lineReader) end() (*jsonrpc.Buffer, io.Writer) {
	line, over := l.line, l.over
	l.line, l.over = nil, nil
	return line, over
}

// fill reads more. What was read before has been handed on.
func (l *lineReader) fill() error {
	l.n, l.err = 0, nil
	if l.raw == nil {
		l.hold()
		if l.n, l.err = l.r.Read(*l.buf); l.n == 0 && l.err == nil {
			l.err = io.ErrNoProgress
		}
	} else {
		l.watch()
		if err := l.raw.Read(l.try); err != nil {
			l.drop()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return errQuiet
			}
			return err
		}
	}
	if l.n > 0 {
		l.data = (*l.buf)[:l.n]
		return nil
	}
	l.drop()
	if l.err == nil {
		return io.EOF
	}
	return l.err
}

// watch sets the time at which fill gives up, not on every turn but often
// enough.
func (l *lineReader) watch() {
	if l.quiet == 0 {
		return
	}
	if now := time.Now(); l.until.Sub(now) < l.quiet/2 {
		l.until = now.Add(l.quiet)
		_ = l.file.SetReadDeadline(l.until) // without it, the goroutine stays
		l.watched()
	}
}

func (l *lineReader) hold() {
	if l.buf == nil {
		l.buf = readBuffers.Get().(*[]byte)
	}
}

func (l *lineReader) drop() {
	if l.buf != nil {
		readBuffers.Put(l.buf)
		l.buf = nil
	}
}
