package admin

import (
	"strconv"
	"testing"
)

// Callers who may not look leave places for streams to those who may.
func TestStreamsKept(t *testing.T) {
	var s Streams
	var leave []func()
	for n := range 2 * MaxStreams {
		done, ok := s.Enter(&Caller{Principal: "key " + strconv.Itoa(n)}, false)
		if ok {
			leave = append(leave, done)
		}
	}
	for n := range MaxStreams - len(leave) {
		who := &Caller{Principal: "ops", Look: true, Act: true}
		if n%2 == 1 {
			who = &Caller{Principal: "viewer", Look: true}
		}
		done, ok := s.Enter(who, false)
		if !ok {
			t.Fatalf("who may look has no place beside %d", len(leave))
		}
		leave = append(leave, done)
	}
	if len(leave) != MaxStreams || keptStreams == 0 {
		t.Errorf("%d streams", len(leave))
	}
	if _, ok := s.Enter(&Caller{Principal: "another", Look: true}, false); ok {
		t.Error("there are more streams than may be")
	}
	for _, done := range leave {
		done()
	}
	for n := range MaxStreams {
		if _, ok := s.Enter(&Caller{Principal: "ops", Look: true}, false); ok != (n < MaxStreamsEach) {
			t.Errorf("stream %d of one caller: %t", n, ok)
		}
	}
}
