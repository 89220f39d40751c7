package access

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// No more questions of an address are under way than it may still show wrong keys, also
// if all come at once. One whose key was good makes way for another.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, tokens := newLimit(quiet), newLimit(quiet)
		l := newLookups(keys, tokens)
		from, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		begin := func(what string) func() {
			t.Helper()
			end, _ := l.Begin(from)
			if end == nil {
				t.Fatalf("%s: there may be no question", what)
			}
			return end
		}
		full := func(what string) <-chan struct{} {
			t.Helper()
			end, busy := l.Begin(from)
			if end != nil || busy == nil {
				t.Fatalf("%s: a question %t, something to wait for %t", what, end != nil, busy != nil)
			}
			return busy
		}
		var ends []func()
		for range WrongAtOnce {
			ends = append(ends, begin("at first"))
		}
		busy, also := full("one too many"), full("two too many")
		if end, _ := l.Begin(other); end == nil {
			t.Error("another address may ask nothing")
		} else {
			end()
		}
		ends[0]() // its key was good
		<-busy
		<-also
		ends[0] = begin("after a good one")
		full("after a good one, and another")
		for i, end := range ends {
			if i%2 == 0 {
				keys.Take(from)
			} else {
				tokens.Take(from)
			}
			end()
		}
		for i := range WrongAtOnce / 2 { // half of each limit is left
			ends[i] = begin("when half of them were wrong")
		}
		full("when half of them were wrong, and one more")
		for _, end := range ends[:WrongAtOnce/2] {
			keys.Take(from)
			end()
		}
		if len(l.running) > 0 {
			t.Errorf("%d addresses are kept", len(l.running))
		}
		refused := func(what string) {
			t.Helper()
			if end, busy := l.Begin(from); end != nil || busy != nil {
				t.Errorf("%s: a question %t, something to wait for %t", what, end != nil, busy != nil)
			}
		}
		refused("when all were wrong")
		time.Sleep(WrongEvery - 1)
		refused("just before the next may be")
		time.Sleep(time.Nanosecond)
		end := begin("after the pause")
		full("after the pause, and another")
		keys.Take(from)
		end()
		refused("after that")
	})
}
