package admin

import "testing"

// A feed holds so many events and bytes, and counts what it drops (O-033).
func TestFeed(t *testing.T) {
	f := NewFeed()
	for range maxEvents + 7 {
		f.Put(Event{Size: 1})
	}
	<-f.Wake()
	if events, dropped := f.Take(); len(events) != maxEvents || dropped != 7 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
	f.Put(Event{Size: maxBytes})
	f.Put(Event{Size: 1})
	if events, dropped := f.Take(); len(events) != 1 || dropped != 1 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
	if events, dropped := f.Take(); len(events) != 0 || dropped != 0 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
}

// The end of a call takes the place of its begin, unless something of it, or a message, is between.
func TestFeedCalls(t *testing.T) {
	f := NewFeed()
	for _, e := range []Event{
		{Type: callBegin, Call: "1", Size: 10}, {Type: callBegin, Call: "2", Size: 10}, {Type: callMark, Call: "2", Size: 1}, {Type: callEnd, Call: "1", Size: 30},
		{Type: callEnd, Call: "2", Size: 30}, {Type: callBegin, Call: "5", Size: 10}, {Type: "message", Size: 1}, {Type: callEnd, Call: "5", Size: 30}, {Type: callBegin, Call: "3", Size: 10},
	} {
		f.Put(e)
	}
	got := ""
	events, _ := f.Take()
	for _, e := range events {
		got += e.Type + e.Call + " "
	}
	if want := "call.end1 call.begin2 call.mark2 call.end2 call.begin5 message call.end5 call.begin3 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.Put(Event{Type: callEnd, Call: "3", Size: maxBytes - 40})
	f.Put(Event{Type: callBegin, Call: "4", Size: 40})
	f.Put(Event{Type: callEnd, Call: "4", Size: 50})
	if events, dropped := f.Take(); len(events) != 2 || events[0].Type != callEnd || events[1].Type != callEnd || dropped != 0 {
		t.Errorf("%+v, %d dropped", events, dropped)
	}
}
