package replay

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func seqs(events []Event) (all []int64) {
	for _, e := range events {
		all = append(all, e.Seq)
	}
	return all
}

func TestLog(t *testing.T) {
	l := New(Limits{Events: 3, Bytes: 100, Hard: 1000})
	for range 3 {
		l.Append(Event{Data: []byte("x")})
	}
	l.Append(Event{Data: make([]byte, 500), Must: true}) // over Bytes: everything loose goes
	got, whole := l.After(0)
	if !slices.Equal(seqs(got), []int64{4}) || whole {
		t.Errorf("After(0) = %v, whole %t", seqs(got), whole)
	}
	if _, whole := l.After(3); !whole {
		t.Error("After(3) is not whole though nothing behind 3 was dropped")
	}
	if l.Append(Event{Data: make([]byte, 501), Must: true}) {
		t.Error("Append above Hard succeeded")
	}
	if l.Drops() != 3 {
		t.Errorf("Drops = %d, want 3", l.Drops())
	}
	l.Forget(4)
	if l.Bytes() != 0 {
		t.Errorf("Bytes = %d after all was forgotten", l.Bytes())
	}
	l.Finish()
	if l.Append(Event{}) || !l.Finished() {
		t.Error("a finished log takes events")
	}
}

// Change notifications coalesce: the last of each key stays (protocol.md D0.11).
func TestLogCoalesces(t *testing.T) {
	l := New(Limits{Events: 4, Bytes: 1 << 20, Hard: 1 << 20})
	for i := range 100 {
		l.Append(Event{Data: []byte("t"), Key: "tools"})
		l.Append(Event{Data: []byte("p"), Key: "prompts"})
		l.Append(Event{Data: fmt.Appendf(nil, "progress %d", i)})
	}
	got, _ := l.After(0)
	var keys []string
	for _, e := range got {
		keys = append(keys, e.Key)
	}
	if len(got) != 4 || !slices.Contains(keys, "tools") || !slices.Contains(keys, "prompts") {
		t.Errorf("kept %d events with keys %q", len(got), keys)
	}
}

// What must be kept of many resources costs no time that grows with their
// number, and what may be missed goes all the same.
func TestLogManyKeys(t *testing.T) {
	l := New(Limits{Events: 256, Bytes: 1 << 20, Hard: 32 << 20})
	const keys = 20_000
	began := time.Now()
	for range 2 {
		for i := range keys {
			l.Append(Event{Data: []byte("updated"), Key: fmt.Sprint(i)})
		}
	}
	l.Append(Event{Data: []byte("log")})
	if got, whole := l.After(0); len(got) != keys || whole || l.Drops() != keys+1 {
		t.Errorf("%d events kept, whole %t, %d dropped", len(got), whole, l.Drops())
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	l.Forget(l.Last())
	if l.Bytes() != 0 || l.loose != 0 || l.surplus != 0 || len(l.newest) != 0 {
		t.Errorf("after Forget: %d bytes, %d loose, %d surplus, %d keys", l.Bytes(), l.loose, l.surplus, len(l.newest))
	}
}

func TestLogRemove(t *testing.T) {
	l := New(Limits{Events: 10, Bytes: 100, Hard: 100})
	l.Append(Event{Data: []byte("a"), Key: "k"})
	l.Append(Event{Data: []byte("b"), Must: true})
	l.Append(Event{Data: []byte("c"), Key: "k"})
	for _, seq := range []int64{2, 2, 3, 99, 0} {
		l.Remove(seq)
	}
	if got, whole := l.After(0); !slices.Equal(seqs(got), []int64{1}) || !whole || l.Bytes() != 1 {
		t.Errorf("After(0) = %v, whole %t, %d bytes", seqs(got), whole, l.Bytes())
	}
	l.Append(Event{Data: []byte("d"), Must: true})
	if l.Last() != 4 {
		t.Errorf("Last = %d, want 4", l.Last())
	}
}

func TestID(t *testing.T) {
	if s, n, ok := ParseID(ID("AB12", 7)); s != "AB12" || n != 7 || !ok {
		t.Errorf("ParseID(ID) = %q, %d, %t", s, n, ok)
	}
	for _, bad := range []string{"", "x", "-1", "x-", "x-+1", "x-01", "x--1", "x-1 ", "x-99999999999999999999"} {
		if _, _, ok := ParseID(bad); ok {
			t.Errorf("ParseID(%q) succeeded", bad)
		}
	}
}

// What nobody has read is counted when it is dropped; what was read is history.
func TestLogDropped(t *testing.T) {
	var dropped atomic.Uint64
	l := New(Limits{Events: 2, Bytes: 100, Hard: 100, Dropped: &dropped})
	for range 2 {
		l.Append(Event{Data: []byte("x")})
	}
	l.After(0)
	for range 2 {
		l.Append(Event{Data: []byte("x")})
	}
	if l.Drops() != 2 || dropped.Load() != 0 {
		t.Errorf("%d dropped, %d of them counted: want 2 and none", l.Drops(), dropped.Load())
	}
	l.Append(Event{Data: []byte("x")})
	if l.Drops() != 3 || dropped.Load() != 1 {
		t.Errorf("%d dropped, %d of them counted: want 3 and 1", l.Drops(), dropped.Load())
	}
}
