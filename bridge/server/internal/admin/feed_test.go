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
