// Package httpbody reads the bodies of POSTs for the HTTP transports, within
// limits of size, of time and of what all messages under way may take.
package httpbody

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// readLimit is how long a client may take to send a body.
const readLimit = 2 * time.Minute

// envelopeRoom is what a body may have beyond the limit, for the names around
// the payload.
const envelopeRoom = 64 << 10

// trusted is how much of an announced length is believed at once. For more, the
// memory grows as the bytes come: an announcement alone costs its sender nothing.
const trusted = 1<<20 + envelopeRoom

// Body is what was read. Free gives its memory back.
type Body struct {
	buf *jsonrpc.Buffer
	b   *bridge.Bridge
	n   int // reserved
}

// Fault says why a body was not read: with which HTTP status, and in words.
type Fault struct {
	Status int
	Text   string
}

// Bytes returns the body. It is valid until Free.
func (b *Body) Bytes() []byte { return b.buf.B }

// Free gives the body's memory back. It is called once.
func (b *Body) Free() {
	b.buf.Free()
	b.b.Return(b.n)
}

// Read reads the body of r, of at most limit bytes.
func Read(b *bridge.Bridge, w http.ResponseWriter, r *http.Request, limit int) (*Body, *Fault) {
	limit += envelopeRoom
	tooLarge := &Fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("the message is larger than the limit of %d bytes", limit-envelopeRoom)}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readLimit))
	if r.ContentLength > int64(limit) {
		if r.Header.Get("Expect") == "" { // otherwise the client waits to be told
			discard(rc, r)
		}
		return nil, tooLarge
	}
	body := &Body{b: b}
	fault := body.read(r, limit, tooLarge)
	if fault != nil {
		body.Free()
		if fault.Status != http.StatusBadRequest {
			discard(rc, r)
		}
		return nil, fault
	}
	_ = rc.SetReadDeadline(time.Time{})
	return body, nil
}

// What of a refused body is still read, and for how long.
const (
	discardBytes = 64 << 20
	discardLimit = 10 * time.Second
)

// discard reads what a client goes on sending of a body that is refused: if
// the connection were closed under it, many clients would see that instead of
// the refusal.
func discard(rc *http.ResponseController, r *http.Request) {
	_ = rc.SetReadDeadline(time.Now().Add(discardLimit)) // the server sets another for the next request
	_, _ = io.CopyN(io.Discard, r.Body, discardBytes)
}

func (b *Body) read(r *http.Request, limit int, tooLarge *Fault) *Fault {
	last := limit + 1
	size := 16 << 10 // chunked: it grows
	if r.ContentLength >= 0 {
		last = int(r.ContentLength)
		size = min(last, trusted)
	}
	for {
		if !b.b.Reserve(size - b.n) {
			return &Fault{http.StatusServiceUnavailable, "too many bytes are under way in the bridge; try again later"}
		}
		b.n = size
		b.grow(size)
		have := len(b.buf.B)
		n, err := fill(r.Body, b.buf.B[have:size])
		b.buf.B = b.buf.B[:have+n]
		switch {
		case err == io.EOF && (r.ContentLength < 0 || have+n == last):
			return nil
		case err != nil:
			return &Fault{http.StatusBadRequest, "the body did not arrive whole"}
		case size < last:
			size = min(2*size, last)
		case r.ContentLength >= 0:
			return nil
		default:
			return tooLarge
		}
	}
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
