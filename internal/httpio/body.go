// Package httpio reads the bodies of POSTs within limits of size, time and memory. It reads and writes server-sent
// events. It knows the media types that adapters distinguish.
//
// Only bytes that have arrived count. So a client that announces a large body, or stops after its first bytes, takes no
// memory from others.
package httpio

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// readLimit is how long a client may take to send a body.
const readLimit = 2 * time.Minute

// envelopeRoom is how many bytes a body may have beyond the limit, for the members around the payload.
const envelopeRoom = 64 << 10

// first is the initial memory of a body in bytes, of which only received bytes count. Later the memory doubles, and
// counts before it is allocated.
const first = 16 << 10

// Body is a body that was read. It begins with one user. When the last user calls Free, its memory is freed.
type Body struct {
	buf     *jsonrpc.Buffer
	room    Room
	counted bool
	n       int          // bytes of room that the body has reserved
	more    atomic.Int32 // number of users besides the first
}

// Fault says why a body was not read: an HTTP status and a text.
type Fault struct {
	Status int
	Text   string
	coming io.Reader // what the client may still send of the body, or nil
}

// Bytes returns the body. It is valid until Free.
func (b *Body) Bytes() []byte { return b.buf.B }

// Keep adds a user of the body. The user calls free once.
func (b *Body) Keep() (free func()) {
	b.more.Add(1)
	return b.Free
}

// Free ends the use of the body by one user.
func (b *Body) Free() {
	if b.more.Add(-1) >= 0 {
		return
	}
	b.buf.Free()
	if b.n > 0 {
		b.room.Return(b.n)
	}
}

// unread bounds the time for a body that may never be read. maxUnread bounds the size of such a body of a GET.
const (
	unread    = 10 * time.Second
	maxUnread = 64 << 10
)

// LimitBody limits the time for a request's body from the beginning. A client may announce a body and never send it,
// and net/http waits for the body before it answers. ReadBody sets another limit, and removes it after the body,
// because net/http would take the deadline for the client's disconnection. A GET may lead to a stream, and no code
// reads its body. So LimitBody reads the body of a GET, and returns the request without it. ok is false if that body
// did not arrive, or was too large.
//
// With HTTP/2, LimitBody does nothing: nothing waits for an unread body there.
func LimitBody(w http.ResponseWriter, r *http.Request) (_ *http.Request, ok bool) {
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
	r = r.WithContext(r.Context()) // a copy, since net/http uses the original
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, 0, nil
	return r, true
}

// Room is the memory for bodies of one principal.
type Room interface {
	Reserve(n int) bool // after a success, the body calls Return
	Return(n int)
}

// ReadBody reads the body of r, of at most limit bytes. It counts the bytes in the Room of the request's principal.
func ReadBody[R Room](rooms interface{ Room(principal string) R }, w http.ResponseWriter, r *http.Request, limit int) (*Body, *Fault) {
	body := &Body{room: rooms.Room(auth.Principal(r.Context())), counted: true}
	return body.of(w, r, limit, readLimit)
}

// ReadUncountedBody reads the body of r, of at most limit bytes, within that time. It is for requests whose principal
// is not known yet. It does not count the bytes, so the caller must bound how many bodies are read at once.
func ReadUncountedBody(w http.ResponseWriter, r *http.Request, limit int, within time.Duration) (*Body, *Fault) {
	return new(Body).of(w, r, limit, within)
}

// IsPlain reports whether a body with that Content-Encoding has no encoding. Some peers send its charset there.
func IsPlain(coding string) bool {
	return slices.Contains([]string{"", "identity", "utf-8", "utf8"}, strings.ToLower(strings.TrimSpace(coding)))
}

func (b *Body) of(w http.ResponseWriter, r *http.Request, limit int, within time.Duration) (*Body, *Fault) {
	if r.ContentLength > int64(limit+envelopeRoom) {
		return nil, tooLarge(r, limit)
	}
	if coding := r.Header.Get("Content-Encoding"); !IsPlain(coding) {
		w.Header().Set("Accept-Encoding", "identity") // RFC 9110, section 15.5.16
		f := &Fault{Status: http.StatusUnsupportedMediaType, Text: fmt.Sprintf("the body has the Content-Encoding %.40q: send it without", coding)}
		f.expect(r)
		return nil, f
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

// expect records that the client may still send the rest of the body. It does not if it waits for a permission to send.
// With HTTP/2, the rest harms neither the answer nor other requests.
func (f *Fault) expect(r *http.Request) {
	if r.ProtoMajor == 1 && r.Header.Get("Expect") == "" {
		f.coming = r.Body
	}
}

// discardBytes and discardLimit bound how much of a refused body is read, and for how long.
const (
	discardBytes = 64 << 20
	discardLimit = 10 * time.Second
)

// Answer answers the request, and then reads the rest of the body. If the bridge closed the connection earlier, many
// clients would report that, and not the answer.
func (f *Fault) Answer(w http.ResponseWriter, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.Status == http.StatusServiceUnavailable {
		RetryAfter(h, 5*time.Second)
	}
	if f.coming != nil {
		h.Set("Connection", "close") // so that the HTTP server answers before it has the body
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
		if size > first && !b.reserve(size) { // beyond first, the memory is at most twice the received bytes
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

// BusyFault returns the Fault of a body for which there is no memory now.
func BusyFault(r *http.Request, why string) *Fault {
	f := &Fault{Status: http.StatusServiceUnavailable, Text: why}
	f.expect(r)
	return f
}

const full = "too many bytes are under way in the bridge, of this caller or of all (max_bytes_in_flight); try again later"

// reserve reserves memory so that size bytes are reserved in all. If there is none, it reports false.
func (b *Body) reserve(size int) bool {
	if b.counted && size > b.n {
		if !b.room.Reserve(size - b.n) {
			return false
		}
		b.n = size
	}
	return true
}

// fill reads until b is full or r ends. Unlike io.ReadFull, it distinguishes the end of the body from an end in the
// middle of a chunk.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	if n == len(b) && err == io.EOF {
		err = nil // the next Read returns it again
	}
	return n, err
}

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
