package login

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

const (
	// attemptLife is how long a sign-in may be finished that another process has begun.
	attemptLife = 10 * time.Minute
	// askAgain is for how long the person is taken to have its page still open.
	askAgain = 2 * time.Minute
	// attempts is how the names of their files end.
	attempts = ".attempt"
)

// attempt is a sign-in that has begun: what whoever finishes it has to know. Programs that
// start a bridge may end it while the person types a password, and start another one.
type attempt struct {
	Format   int       `json:"format"`
	Login    Login     `json:"login"` // without tokens
	Scopes   []string  `json:"scopes,omitempty"`
	Verifier string    `json:"verifier"`
	State    string    `json:"state"`
	Began    time.Time `json:"began"`
}

func (s *Store) attemptFile(key string) string { return filepath.Join(s.dir, key+attempts) }

// begin keeps an attempt. The caller has the lock of the login.
func (s *Store) begin(key string, a *attempt) error {
	a.Format = format
	return s.put(s.attemptFile(key), a)
}

// forget removes the attempt.
func (s *Store) forget(key string) { _ = os.Remove(s.attemptFile(key)) }

// Abandon forgets the sign-ins at a server that have begun and not ended; at all servers if
// server is empty. It returns how many there were.
func (s *Store) Abandon(server string) (n int, err error) {
	keys, err := s.keys(attempts)
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

// resumed returns the attempt that another process has begun for the same, and the callback
// of it; nil if there is none. A clock that was set back makes an attempt useless: it may be
// of any age.
func (p *Person) resumed(ctx context.Context, l *Login, scopes []string) (*attempt, *callback) {
	data, err := p.o.Store.get(p.o.Store.attemptFile(p.key))
	a := &attempt{}
	if err != nil || data == nil || json.Unmarshal(data, a) != nil || a.Format != format || a.State == "" || a.Verifier == "" {
		return nil, nil
	}
	its := &a.Login
	client := its.Client.Registered
	switch {
	case p.o.Client != nil:
		client = its.Client.ID == p.o.Client.ID && !its.Client.Registered
	case p.o.ClientMetadataURL != "" && l.Issuer.Documents:
		client = its.Client.ID == p.o.ClientMetadataURL
	}
	age := time.Now().Round(0).Sub(a.Began)
	if age < 0 || age > attemptLife || its.Issuer.Name != l.Issuer.Name || its.Server != l.Server || its.Resource != l.Resource ||
		!client || its.Client.Redirect == "" || p.o.RedirectURI != "" && its.Client.Redirect != p.o.RedirectURI || !contains(a.Scopes, scopes) {
		return nil, nil
	}
	back, err := listen(ctx, its.Client.Redirect)
	if err != nil {
		return nil, nil
	}
	return a, back
}
