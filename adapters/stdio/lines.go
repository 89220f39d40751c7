package stdio

import (
	"bytes"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// readBuffer is the size of a read, in bytes: the capacity of a pipe.
const readBuffer = 64 << 10

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// lineReader reads lines of any length, which a bufio.Scanner cannot. Most children are silent most
// of the time, so a waiting lineReader has no buffer.
type lineReader struct {
	r     io.Reader
	limit int              // of a line, in bytes
	rest  func() io.Writer // returns the receiver of a line that is not kept
	// room reserves memory before a line grows to size bytes. If it reports false, the line is not
	// kept. If it is nil, memory is not bounded.
	room func(size int) bool

	raw     syscall.RawConn       // of r, if the reader can wait without a buffer; otherwise nil
	try     func(fd uintptr) bool // tryRead
	n       int                   // bytes that try has read
	err     error                 // error of try
	buf     *[]byte               // memory of data; nil while there is no data
	data    []byte                // bytes that were read and not yet returned
	line    *jsonrpc.Buffer       // the incomplete line
	over    io.Writer             // receives the rest of a line that is not kept
	widened bool                  // the pipe was made larger
}

func newLineReader(r io.Reader, limit int, rest func() io.Writer) *lineReader {
	l := &lineReader{
		r:     r,
		limit: limit,
		rest:  rest,
	}
	if f, ok := r.(*os.File); ok && canTry {
		if raw, err := f.SyscallConn(); err == nil {
			l.raw, l.try = raw, l.tryRead
		}
	}
	return l
}

// next returns the next line, without its line break. If a line is longer than the limit, or there
// is no room for it, over is not nil and has received the line, and the caller must not use line. A
// last line without a line break counts as a line.
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

// take adds a part to the line.
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

// fill reads more data. l.data must be empty.
func (l *lineReader) fill() error {
	l.n, l.err = 0, nil
	if l.raw == nil {
		l.hold()
		if l.n, l.err = l.r.Read(*l.buf); l.n == 0 && l.err == nil {
			l.err = io.ErrNoProgress
		}
	} else if err := l.raw.Read(l.try); err != nil {
		l.drop()
		return err
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

// pump reads one of a child's outputs, line by line.
type pump struct {
	lines *lineReader
	take  func(line *jsonrpc.Buffer, over io.Writer) // called with each result of lineReader.next
	end   func()                                     // called once, after the last line
}

// run reads until the output ends, or until the read deadline after the child's end.
func (p *pump) run() {
	for {
		line, over, err := p.lines.next()
		if err != nil {
			p.end()
			return
		}
		p.take(line, over)
	}
}
