package replay

import (
	"context"
	"sync"
)

// Memory is a Store in the memory of this process.
type Memory struct {
	mu      sync.Mutex // guards streams
	streams map[[2]string]*kept
}

// kept is the stored part of a stream.
type kept struct {
	entries []Entry
	fence   int64 // numbers of further entries must be higher
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{streams: map[[2]string]*kept{}} }

// Write implements Store.
func (m *Memory) Write(_ context.Context, all []Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range all {
		at := [2]string{e.Session, e.Stream}
		k := m.streams[at]
		switch {
		case e.Kind == Dropped:
			delete(m.streams, at)
			continue
		case k == nil:
			k = &kept{fence: -1}
			m.streams[at] = k
		}
		if e.Seq > k.fence || e.Seq == k.fence && e.Kind == Finished {
			k.entries = append(k.entries, e)
			k.fence = e.Seq
		}
	}
	return nil
}

// Take implements Store.
func (m *Memory) Take(_ context.Context, session, stream string, seq, mark int64) (Taken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.streams[[2]string{session, stream}]
	if k == nil {
		return Taken{}, ErrForgotten
	}
	k.fence = max(k.fence, mark)
	return Read(k.entries, seq)
}

// Read returns the events of a stream after seq from its stored entries all, the oldest first. If an entry is missing,
// the error is ErrForgotten, since that entry may have been an answer (S-031).
func Read(all []Entry, seq int64) (Taken, error) {
	var t Taken
	if len(all) == 0 || all[len(all)-1].Seq < seq {
		return t, ErrForgotten // the client has events that the copy does not have
	}
	if first := all[0]; first.Kind == Added && first.Seq > seq+1 {
		return t, ErrForgotten // the copy does not have the events that the client needs
	}
	last := seq
	for _, e := range all {
		t.Open = e.Open
		switch {
		case e.Seq < last, e.Kind == Began:
		case e.Kind == Finished:
			if !follows(e.Seq, last, 0) {
				return Taken{}, ErrForgotten
			}
			t.Finished = true
		case e.Seq > last:
			if !follows(e.Seq, last, 1) {
				return Taken{}, ErrForgotten
			}
			last = e.Seq
			t.Events = append(t.Events, Event{
				Seq:   e.Seq,
				Data:  e.Data,
				Must:  true,
				Force: true,
			})
		}
	}
	return t, nil
}

// follows reports whether no event is missing between last and seq. Then seq is last + by, or the first number of a later
// owner + by. A later owner has answered the requests whose answers the former owner could not write.
func follows(seq, last, by int64) bool {
	return seq == last+by || seq>>32 > last>>32 && int64(uint32(seq)) == by
}
