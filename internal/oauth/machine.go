package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth/find"
	"github.com/mcp-bridge/bridge/internal/oauth/grant"
	"github.com/mcp-bridge/bridge/internal/pause"
)

const (
	// margin is how long before its end a token is not used any more, or a fifth of its life
	// if that is less.
	margin = 30 * time.Second
	// usualLife is taken when the authorization server does not say how long a token lives.
	usualLife = 5 * time.Minute
	// askLimit is for all requests that a token takes.
	askLimit = time.Minute
	// After a token was not to be had, the next is asked for no sooner than that, twice as
	// long each time, up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// renewPause is how long after a token that the server did not accept no other is asked
	// for because of that.
	renewPause = 10 * time.Second
)

// Failure is why there is no token. Nothing was sent to the server.
type Failure struct {
	Public string // what a client may know
	Err    error  // all that is known, for the log; may be nil
	SignIn bool   // a person has to sign in
}

// Error returns all that is known.
func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Public
	}
	return f.Public + ": " + f.Err.Error()
}

// Unwrap returns the reason.
func (f *Failure) Unwrap() error { return f.Err }

// Options are what tokens for a server are made with.
type Options struct {
	Settings
	Server    *url.URL          // the address of the server
	Transport http.RoundTripper // for requests to addresses that the server names
	Log       *slog.Logger
}

// Machine gets tokens for one server without a person: by client credentials (I-300). Those
// who need one at the same time share one request. A token is kept in memory until shortly
// before it ends.
type Machine struct {
	o    Options
	find *find.Finder
	ask  *grant.Asker
	life context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex // guards the rest
	closed    bool
	now       *held
	challenge find.Challenge // what the server has said last
	heard     bool           // it has said something
	renewed   time.Time      // when it has refused a token last
}

// held is a token that there is, or that is asked for.
type held struct {
	done  chan struct{} // closed when the rest is there
	token string        // empty as long as it is not known who gives tokens
	until time.Time
	err   error
	fails int // how many before this one were not to be had
}

// NewMachine makes what gets tokens by client credentials. Close ends it.
func NewMachine(o Options) *Machine {
	m := &Machine{o: o, find: find.New(o.Server, o.Transport, o.Trusted()...), ask: grant.New(o.Transport)}
	m.life, m.stop = context.WithCancel(context.Background())
	return m
}

// Close ends requests for tokens, and waits for them.
func (m *Machine) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	m.wg.Wait()
}

// Token returns a token, and asks for one if there is none.
func (m *Machine) Token(ctx context.Context) (string, error) {
	m.mu.Lock()
	one := m.now
	if one == nil || one.over(time.Now()) {
		if m.closed {
			m.mu.Unlock()
			return "", &Failure{Public: "the bridge is stopping"}
		}
		fails := 0
		if one != nil && one.err != nil {
			fails = one.fails + 1
		}
		one = &held{done: make(chan struct{}), fails: fails}
		m.now = one
		challenge, heard := m.challenge, m.heard
		m.wg.Go(func() { m.fetch(one, challenge, heard) })
	}
	m.mu.Unlock()
	select {
	case <-one.done:
		return one.token, one.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// over reports whether another has to be asked for.
func (h *held) over(now time.Time) bool {
	select {
	case <-h.done:
		return !h.until.IsZero() && !now.Before(h.until)
	default:
		return false
	}
}

// Refused hears of a request that the server has refused. It is sent again once, with a
// new token. More than its settings say is not asked for: a 403 is an answer.
func (m *Machine) Refused(_ context.Context, token string, h http.Header, status, before int) (again bool, err error) {
	if status != http.StatusUnauthorized || before > 0 {
		return false, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := find.Bearer(h); ok || !m.heard {
		m.challenge, m.heard = c, true
	}
	one := m.now
	if one == nil {
		return true, nil // another is asked for
	}
	select {
	case <-one.done:
	default:
		return true, nil // another is on its way
	}
	switch {
	case one.err != nil || one.token != token:
		return true, nil // there is another, or none: Token says which
	case token != "" && time.Since(m.renewed) < renewPause:
		return false, nil
	}
	m.renewed, m.now = time.Now(), nil
	return true, nil
}

// fetch asks for a token. It is nobody's in particular, so the end of one call does not
// end it.
func (m *Machine) fetch(one *held, c find.Challenge, heard bool) {
	defer close(one.done)
	ctx, cancel := context.WithTimeout(m.life, askLimit)
	defer cancel()
	began := time.Now()
	t, err := m.get(ctx, c, heard)
	switch {
	case err != nil:
		// Who asks meanwhile is told the same: an authorization server that refuses, or is
		// down, is not asked with each call.
		one.until = time.Now().Add(pause.Grown(firstPause, maxPause, one.fails+1))
		one.err = failure(err)
		m.o.Log.Warn("no token for the server", "err", err)
	case t != nil:
		life := cmp.Or(t.Lives, usualLife)
		one.token, one.until = t.Access, began.Add(life-min(margin, life/5))
		m.o.Log.Debug("token for the server", "until", one.until)
	}
}

// failure is what those are told who wait for a token.
func failure(err error) *Failure {
	public := "there is no token for it"
	if e, ok := errors.AsType[*grant.Error](err); ok && e.Code != "" {
		public += ": its authorization server says " + e.Code
	}
	return &Failure{Public: public, Err: err}
}

// get gets a token; nil without an error means that the server has not said yet who gives
// some.
func (m *Machine) get(ctx context.Context, c find.Challenge, heard bool) (*grant.Token, error) {
	at, resource, scopes, err := m.where(ctx, c, heard)
	if err != nil || at == nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	for name, value := range m.o.Client.Params {
		form.Set(name, value)
	}
	if resource != "" {
		form.Set("resource", resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	return m.ask.Token(ctx, at, m.o.Client.Grant(), form)
}

// Grant returns the client as authorization servers are shown it.
func (c *Client) Grant() *grant.Client {
	g := &grant.Client{ID: c.ID, Secret: c.Secret, KeyFile: c.KeyFile, KeyID: c.KeyID, Algorithm: c.Algorithm}
	if c.InBody {
		g.Method = grant.Post
	}
	return g
}

// where returns who gives tokens, for what, and which scopes to ask for (I-211). Without
// an issuer in the settings the server names it: a key signs for that one alone, and a
// secret would not be sent (Settings.Validate).
func (m *Machine) where(ctx context.Context, c find.Challenge, heard bool) (at *find.Issuer, resource string, scopes []string, err error) {
	var r *find.Resource
	if m.o.Resource == "" || m.o.Issuer == "" && m.o.Client.TokenURL == "" || len(m.o.Scopes) == 0 {
		if r, err = m.find.Resource(ctx, c.Metadata); err != nil {
			return nil, "", nil, err
		}
	}
	switch {
	case len(m.o.Scopes) > 0:
		scopes = m.o.Scopes
	case len(c.Scopes) > 0:
		scopes = c.Scopes
	case r != nil:
		scopes = r.Scopes
	}
	switch {
	case m.o.Resource != "" && m.o.Resource != ResourceOff:
		resource = m.o.Resource
	case m.o.Resource == "" && r != nil:
		resource = r.Name
	case m.o.Resource == "":
		resource = m.find.Server()
	}
	if to := m.o.Client.TokenURL; to != "" {
		return &find.Issuer{Name: cmp.Or(m.o.Issuer, to), Token: to}, resource, scopes, nil
	}
	name := m.o.Issuer
	switch {
	case name != "":
	case r != nil:
		name = r.Issuers[0]
	case !heard:
		return nil, "", nil, nil
	default: // as 2025-03-26 has it
		name = m.find.Origin()
	}
	if at, err = m.find.Issuer(ctx, name); err != nil {
		return nil, "", nil, err
	}
	if at == nil && r == nil && m.o.Issuer == "" {
		at = m.find.Assumed()
	}
	if at == nil {
		return nil, "", nil, fmt.Errorf("the authorization server %s has no metadata: set token_url, or correct issuer", name)
	}
	if len(at.Methods) > 0 && m.o.Client.KeyFile != "" && !slices.Contains(at.Methods, grant.Key) {
		m.o.Log.Debug("the authorization server does not say that it takes signed assertions", "issuer", at.Name)
	}
	return at, resource, scopes, nil
}
