// Package httpio reads the bodies of POSTs within limits of size, of time and of the
// memory for all messages, writes and reads server-sent events, and knows the media
// types that adapters treat differently.
//
// Bytes count when they arrive. A body that is announced, or whose first bytes are here,
// takes nothing from anybody else.
package httpio

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// readLimit is how long a client may take to send a body.
const readLimit = 2 * time.Minute

// envelopeRoom is what a body may have beyond the limit, for the names around
// the payload.
const envelopeRoom = 64 << 10

// first is the memory that a body begins with: what comes of it is counted when it
// has. From then on the memory doubles, and is counted beforehand.
const first = 16 << 10

// Body is what was read. It has one user to begin with, and its memory is given
// back when the last has freed it.
type Body struct {
	buf     *jsonrpc.Buffer
	room    Room
	counted bool
	n       int          // bytes of room that are reserved
	more    atomic.Int32 // users beside the first
}

// Fault says why a body was not read: with which HTTP status, and in words.
type Fault struct {
	Status int
	Text   string
	coming io.Reader // what the client may go on sending; nil if that is nothing
}

// Bytes returns the body. It is valid until Free.
func (b *Body) Bytes() []byte { return b.buf.B }

// Keep makes for one user more, until free is called.
func (b *Body) Keep() (free func()) {
	b.more.Add(1)
	return b.Free
}

// Free says that one user less needs the body. Each calls it once.
func (b *Body) Free() {
	if b.more.Add(-1) >= 0 {
		return
	}
	b.buf.Free()
	if b.n > 0 {
		b.room.Return(b.n)
	}
}

// unread is how long a body may take that perhaps nobody reads, and maxUnread how large
// that of a GET may be.
const (
	unread    = 10 * time.Second
	maxUnread = 64 << 10
)

// Hurry limits how long the body of a request may take, from the beginning: anybody may
// announce one and never send it, and net/http waits for it before it answers. Whoever
// reads the body sets another limit, and takes it away when the body is there: after that,
// net/http takes its end for the client's going. A GET may lead to a stream for which
// nobody reads a body, so that Hurry does, and returns the request without it. ok is false
// if that did not come, or is too large.
//
// HTTP/2 needs none of it: nobody waits there for a body that nobody reads.
func Hurry(w http.ResponseWriter, r *http.Request) (_ *http.Request, ok bool) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 {
		return r, true
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(unread)) != nil || r.Method != http.MethodGet {
		return r, true
	}
	if _, err := io.CopyN(io.Discard, r.Body, maxUnread); err != io.EOF {
		w.Header().Set("Connection", "close")
		return r, false
	}
	_ = rc.SetReadDeadline(time.Time{})
	r = r.WithContext(r.Context()) // net/http goes by its own
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	return r, true
}

// Room is what bodies of one principal may take of the memory.
type Room interface {
	Reserve(n int) bool // every success needs a Return
	Return(n int)
}

// ReadBody reads the body of r, of at most limit bytes. It counts among what is under
// way of the principal whose request it is, in the room that rooms has for it.
func ReadBody[R Room](rooms interface{ Room(principal string) R }, w http.ResponseWriter, r *http.Request, limit int) (*Body, *Fault) {
	body := &Body{room: rooms.Room(auth.Principal(r.Context())), counted: true}
	return body.of(w, r, limit, readLimit)
}

// ReadUncountedBody reads the body of r, of at most limit bytes, within that time. It
// is for requests of which it is not known yet whose they are: they take no room
// from others, and the caller bounds how many of them are read at once.
func ReadUncountedBody(w http.ResponseWriter, r *http.Request, limit int, within time.Duration) (*Body, *Fault) {
	return new(Body).of(w, r, limit, within)
}

func (b *Body) of(w http.ResponseWriter, r *http.Request, limit int, within time.Duration) (*Body, *Fault) {
	if r.ContentLength > int64(limit+envelopeRoom) {
		return nil, tooLarge(r, limit)
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(within))
	fault := b.read(r, limit)
	if fault != nil {
		b.Free()
		return nil, fault
	}
	_ = rc.SetReadDeadline(time.Time{})
	return b, nil
}

func tooLarge(r *http.Request, limit int) *Fault {
	f := &Fault{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("the message is larger than the limit of %d bytes", limit)}
	f.expect(r)
	return f
}

// expect notes that the client may go on sending: unless it waits to be told, or
// speaks HTTP/2, where that keeps neither the answer nor other requests from it.
func (f *Fault) expect(r *http.Request) {
	if r.ProtoMajor == 1 && r.Header.Get("Expect") == "" {
		f.coming = r.Body
	}
}

// What of a refused body is still read, and for how long.
const (
	discardBytes = 64 << 20
	discardLimit = 10 * time.Second
)

// Answer answers the request, and then reads what its client goes on sending of the
// body: if the connection were closed under it, many clients would see that instead
// of the answer.
func (f *Fault) Answer(w http.ResponseWriter, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.Status == http.StatusServiceUnavailable {
		RetryAfter(h, 5*time.Second)
	}
	if f.coming != nil {
		h.Set("Connection", "close") // has the HTTP server answer before the body has come
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(body)
	if f.coming == nil {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	_ = rc.SetReadDeadline(time.Now().Add(discardLimit)) // the connection ends with this request
	_, _ = io.CopyN(io.Discard, f.coming, discardBytes)
}

func (b *Body) read(r *http.Request, limit int) *Fault {
	last := limit + envelopeRoom + 1
	if r.ContentLength >= 0 {
		last = int(r.ContentLength)
	}
	for size := min(last, first); ; size = min(2*size, last) {
		if size > first && !b.reserve(size) { // for more than the beginning, as much again as has come
			return BusyFault(r, full)
		}
		b.grow(size)
		have := len(b.buf.B)
		n, err := fill(r.Body, b.buf.B[have:size])
		b.buf.B = b.buf.B[:have+n]
		if size <= first && !b.reserve(n) {
			return BusyFault(r, full)
		}
		switch {
		case err == io.EOF && (r.ContentLength < 0 || have+n == last):
			return nil
		case err != nil:
			return &Fault{Status: http.StatusBadRequest, Text: "the body did not arrive whole"}
		case size < last:
		case r.ContentLength >= 0:
			return nil
		default:
			return tooLarge(r, limit)
		}
	}
}

// BusyFault is the fault of a body that there is no room to read for now.
func BusyFault(r *http.Request, why string) *Fault {
	f := &Fault{Status: http.StatusServiceUnavailable, Text: why}
	f.expect(r)
	return f
}

const full = "too many bytes are under way in the bridge, of this caller or of all (max_bytes_in_flight); try again later"

// reserve has so many bytes in all counted.
func (b *Body) reserve(size int) bool {
	if b.counted && size > b.n {
		if !b.room.Reserve(size - b.n) {
			return false
		}
		b.n = size
	}
	return true
}

// fill reads until b is full or r ends. Unlike io.ReadFull it leaves the two
// kinds of end apart: of the whole, and in the midst of a chunk.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	if n == len(b) && err == io.EOF {
		err = nil // the next call says so again
	}
	return n, err
}

// grow makes room for size bytes in all.
func (b *Body) grow(size int) {
	if b.buf != nil && cap(b.buf.B) >= size {
		return
	}
	bigger := jsonrpc.NewBuffer(size)
	if b.buf != nil {
		bigger.B = append(bigger.B, b.buf.B...)
		b.buf.Free()
	}
	b.buf = bigger
}
