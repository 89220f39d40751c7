package oauth

// MaxKept bounds what is kept for one server.
const MaxKept = maxCached

// Kept returns how many tokens are kept, and of how many callers.
func (m *Machine) Kept() (tokens, callers int) {
	m.tokens.mu.Lock()
	defer m.tokens.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens.tokens.Len(), m.subjects.Len()
}
