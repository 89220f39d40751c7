package jsonrpc

import "sync"

// Buffer is reusable memory for one message or line.
type Buffer struct {
	B []byte // the content
}

// Small and large buffers have separate pools. Otherwise small messages would take the large buffers, and large
// messages would have to grow small ones.
const (
	smallBuffer = 1 << 10
	largeBuffer = 64 << 10
	// keepBuffer is the largest size that goes back to a pool. So a few very large messages do not hold memory
	// forever.
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

// Append adds p. If the buffer becomes large, it takes memory from the pool of large ones.
func (b *Buffer) Append(p []byte) {
	if need := len(b.B) + len(p); need > cap(b.B) && need > largeBuffer {
		bigger := NewBuffer(max(need, 2*cap(b.B)))
		bigger.B = append(bigger.B, b.B...)
		b.B, bigger.B = bigger.B, b.B
		bigger.Free()
	}
	b.B = append(b.B, p...)
}

// Free returns the buffer to its pool. Its bytes must not be used afterwards. A second Free does nothing.
func (b *Buffer) Free() {
	if b == nil || b.B == nil {
		return
	}
	again := &Buffer{B: b.B[:0]} // a new header: holders of b cannot free it twice
	b.B = nil
	switch {
	case cap(again.B) > keepBuffer:
	case cap(again.B) > largeBuffer:
		large.Put(again)
	default:
		small.Put(again)
	}
}
