package jsonrpc

import "sync"

// Buffer is a reusable piece of memory for one message or line.
type Buffer struct {
	B []byte // what is in it
}

// Small and large buffers are kept apart: otherwise the large ones are handed
// out for small messages, and the large messages have to grow theirs anew.
const (
	smallBuffer = 1 << 10
	largeBuffer = 64 << 10
	// keepBuffer is the size above which buffers are left to the garbage
	// collector: a few very large messages must not hold memory for ever.
	keepBuffer = 4 << 20
)

var small, large sync.Pool

// NewBuffer returns an empty buffer for a message of about that size.
func NewBuffer(size int) *Buffer {
	pool := &small
	if size > largeBuffer {
		pool = &large
	}
	b, ok := pool.Get().(*Buffer)
	if !ok {
		b = &Buffer{B: make([]byte, 0, max(size, smallBuffer))}
	}
	if cap(b.B) < size {
		b.B = make([]byte, 0, size)
	}
	return b
}

// Append adds p. A buffer that becomes large takes its memory from the large
// ones.
func (b *Buffer) Append(p []byte) {
	if need := len(b.B) + len(p); need > cap(b.B) && need > largeBuffer {
		bigger := NewBuffer(max(need, 2*cap(b.B)))
		bigger.B = append(bigger.B, b.B...)
		b.B, bigger.B = bigger.B, b.B
		bigger.Free()
	}
	b.B = append(b.B, p...)
}

// Free gives the buffer back. Nothing may use its bytes any more. A second
// Free does nothing.
func (b *Buffer) Free() {
	if b == nil || b.B == nil {
		return
	}
	again := &Buffer{B: b.B[:0]} // a fresh header: whoever still holds b frees nothing twice
	b.B = nil
	switch {
	case cap(again.B) > keepBuffer:
	case cap(again.B) > largeBuffer:
		large.Put(again)
	default:
		small.Put(again)
	}
}
