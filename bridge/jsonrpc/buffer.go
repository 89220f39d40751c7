package jsonrpc

import "sync"

// Buffer is reusable memory for one message or line.
type Buffer struct {
	B []byte // the content
}

// smallBuffer and largeBuffer are the limits in bytes of two pools. With one pool, small messages would occupy large
// buffers, and large messages would have to grow small ones.
const (
	smallBuffer = 1 << 10
	largeBuffer = 64 << 10
	// keepBuffer is the size of the largest buffers that go back to a pool. So a few very large messages do not occupy
	// memory forever.
	keepBuffer = 4 << 20
)

var small, large sync.Pool

// NewBuffer returns an empty buffer with room for size bytes.
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

// Append appends p. If the buffer becomes large, Append replaces its memory by a buffer of the large pool.
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
	again := &Buffer{B: b.B[:0]} // a new header, so that holders of b cannot free the memory again
	b.B = nil
	switch {
	case cap(again.B) > keepBuffer:
	case cap(again.B) > largeBuffer:
		large.Put(again)
	default:
		small.Put(again)
	}
}
