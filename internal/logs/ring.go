package logs

// Ring holds a limited number of values. It is not safe for concurrent use.
type Ring[T any] struct {
	most int
	all  []T
	next int // index of the oldest value, once the ring is full
}

// NewRing returns a Ring that holds up to most values.
func NewRing[T any](most int) Ring[T] { return Ring[T]{most: most} }

// Add adds a value. In a full ring it replaces the oldest one.
func (r *Ring[T]) Add(v T) {
	if len(r.all) < r.most {
		r.all = append(r.all, v)
		return
	}
	r.all[r.next] = v
	r.next = (r.next + 1) % r.most
}

// Newest calls f for each value, newest first, until f returns false.
func (r *Ring[T]) Newest(f func(T) bool) {
	for i := range r.all {
		if !f(r.all[(r.next-1-i+2*len(r.all))%len(r.all)]) {
			return
		}
	}
}
