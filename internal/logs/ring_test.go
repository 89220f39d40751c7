package logs

import (
	"slices"
	"testing"
)

// A ring holds the last few values, newest first.
func TestRing(t *testing.T) {
	r := NewRing[int](3)
	for n, want := range [][]int{nil, {1}, {2, 1}, {3, 2, 1}, {4, 3, 2}, {5, 4, 3}, {6, 5, 4}, {7, 6, 5}} {
		if n > 0 {
			r.Add(n)
		}
		var got []int
		r.Newest(func(v int) bool { got = append(got, v); return true })
		if !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", n, got, want)
		}
	}
	n := 0
	r.Newest(func(int) bool { n++; return false })
	if n != 1 {
		t.Errorf("it goes on for %d", n)
	}
}
