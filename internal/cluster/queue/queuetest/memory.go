package queuetest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// Memory is a queue.Queue in the memory of this process.
type Memory struct {
	mu    sync.Mutex // guards the rest
	lines map[string][]*entry
	next  int
	added chan struct{} // closed when a request is added
}

type entry struct {
	queue.Taken
	taken time.Time // when a worker took the request; zero if none has
}

var _ queue.Queue = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{lines: map[string][]*entry{}, added: make(chan struct{})}
}

// Add implements queue.Queue.
func (m *Memory) Add(_ context.Context, server string, r queue.Request, most int) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lines[server]) >= most {
		return "", session.ErrFull
	}
	m.next++
	e := &entry{Taken: queue.Taken{
		Request: r,
		Server:  server,
		Entry:   strconv.Itoa(m.next),
	}}
	m.lines[server] = append(m.lines[server], e)
	close(m.added)
	m.added = make(chan struct{})
	return e.Entry, nil
}

// Take implements queue.Queue.
func (m *Memory) Take(ctx context.Context, servers []string, wait time.Duration) ([]queue.Taken, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m.mu.Lock()
		all, added := m.first(servers, func(e *entry) bool { return e.taken.IsZero() }, 1), m.added
		m.mu.Unlock()
		if len(all) > 0 {
			return all, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// Overdue implements queue.Queue.
func (m *Memory) Overdue(_ context.Context, servers []string, after time.Duration, most int) ([]queue.Taken, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first(servers, func(e *entry) bool { return !e.taken.IsZero() && time.Since(e.taken) >= after }, most), nil
}

// first takes the first requests of each line for which may returns true, up to most of each line. The caller holds
// m.mu.
func (m *Memory) first(servers []string, may func(*entry) bool, most int) (all []queue.Taken) {
	for _, name := range servers {
		left := most
		for _, e := range m.lines[name] {
			if left > 0 && may(e) {
				e.taken = time.Now()
				all = append(all, e.Taken)
				left--
			}
		}
	}
	return all
}

// Return implements queue.Queue.
func (m *Memory) Return(_ context.Context, t queue.Taken) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.lines[t.Server] {
		if e.Entry == t.Entry {
			e.taken = time.Unix(0, 0)
		}
	}
	return nil
}

// Has implements queue.Queue.
func (m *Memory) Has(_ context.Context, server, name string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.lines[server], func(e *entry) bool { return e.Entry == name }), nil
}

// Done implements queue.Queue.
func (m *Memory) Done(_ context.Context, server, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[server] = slices.DeleteFunc(m.lines[server], func(e *entry) bool { return e.Entry == name })
	return nil
}

// Lengths implements queue.Queue.
func (m *Memory) Lengths(_ context.Context, servers []string) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]int, len(servers))
	for i, name := range servers {
		all[i] = len(m.lines[name])
	}
	return all, nil
}
