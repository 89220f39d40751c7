package session

import (
	"context"
	"sync"
)

// Memory is a Store in the memory of this process.
type Memory struct {
	owner string
	*records
}

// records are what the stores of several owners share.
type records struct {
	limit int

	mu  sync.Mutex // guards all
	all map[string]Held
}

var _ Store = (*Memory)(nil)

// NewMemory returns a Memory for at most limit sessions.
func NewMemory(limit int) *Memory {
	return &Memory{owner: "this", records: &records{limit: limit, all: map[string]Held{}}}
}

// As returns a Memory of another owner with the same records.
func (m *Memory) As(owner string) *Memory { return &Memory{owner: owner, records: m.records} }

// Len returns the number of records.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// Put implements Keeper.
func (m *Memory) Put(_ context.Context, h Held) (Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.Owner, h.Epoch = m.owner, h.Epoch+1
	switch old, there := m.all[h.Key]; {
	case there && (old.Owner != h.Owner || old.Epoch != h.Epoch):
		return Held{}, &Moved{old.Owner, old.Epoch}
	case there: // the answer to the same request was lost
	case len(m.all) >= m.limit:
		return Held{}, ErrFull
	default:
		m.all[h.Key] = h
	}
	return h, nil
}

// Find implements Store.
func (m *Memory) Find(_ context.Context, key string) (Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.all[key]
	if !ok {
		return Held{}, ErrNotFound
	}
	return h, nil
}

// Take implements Store.
func (m *Memory) Take(_ context.Context, seen Held) (Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.all[seen.Key]
	switch {
	case !ok:
		return Held{}, ErrNotFound
	case h.Owner == m.owner && h.Epoch == seen.Epoch+1: // the answer to the same request was lost
		return h, nil
	case h.Owner != seen.Owner || h.Epoch != seen.Epoch:
		return Held{}, &Moved{h.Owner, h.Epoch}
	}
	h.Owner, h.Epoch = m.owner, h.Epoch+1
	m.all[h.Key] = h
	return h, nil
}

// Save implements Keeper.
func (m *Memory) Save(_ context.Context, h Held) error { return m.write(h, m.owner) }

// Release implements Keeper.
func (m *Memory) Release(_ context.Context, h Held) error { return m.write(h, "") }

// write writes a record that this owner has, with another owner.
func (m *Memory) write(h Held, owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.has(h) {
		return ErrFenced
	}
	h.Owner = owner
	m.all[h.Key] = h
	return nil
}

// has reports whether this owner may still write the record. The caller holds m.mu.
func (m *Memory) has(h Held) bool {
	old, ok := m.all[h.Key]
	return ok && old.Owner == m.owner && old.Epoch == h.Epoch
}

// Keep implements Store.
func (m *Memory) Keep(_ context.Context, all []Held) (fenced []Held, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range all {
		if !m.has(h) {
			fenced = append(fenced, h)
		}
	}
	return fenced, nil
}

// Delete implements Keeper.
func (m *Memory) Delete(_ context.Context, h Held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.has(h) {
		delete(m.all, h.Key)
	}
	return nil
}
