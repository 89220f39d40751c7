package logs

// Ring holds the newest values, up to a number. It is not safe for concurrent use.
type Ring[T any] struct {
	most int
	all  []T
	next int // index of the oldest value, if the ring is full
}

// NewRing returns a Ring for up to most values.
func NewRing[T any](most int) Ring[T] { return Ring[T]{most: most} }

// Add adds a value. If the ring is full, the value replaces the oldest one.
func (r *Ring[T]) Add(v T) {
	if len(r.all) < r.most {
		r.all = append(r.all, v)
		return
	}
	r.all[r.next] = v
	r.next = (r.next + 1) % r.most
}

// Newest calls f for each value, the newest first, until f returns false.
func (r *Ring[T]) Newest(f func(T) bool) {
	for i := range r.all {
		if !f(r.all[(r.next-1-i+2*len(r.all))%len(r.all)]) {
			return
		}
	}
}
