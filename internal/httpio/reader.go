package httpio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Received is one event that a Reader has read. Events without data are
// reported too if they have an id, a retry or an empty line of data.
type Received struct {
	ID    string          // of this event; see HasID
	HasID bool            // an empty id is one: it resets the position
	Type  string          // "message" unless the event says otherwise
	Data  *jsonrpc.Buffer // owned by the receiver; nil when there is no data, or too much
	Over  *jsonrpc.Finder // has seen the data of an event that is larger than the limit, or has no room
	Retry time.Duration   // how long to wait before the stream is opened again; see HasRetry
	// HasRetry tells a retry of 0 from none.
	HasRetry bool
}

// Reader reads a stream of server-sent events. Unlike a library for browsers'
// events it keeps no more than one event, reads the data of a large one
// straight into the buffer of its message, and bounds it. It is for one
// goroutine.
type Reader struct {
	// Room is asked before the data of an event grows to size bytes. Where there is
	// none, the data is treated as larger than the limit. It is told 0 when the data
	// is not kept. nil means that there always is room.
	Room func(size int) bool

	r     io.Reader
	limit int
	err   error

	idle  []byte  // the window while little comes
	wide  *[]byte // a larger one from the pool while much comes; or nil
	win   []byte  // what was read and not yet used, a part of idle or wide
	begun bool    // the beginning of the stream, where a BOM may stand, is behind us
	cr    bool    // the line before ended with CR: an LF belongs to it
	text  []byte  // the line, or the part of it before its data
	lines int     // of data in this event
	size  int     // of its data
	over  *jsonrpc.Finder
	data  *jsonrpc.Buffer
}

const (
	idleWindow = 512
	wideWindow = 32 << 10
	// maxText bounds a line that is not data: a comment, an id, an unknown field.
	maxText = 16 << 10
	// maxRetry bounds what a server may ask us to wait.
	maxRetry = 24 * time.Hour
	// maxOver is how many times the limit the data of an event may have before its
	// end is not waited for any more. Up to there it is read, for the id of the
	// message, which may stand last.
	maxOver = 4
)

// ErrEndless says that the data of an event is far larger than the limit, and its
// end not in sight.
var ErrEndless = errors.New("event stream: an event is far larger than the limit")

var dataField = []byte("data")

var windows = sync.Pool{New: func() any { b := make([]byte, wideWindow); return &b }}

// NewReader makes a Reader of r. The data of an event may have limit bytes.
func NewReader(r io.Reader, limit int) *Reader { return &Reader{r: r, limit: limit} }

// Next reads the next event. The error is io.EOF when the stream has ended, and
// remains; an event that was not finished by then is dropped, as the
// specification of server-sent events has it. With ErrEndless comes what was seen
// of the event, the first time.
func (r *Reader) Next() (Received, error) {
	e := Received{Type: "message"}
	some := false
	for {
		field, value, err := r.line()
		switch {
		case err != nil:
			e.Over = r.over
			r.forget()
			if errors.Is(err, ErrEndless) {
				return e, err
			}
			if e.HasRetry { // the error comes again
				return Received{Type: "message", Retry: e.Retry, HasRetry: true}, nil // that counts at once
			}
			return Received{}, err
		case field == nil: // an empty line
			if !some && r.lines == 0 {
				e.Type = "message" // a type alone is no event
				continue
			}
			e.Data, e.Over = r.data, r.over
			if e.Data != nil && len(e.Data.B) == 0 {
				e.Data.Free()
				e.Data = nil
			}
			r.data, r.over, r.lines, r.size = nil, nil, 0, 0
			r.narrow()
			return e, nil
		case string(field) == "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, e.HasID, some = string(value), true, true
			}
		case string(field) == "event":
			if e.Type = "message"; len(value) > 0 && string(value) != e.Type {
				e.Type = string(value)
			}
		case string(field) == "retry":
			ms, err := strconv.ParseUint(string(value), 10, 64)
			if err == nil || errors.Is(err, strconv.ErrRange) {
				e.Retry = time.Duration(min(ms, uint64(maxRetry/time.Millisecond))) * time.Millisecond
				e.HasRetry, some = true, true
			}
		}
	}
}

// forget drops an unfinished event and gives back what it holds.
func (r *Reader) forget() {
	r.data.Free()
	r.data, r.over, r.lines, r.size, r.win = nil, nil, 0, 0, nil
	r.narrow()
}

// line reads one line. Data goes where it belongs; all other fields are
// returned, valid until the next line. An empty line has a nil field.
func (r *Reader) line() (field, value []byte, err error) {
	r.text = r.text[:0]
	isData := false
	for {
		part, end, err := r.part()
		if err != nil {
			return nil, nil, err
		}
		if isData {
			r.add(part)
		} else {
			isData = r.begin(part, end)
		}
		switch {
		case r.size/maxOver > r.limit:
			r.err = ErrEndless
			return nil, nil, r.err
		case !isData && len(r.text) > maxText && r.text[0] != ':':
			r.err = fmt.Errorf("event stream: a line is longer than %d bytes and is not data", maxText)
			return nil, nil, r.err
		case !end:
			if !isData && len(r.text) > maxText {
				r.text = r.text[:1] // a long comment: that it is one is all that matters
			}
			continue
		case isData:
			return dataField, nil, nil
		case len(r.text) == 0:
			return nil, nil, nil
		}
		name, value, _ := bytes.Cut(r.text, []byte(":"))
		return name, bytes.TrimPrefix(value, []byte(" ")), nil
	}
}

// begin adds a part to a line of which it is not known yet what it is. It
// reports whether it is data; then what was read of that is where it belongs.
func (r *Reader) begin(part []byte, end bool) bool {
	const data = "data:"
	if len(r.text) == 0 && len(part) > len(data) && string(part[:len(data)]) == data { // the usual case: no copy
		r.open()
		r.add(bytes.TrimPrefix(part[len(data):], []byte(" ")))
		return true
	}
	r.text = append(r.text, part...)
	switch {
	case end && string(r.text) == "data":
		r.open()
		return true
	case bytes.HasPrefix(r.text, []byte(data)) && (end || len(r.text) > len(data)): // the space behind it is in sight
		r.open()
		r.add(bytes.TrimPrefix(r.text[len(data):], []byte(" ")))
		return true
	}
	return false
}

// open begins a line of data.
func (r *Reader) open() {
	if r.data == nil && r.over == nil {
		r.data = jsonrpc.NewBuffer(0)
	}
	if r.lines++; r.lines > 1 {
		r.add([]byte{'\n'})
	}
}

func (r *Reader) add(part []byte) {
	r.size += len(part)
	if r.over == nil && (len(r.data.B)+len(part) > r.limit || r.Room != nil && !r.Room(len(r.data.B)+len(part))) {
		if r.Room != nil {
			r.Room(0)
		}
		r.over = &jsonrpc.Finder{}
		_, _ = r.over.Write(r.data.B)
		r.data.Free()
		r.data = nil
	}
	if r.over != nil {
		_, _ = r.over.Write(part)
		return
	}
	r.data.Append(part)
}

// part returns the next part of a line, without what ends it, and whether the
// line ends with it. It is valid until the next part is read.
func (r *Reader) part() (part []byte, end bool, err error) {
	for len(r.win) == 0 {
		if r.err != nil {
			return nil, false, r.err
		}
		r.fill()
	}
	if r.cr {
		r.cr = false
		if r.win[0] == '\n' {
			r.win = r.win[1:]
			return r.part()
		}
	}
	i := bytes.IndexByte(r.win, '\n')
	whole := r.win
	if i >= 0 {
		whole = r.win[:i]
	}
	if j := bytes.IndexByte(whole, '\r'); j >= 0 {
		part, r.win, r.cr = whole[:j], r.win[j+1:], true
		return part, true, nil
	}
	if i < 0 {
		r.win = nil
		return whole, false, nil
	}
	r.win = r.win[i+1:]
	return whole, true, nil
}

// fill reads more. A read that fills the window is followed by larger ones.
func (r *Reader) fill() {
	b := r.idle
	switch {
	case r.wide != nil:
		b = *r.wide
	case b == nil:
		r.idle = make([]byte, idleWindow)
		b = r.idle
	}
	n, err := r.r.Read(b)
	r.err = err
	r.win = b[:n]
	if !r.begun {
		r.mark()
	}
	if n == len(b) && r.wide == nil {
		var ok bool
		if r.wide, ok = windows.Get().(*[]byte); !ok {
			panic("eventstream: the pool holds windows only")
		}
	}
}

// mark skips a byte order mark at the beginning of the stream.
func (r *Reader) mark() {
	const bom = "\xef\xbb\xbf"
	for len(r.win) < len(bom) && string(r.win) == bom[:len(r.win)] && r.err == nil {
		n, err := r.r.Read(r.idle[len(r.win):])
		r.win, r.err = r.idle[:len(r.win)+n], err
	}
	r.begun = true
	r.win = bytes.TrimPrefix(r.win, []byte(bom))
}

// narrow gives back the memory that a large event took, as far as it is not in
// use: silence may come next.
func (r *Reader) narrow() {
	if cap(r.text) > idleWindow {
		r.text = nil
	}
	if r.wide != nil && len(r.win) == 0 {
		windows.Put(r.wide)
		r.wide = nil
	}
}
