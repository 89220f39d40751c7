package login

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

const (
	// attemptLife is how long another process may still finish a sign-in.
	attemptLife = 10 * time.Minute
	// pageOpenFor is how long the person probably keeps the sign-in page open.
	pageOpenFor   = 2 * time.Minute
	attemptSuffix = ".attempt"
)

// attempt is a sign-in in progress, with everything that another process needs to finish it. Programs may stop a bridge
// while the person types a password, and then start another bridge.
type attempt struct {
	Format   int       `json:"format"`
	Login    Login     `json:"login"` // without tokens
	Scopes   []string  `json:"scopes,omitempty"`
	Verifier string    `json:"verifier"`
	State    string    `json:"state"`
	Began    time.Time `json:"began"`
}

func (s *Store) attemptFile(key string) string { return filepath.Join(s.dir, key+attemptSuffix) }

// begin stores an attempt. The caller holds the lock of the login.
func (s *Store) begin(key string, a *attempt) error {
	a.Format = format
	return s.put(s.attemptFile(key), a)
}

func (s *Store) forget(key string) { _ = os.Remove(s.attemptFile(key)) }

// Abandon removes unfinished sign-ins at a server, or at all servers if server is empty. It returns the number of
// removed sign-ins.
func (s *Store) Abandon(server string) (n int, err error) {
	keys, err := s.keys(attemptSuffix)
	for _, key := range keys {
		a := &attempt{}
		data, _ := s.get(s.attemptFile(key))
		if server == "" || json.Unmarshal(data, a) == nil && a.Login.Server == server {
			s.forget(key)
			n++
		}
	}
	return n, err
}

// resume returns another process's attempt for the same request, with its callback, or nil if there is none. If the
// clock was set back, an attempt may be from the future; resume ignores such an attempt, because its age is unknown.
func (p *Person) resume(ctx context.Context, l *Login, scopes []string) (*attempt, *callback) {
	data, err := p.o.Store.get(p.o.Store.attemptFile(p.key))
	a := &attempt{}
	if err != nil || data == nil || json.Unmarshal(data, a) != nil || a.Format != format || a.State == "" || a.Verifier == "" {
		return nil, nil
	}
	begun := &a.Login
	client := begun.Client.Registered
	switch {
	case p.o.Client != nil:
		client = begun.Client.ID == p.o.Client.ID && !begun.Client.Registered
	case p.o.ClientMetadataURL != "" && l.Issuer.Documents:
		client = begun.Client.ID == p.o.ClientMetadataURL
	}
	age := time.Now().Round(0).Sub(a.Began)
	if age < 0 || age > attemptLife || begun.Issuer.Name != l.Issuer.Name || begun.Server != l.Server || begun.Resource != l.Resource ||
		!client || begun.Client.Redirect == "" || p.o.RedirectURI != "" && begun.Client.Redirect != p.o.RedirectURI || !contains(a.Scopes, scopes) {
		return nil, nil
	}
	back, err := listen(ctx, begun.Client.Redirect)
	if err != nil {
		return nil, nil
	}
	return a, back
}
