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

// Received is one event that a Reader has read. An event without data is one, too, if it has an id, a retry or an empty
// line of data.
type Received struct {
	ID        string          // id of the event, if HasID
	HasID     bool            // the event has an id; an empty one resets the position of the stream
	Type      string          // "message" by default
	Data      *jsonrpc.Buffer // the receiver owns it; nil if there is no data, or too much
	Oversized *jsonrpc.Finder // has read the data, if it is larger than the limit or found no room
	Retry     time.Duration   // pause before the stream is opened again, if HasRetry
	// HasRetry tells a retry of 0 from an event without a retry.
	HasRetry bool
}

// Reader reads a stream of server-sent events. It holds at most one event in memory, and bounds it. It reads the data
// of a large event directly into the buffer of its message. It is for one goroutine.
type Reader struct {
	// Room reserves memory before the data of an event grows to size bytes. If Room returns false, the Reader treats
	// the event as larger than the limit. Size 0 means that the data was discarded. A nil Room means no bound.
	Room func(size int) bool

	r     io.Reader
	limit int
	err   error

	idle  []byte    // window for a quiet stream
	wide  *[]byte   // larger window from the pool for a busy stream, or nil
	win   []byte    // bytes that were read but not used, a part of idle or wide
	begun bool      // the beginning of the stream, with its byte order mark, was read
	cr    bool      // the last line ended with CR, so an LF that follows belongs to it
	text  []byte    // the current line, or its part before the data
	lines int       // lines of data in the current event
	size  int       // bytes of data in the current event
	quiet int       // bytes that were not data, since the last event with data
	since time.Time // start of quiet; comments may keep a stream open for months
	over  *jsonrpc.Finder
	data  *jsonrpc.Buffer
}

const (
	idleWindow = 512
	wideWindow = 32 << 10
	// maxText bounds a line that is not data, such as a comment or an id.
	maxText = 16 << 10
	// maxRetry bounds a server's retry.
	maxRetry = 24 * time.Hour
	// maxOver bounds how much of an event is read whose data exceeds the limit, as a multiple of the limit. The id of
	// the message may be beyond the limit.
	maxOver = 4
	// minQuiet is the least number of bytes without data that are allowed in quietTime; a larger limit allows more.
	// Such bytes may be compressed, so that a server sends some thousand times fewer.
	minQuiet = 64 << 10
	// quietTime is the time in which bytes without data are counted.
	quietTime = time.Minute
)

// ErrEndless means that the data of an event is far larger than the limit, and has not ended.
var ErrEndless = errors.New("event stream: an event is far larger than the limit")

// ErrQuiet means that too many bytes without data came in too short a time.
var ErrQuiet = errors.New("event stream: too many bytes without an event")

var dataField = []byte("data")

var windows = sync.Pool{New: func() any { b := make([]byte, wideWindow); return &b }}

// NewReader returns a Reader of r. limit bounds the data of an event, in bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, limit: limit, since: time.Now()}
}

// Next reads the next event. At the end of the stream the error is io.EOF, also in later calls. Next then drops an
// incomplete event, as the specification of server-sent events requires. With the first ErrEndless, Next returns the
// part of the event that it read.
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
			if e.HasRetry { // the next call returns the error again
				return Received{
					Type:     "message",
					Retry:    e.Retry,
					HasRetry: true,
				}, nil // a retry counts without the end of its event
			}
			return Received{}, err
		case field == nil: // an empty line
			if !some && r.lines == 0 {
				e.Type = "message" // an event that has only a type is none
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

// forget drops an incomplete event, and frees its memory.
func (r *Reader) forget() {
	r.data.Free()
	r.data, r.over, r.lines, r.size, r.win = nil, nil, 0, 0, nil
	r.narrow()
}

// line reads one line. It stores data itself, and returns other fields, which are valid until the next line. For an
// empty line, field is nil.
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
				r.text = r.text[:1] // drops the rest of a long comment
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

// begin adds a part to a line whose kind is not known yet. If the line is data, begin stores the part and reports true.
func (r *Reader) begin(part []byte, end bool) bool {
	const data = "data:"
	if len(r.text) == 0 && len(part) > len(data) && string(part[:len(data)]) == data { // the usual case needs no copy
		r.open()
		r.add(bytes.TrimPrefix(part[len(data):], []byte(" ")))
		return true
	}
	r.text = append(r.text, part...)
	switch {
	case end && string(r.text) == "data":
		r.open()
		return true
	case bytes.HasPrefix(r.text, []byte(data)) && (end || len(r.text) > len(data)): // the space behind the colon was read
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

// part returns the next part of a line, without the line break, and whether the line ends with it. The part is valid
// until the next call.
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

// fill reads more bytes. After a read that fills the window, the next window is larger.
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

// narrow frees memory that a large event needed, because the stream may be quiet for long.
func (r *Reader) narrow() {
	if cap(r.text) > idleWindow {
		r.text = nil
	}
	if r.wide != nil && len(r.win) == 0 {
		windows.Put(r.wide)
		r.wide = nil
	}
}
