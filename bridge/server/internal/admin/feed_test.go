package admin

import (
	"fmt"
	"testing"
)

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

// A full feed drops both events of a call, and keeps the end of one that the page shows as active (O-033).
func TestFeedFull(t *testing.T) {
	f := NewFeed()
	f.Shown("0")
	f.Put(Event{Type: callBegin, Call: "1"})
	f.Take()
	f.Put(Event{Type: callBegin, Call: "2"})
	for range maxEvents - 1 {
		if f.Full() {
			t.Fatal("it is full")
		}
		f.Put(Event{Type: "message"}) // so that the end of 2 comes after it
	}
	if !f.Full() {
		t.Fatal("it is not full")
	}
	for _, call := range []string{"3", "2", "1", "0"} {
		if call == "3" {
			f.Put(Event{Type: callBegin, Call: call})
		}
		f.Put(Event{Type: callEnd, Call: call})
	}
	events, dropped := f.Take()
	got := ""
	for _, e := range events[maxEvents:] {
		got += e.Type + e.Call + " "
	}
	if want := "call.end2 call.end1 call.end0 "; got != want || dropped != 3 {
		t.Errorf("%s, want %s; %d dropped", got, want, dropped)
	}
	if f.Full() || len(f.active) != 0 {
		t.Errorf("%v", f.active)
	}
	for n := range 3 * maxEvents { // the room for ends is bounded, too
		f.Shown(fmt.Sprint(n))
		f.Put(Event{Type: callEnd, Call: fmt.Sprint(n)})
	}
	if events, dropped := f.Take(); len(events) != 2*maxEvents || dropped != maxEvents || len(f.active) != 0 {
		t.Errorf("%d events, %d dropped", len(events), dropped)
	}
}
