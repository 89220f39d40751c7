package logs

// Ring keeps so many things at most. It is not for several goroutines at once.
type Ring[T any] struct {
	most int
	all  []T
	next int // where the next one goes, once it is full
}

// NewRing returns a ring of most things.
func NewRing[T any](most int) Ring[T] { return Ring[T]{most: most} }

// Add adds one. If there are too many, the oldest goes.
func (r *Ring[T]) Add(v T) {
	if len(r.all) < r.most {
		r.all = append(r.all, v)
		return
	}
	r.all[r.next] = v
	r.next = (r.next + 1) % r.most
}

// Newest gives f each of them, the newest first, until f returns false.
func (r *Ring[T]) Newest(f func(T) bool) {
	for i := range r.all {
		if !f(r.all[(r.next-1-i+2*len(r.all))%len(r.all)]) {
			return
		}
	}
}
