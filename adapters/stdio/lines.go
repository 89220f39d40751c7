package stdio

import (
	"bytes"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// readBuffer is the size of a read: the capacity of a pipe.
const readBuffer = 64 << 10

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// lineReader reads lines of any length. (A bufio.Scanner would not.) Most children are silent most
// of the time: it holds no buffer while it waits.
type lineReader struct {
	r     io.Reader
	limit int                 // of a line
	rest  func() io.Writer    // receives a line that is not kept
	room  func(size int) bool // reserves memory before a line grows to size bytes; a line without is not kept. nil means no bound

	raw     syscall.RawConn // of r, if the reader can wait without a buffer
	try     func(fd uintptr) bool
	n       int             // bytes that try read
	err     error           // error of try
	buf     *[]byte         // holds data; nil while there is none
	data    []byte          // read, not yet returned
	line    *jsonrpc.Buffer // incomplete
	over    io.Writer       // receives the rest of line
	widened bool            // the pipe was made larger
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

// next returns the next line, without its line break. A line longer than the limit, or without
// room, is not kept: over has received it. A last line without a line break counts as a line.
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

// fill reads more. All earlier bytes were returned.
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

// A pump reads one of a child's outputs, line by line.
type pump struct {
	lines *lineReader
	take  func(line *jsonrpc.Buffer, over io.Writer) // called with each result of lineReader.next
	end   func()                                     // called once, when nothing more can be read
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
