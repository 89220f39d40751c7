package oauth

// MaxKept bounds the cached tokens of one server.
const MaxKept = maxCached

// Kept returns the number of cached tokens, and of callers.
func (m *Machine) Kept() (tokens, callers int) {
	m.tokens.mu.Lock()
	defer m.tokens.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens.tokens.Len(), m.subjects.Len()
}
