package login

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

const (
	// attemptLife is the time within which another process may finish a sign-in.
	attemptLife = 10 * time.Minute
	// pageOpenFor is the time for which the person probably still has the sign-in page open.
	pageOpenFor = 2 * time.Minute
	// attemptSuffix is the suffix of attempt files.
	attemptSuffix = ".attempt"
)

// attempt is a sign-in in progress, with all that another process needs to finish it. Programs may
// stop a bridge while the person types a password, and start another one.
type attempt struct {
	Format   int       `json:"format"`
	Login    Login     `json:"login"` // without tokens
	Scopes   []string  `json:"scopes,omitempty"`
	Verifier string    `json:"verifier"`
	State    string    `json:"state"`
	Began    time.Time `json:"began"`
}

func (s *Store) attemptFile(key string) string { return filepath.Join(s.dir, key+attemptSuffix) }

// begin stores an attempt. The caller has the lock of the login.
func (s *Store) begin(key string, a *attempt) error {
	a.Format = format
	return s.put(s.attemptFile(key), a)
}

// forget removes the attempt.
func (s *Store) forget(key string) { _ = os.Remove(s.attemptFile(key)) }

// Abandon removes unfinished sign-ins at a server; at all servers if server is empty. It returns
// their number.
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

// resume returns another process's attempt for the same request, with its callback; nil if there
// is none. An attempt from the future has an unknown age and is ignored: the clock was set back.
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
