package oauth

import (
	"fmt"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// MaxKept bounds the cached tokens of one server.
const MaxKept = maxCached

// Fill caches as many tokens as may be, of as many callers.
func (m *Machine) Fill() {
	done := make(chan struct{})
	close(done)
	for i := range maxCached {
		m.tokens.tokens.Add(fmt.Sprint(i), &cachedToken{done: done})
		m.subjects.Add(fmt.Sprint(i), &identity.Subject{})
	}
}

// Kept returns the number of cached tokens, and of callers.
func (m *Machine) Kept() (tokens, callers int) {
	m.tokens.mu.Lock()
	defer m.tokens.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens.tokens.Len(), m.subjects.Len()
}
