package replay

import (
	"errors"
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
	l.Append(Event{Data: make([]byte, 500), Must: true}) // over Bytes: all loose events are dropped
	got, whole := l.After(0)
	if !slices.Equal(seqs(got), []int64{4}) || whole {
		t.Errorf("After(0) = %v, whole %t", seqs(got), whole)
	}
	if _, whole := l.After(3); !whole {
		t.Error("After(3) is not whole though nothing behind 3 was dropped")
	}
	if l.Append(Event{Data: make([]byte, 501), Must: true}) == nil {
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
	if l.Append(Event{}) == nil || !l.Finished() {
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

// The time for an event does not grow with the number of resources with undroppable events. Droppable events are
// still dropped.
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

// An unread event counts when it is dropped. A read one is history.
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

// room is a Room of so many bytes.
type room struct {
	most, used int
	history    *History
}

func (r *room) Reserve(n int) bool {
	for r.used+n > r.most {
		if r.history == nil || !r.history.Drop() {
			return false
		}
	}
	r.used += n
	return true
}
func (r *room) Force(n int)  { r.used += n }
func (r *room) Return(n int) { r.used -= n }

// A log takes room for its events while it holds them.
func TestLogRoom(t *testing.T) {
	r := &room{most: 1 << 20}
	l := New(Limits{Events: 10, Bytes: 8 << 20, Hard: 64 << 20, Room: r})
	add := func(what string, e Event, want error, used int) {
		t.Helper()
		if err := l.Append(e); !errors.Is(err, want) || r.used != used {
			t.Errorf("%s: Append = %v, %d bytes taken; want %v, %d", what, err, r.used, want, used)
		}
	}
	freed := 0
	free := func() { freed++ }
	const k = 1 << 10
	add("question", Event{Data: make([]byte, 1000*k), Must: true}, nil, 1000*k)
	add("question without room", Event{Data: make([]byte, 100*k), Must: true}, ErrNoRoom, 1000*k)
	add("log message without room", Event{Data: make([]byte, 100*k)}, nil, 1000*k)
	add("small question", Event{Data: make([]byte, 60*k), Must: true}, nil, 1060*k)
	add("too many small questions", Event{Data: make([]byte, 5*k), Must: true}, ErrNoRoom, 1060*k)
	add("answer", Event{Data: make([]byte, 50*k), Must: true, Force: true}, nil, 1110*k)
	add("answer that brings its room", Event{Data: make([]byte, 500*k), Must: true, Force: true, Free: free}, nil, 1110*k)
	if got := l.Next(0); len(got) != 1 || len(got[0].Data) != 1000*k {
		t.Errorf("Next = %v, want the large event alone", seqs(got))
	}
	l.Forget(1)
	if got := l.Next(1); !slices.Equal(seqs(got), []int64{2}) || r.used != 110*k {
		t.Errorf("Next = %v, %d bytes taken", seqs(got), r.used)
	}
	l.Forget(2)
	add("small question again", Event{Data: make([]byte, 60*k), Must: true}, nil, 110*k)
	l.Close()
	if r.used != 0 || freed != 1 || l.Bytes() != 0 {
		t.Errorf("closed: %d bytes taken, %d held, %d times given back what the answer had brought", r.used, l.Bytes(), freed)
	}
	add("too late", Event{Data: make([]byte, 5), Must: true, Force: true}, ErrOver, 0)
	if add("too late", Event{Data: make([]byte, 5), Must: true, Free: free}, ErrOver, 0); freed != 2 {
		t.Error("what a refused event brings is not given back")
	}
}

// An event that the reader is writing is not dropped, because its memory is in use without being counted.
func TestLogInHand(t *testing.T) {
	l := New(Limits{Events: 2, Bytes: 1 << 20, Hard: 1 << 20})
	for range 2 {
		_ = l.Append(Event{Data: []byte("x")})
	}
	l.Next(0)
	for range 2 {
		_ = l.Append(Event{Data: []byte("x")})
	}
	if got, _ := l.After(0); !slices.Equal(seqs(got), []int64{1, 2}) {
		t.Errorf("left are %v, want those in hand", seqs(got))
	}
	l.Forget(2)
	if l.Bytes() != 0 {
		t.Errorf("%d bytes left", l.Bytes())
	}
}

// History is dropped when room is needed. First goes what its client has, the oldest first, then that of clients
// that left. An event that is being read stays.
func TestHistory(t *testing.T) {
	r := &room{most: 10, history: &History{}}
	logs := map[string]*Log{}
	for _, name := range []string{"read late", "left", "reading", "read first", "closed", "back"} {
		l := New(Limits{Events: 10, Bytes: 100, Hard: 100, Room: r, History: r.history})
		if l.Append(Event{Data: []byte("x"), Must: true, Force: true}) != nil {
			t.Fatal(name)
		}
		logs[name] = l
	}
	logs["left"].Leave()
	logs["back"].Leave()
	logs["back"].Attend(0)
	logs["reading"].Next(0)
	for _, name := range []string{"read first", "closed", "read late"} {
		logs[name].Next(0)
		logs[name].Written(1)
	}
	logs["closed"].Close()
	for _, want := range []string{"read first", "read late", "left"} {
		for name, l := range logs {
			if name == want && l.Bytes() != 1 {
				t.Errorf("%s has gone before its turn", name)
			}
		}
		if !r.history.Drop() {
			t.Errorf("nothing was dropped, want %s", want)
		}
		if l := logs[want]; l.Bytes() != 0 || !l.Gone(0) || l.Gone(1) {
			t.Errorf("%s: %d bytes left, Gone(0) = %t", want, l.Bytes(), l.Gone(0))
		}
	}
	if r.history.Drop() || r.used != 2 {
		t.Errorf("something more was dropped: %d bytes taken, want those of 2 readers", r.used)
	}
	if !r.Reserve(8) || r.Reserve(1) {
		t.Error("the room that was given back cannot be had")
	}
}
