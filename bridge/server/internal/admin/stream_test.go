package admin

import (
	"strconv"
	"testing"
)

// Callers who may not look leave places for streams to those who may, and one caller leaves
// places to others.
func TestStreamsKept(t *testing.T) {
	for _, tc := range []struct{ most, kept, each int }{{16, 4, 4}, {40, 10, 10}, {7, 1, 1}, {1, 0, 1}} {
		var s Streams
		var leave []func()
		for n := range 2 * tc.most {
			if done, ok := s.Acquire(&Caller{Principal: "key " + strconv.Itoa(n)}, tc.most, false); ok {
				leave = append(leave, done)
			}
		}
		if len(leave) != tc.most-tc.kept {
			t.Errorf("of %d streams, who may not look has %d", tc.most, len(leave))
		}
		for n := range tc.most - len(leave) {
			done, ok := s.Acquire(&Caller{Principal: "operator " + strconv.Itoa(n), Look: true, Act: n%2 == 0}, tc.most, false)
			if !ok {
				t.Fatalf("who may look has no place beside %d", len(leave))
			}
			leave = append(leave, done)
		}
		if _, ok := s.Acquire(&Caller{Principal: "another", Look: true}, tc.most, false); ok {
			t.Error("there are more streams than may be")
		}
		for _, done := range leave {
			done()
		}
		for n := range tc.most {
			if _, ok := s.Acquire(&Caller{Principal: "ops", Look: true}, tc.most, false); ok != (n < tc.each) {
				t.Errorf("of %d, stream %d of one caller: %t", tc.most, n, ok)
			}
		}
	}
}
