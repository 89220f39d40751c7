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

// Received is one event that a Reader has read. Events without data are reported too if they have
// an id, a retry or an empty line of data.
type Received struct {
	ID        string          // of this event; see HasID
	HasID     bool            // an empty id counts: it resets the position
	Type      string          // "message" by default
	Data      *jsonrpc.Buffer // owned by the receiver; nil when there is no data, or too much
	Oversized *jsonrpc.Finder // received the data of an event that is larger than the limit, or has no room
	Retry     time.Duration   // the wait before the stream is reopened; see HasRetry
	// HasRetry distinguishes a retry of 0 from none.
	HasRetry bool
}

// Reader reads a stream of server-sent events. Unlike a browser's library it holds at most one event.
// It reads the data of a large event directly into the buffer of its message, and bounds the event.
// It is for one goroutine.
type Reader struct {
	// Room reserves memory before the data of an event grows to size bytes. If it returns false,
	// the data is treated as larger than the limit. Size 0 means that the data is not kept. nil
	// means no bound.
	Room func(size int) bool

	r     io.Reader
	limit int
	err   error

	idle  []byte    // the window of a quiet stream
	wide  *[]byte   // a larger one from the pool for a busy stream, or nil
	win   []byte    // read and not yet used bytes, a part of idle or wide
	begun bool      // the beginning of the stream, which may have a BOM, was read
	cr    bool      // the line before ended with CR: an LF belongs to it
	text  []byte    // the line, or the part of it before its data
	lines int       // of data in this event
	size  int       // of its data
	quiet int       // bytes that are not data, since the last event with data
	since time.Time // when quiet began to count; a server may keep a stream alive by comments for months
	over  *jsonrpc.Finder
	data  *jsonrpc.Buffer
}

const (
	idleWindow = 512
	wideWindow = 32 << 10
	// maxText bounds a line that is not data: a comment, an id, an unknown field.
	maxText = 16 << 10
	// maxRetry bounds the retry of a server.
	maxRetry = 24 * time.Hour
	// maxOver bounds how much is read of an event whose data exceeds the limit, in multiples of the
	// limit. The data beyond the limit may hold the id of the message.
	maxOver = 4
	// minQuiet is the least bound on bytes without data between events, which is the limit otherwise. Such bytes may
	// come compressed, some thousand times smaller.
	minQuiet = 64 << 10
	// quietTime is the time in which so many bytes are too many.
	quietTime = time.Minute
)

// ErrEndless means that the data of an event is far larger than the limit, without an end.
var ErrEndless = errors.New("event stream: an event is far larger than the limit")

// ErrQuiet means that too much came in too short a time, without an event.
var ErrQuiet = errors.New("event stream: too many bytes without an event")

var dataField = []byte("data")

var windows = sync.Pool{New: func() any { b := make([]byte, wideWindow); return &b }}

// NewReader returns a Reader of r. The data of an event may have limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, limit: limit, since: time.Now()}
}

// Next reads the next event. The error is io.EOF at the end of the stream, and stays. An incomplete
// event is dropped then, as the specification of server-sent events requires. The first ErrEndless
// comes with the part of the event that was read.
func (r *Reader) Next() (Received, error) {
	e := Received{Type: "message"}
	some := false
	for {
		field, value, err := r.line()
		switch {
		case err != nil:
			e.Oversized = r.over
			r.forget()
			if errors.Is(err, ErrEndless) {
				return e, err
			}
			if e.HasRetry { // the error is returned again
				return Received{
					Type:     "message",
					Retry:    e.Retry,
					HasRetry: true,
				}, nil // a retry counts at once
			}
			return Received{}, err
		case field == nil: // an empty line
			if !some && r.lines == 0 {
				e.Type = "message" // an event needs more than a type
				continue
			}
			e.Data, e.Oversized = r.data, r.over
			if r.size > 0 {
				r.quiet = 0
			}
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

// forget drops an incomplete event and frees its memory.
func (r *Reader) forget() {
	r.data.Free()
	r.data, r.over, r.lines, r.size, r.win = nil, nil, 0, 0, nil
	r.narrow()
}

// line reads one line. It stores data, and returns all other fields, valid until the next line. An
// empty line has a nil field.
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
			if isData = r.begin(part, end); !isData {
				r.quiet += len(part) + 1
			}
		}
		if r.quiet > max(r.limit, minQuiet) && time.Since(r.since) >= quietTime {
			r.quiet, r.since = 0, time.Now()
		}
		switch {
		case r.quiet > max(r.limit, minQuiet):
			r.err = ErrQuiet
			return nil, nil, r.err
		case r.size/maxOver > r.limit:
			r.err = ErrEndless
			return nil, nil, r.err
		case !isData && len(r.text) > maxText && r.text[0] != ':':
			r.err = fmt.Errorf("event stream: a line is longer than %d bytes and is not data", maxText)
			return nil, nil, r.err
		case !end:
			if !isData && len(r.text) > maxText {
				r.text = r.text[:1] // a long comment is dropped
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

// begin adds a part to a line whose kind is not known yet. If it is data, begin stores the part and
// reports true.
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
	case bytes.HasPrefix(r.text, []byte(data)) && (end || len(r.text) > len(data)): // the space behind it was read
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

// part returns the next part of a line, without the line break, and whether the line ends with it.
// It is valid until the next part is read.
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

// narrow frees the memory of a large event that is not in use: the stream may be silent next.
func (r *Reader) narrow() {
	if cap(r.text) > idleWindow {
		r.text = nil
	}
	if r.wide != nil && len(r.win) == 0 {
		windows.Put(r.wide)
		r.wide = nil
	}
}
