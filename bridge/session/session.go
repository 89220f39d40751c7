// Package session holds what is known of sessions as plain data, apart from
// the live connections that serve them: a record can travel to another
// instance.
package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// Record is one session.
type Record struct {
	Key       string // made from the id by Key: the id itself is a secret
	Server    string
	Principal string
	Revision  string
	Params    []byte // of initialize, raw JSON
	Created   time.Time
	Seen      time.Time // last use
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("no such session")
	ErrFull     = errors.New("too many sessions")
)

// Store keeps records. Methods may be called concurrently.
type Store interface {
	// Put adds a record. It fails with ErrFull when the limit is reached.
	Put(ctx context.Context, r Record) error
	// Get returns the record or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)
	// Touch notes when the session was last used. It fails with ErrNotFound.
	Touch(ctx context.Context, key string, seen time.Time) error
	// Delete removes the record. A missing one is no error.
	Delete(ctx context.Context, key string) error
}

// NewID returns an id for a new session: 130 random bits.
func NewID() string { return rand.Text() }

// Key returns what a session is stored under. The id cannot be told from it.
func Key(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Memory is a Store in this process.
type Memory struct {
	limit int

	mu      sync.Mutex // guards records
	records map[string]Record
}

var _ Store = (*Memory)(nil)

// NewMemory makes a Store for at most limit sessions.
func NewMemory(limit int) *Memory {
	return &Memory{limit: limit, records: map[string]Record{}}
}

// Put implements Store.
func (m *Memory) Put(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, old := m.records[r.Key]; !old && len(m.records) >= m.limit {
		return ErrFull
	}
	m.records[r.Key] = r
	return nil
}

// Get implements Store.
func (m *Memory) Get(_ context.Context, key string) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[key]
	if !ok {
		return Record{}, ErrNotFound
	}
	return r, nil
}

// Touch implements Store.
func (m *Memory) Touch(_ context.Context, key string, seen time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[key]
	if !ok {
		return ErrNotFound
	}
	r.Seen = seen
	m.records[key] = r
	return nil
}

// Delete implements Store.
func (m *Memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, key)
	return nil
}
