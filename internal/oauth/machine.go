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

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// Failure is the reason why there is no token. The request was not sent to the server.
type Failure struct {
	Public string // the message for clients
	Err    error  // the cause, for the log; may be nil
	SignIn bool   // a person must sign in
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Public
	}
	return f.Public + ": " + f.Err.Error()
}

func (f *Failure) Unwrap() error { return f.Err }

// Options are the settings and dependencies for the tokens of one server.
type Options struct {
	Settings
	Server    *url.URL          // address of the server
	Transport http.RoundTripper // for requests to addresses that the server names
	Log       *slog.Logger
}

// Machine gets tokens for one server without a person: by client credentials (I-300), or by exchanging the tokens of
// callers (I-303).
type Machine struct {
	o      Options
	find   *discovery.Finder
	ask    *discovery.Asker
	tokens *tokenCache

	mu         sync.Mutex                                    // guards the rest
	challenge  discovery.Challenge                           // the server's last challenge
	challenged bool                                          // the server has refused a request
	subjects   simplelru.LRUCache[string, *identity.Subject] // the subject of each principal that lives longest
}

// NewMachine returns a Machine. The caller closes it.
func NewMachine(o Options) *Machine {
	m := &Machine{
		o:      o,
		find:   discovery.NewFinder(o.Server, o.Transport, o.Trusted()...),
		ask:    discovery.NewAsker(o.Transport),
		tokens: newTokenCache(o.Log),
	}
	m.subjects, _ = simplelru.NewLRU[string, *identity.Subject](maxCached, nil) // the size is positive
	return m
}

// Close cancels requests for tokens and waits for them.
func (m *Machine) Close() { m.tokens.close() }

type scopesKey struct{}

// WithScopes returns a context for Machine's methods that has the scopes that the request needs. The scopes of the
// settings take precedence.
func WithScopes(ctx context.Context, scopes []string) context.Context {
	if len(scopes) == 0 {
		return ctx
	}
	return context.WithValue(ctx, scopesKey{}, scopes)
}

// scopes returns the scopes of the settings, else the scopes of WithScopes, else nil.
func (m *Machine) scopes(ctx context.Context) []string {
	if len(m.o.Scopes) > 0 {
		return m.o.Scopes
	}
	scopes, _ := ctx.Value(scopesKey{}).([]string)
	return scopes
}

// demand describes the token that a request needs.
type demand struct {
	key    string // cache key
	scopes []string
	by     *identity.Subject // the subject to exchange; nil with client credentials
}

func (m *Machine) demand(ctx context.Context) (d demand, err error) {
	d.scopes = m.scopes(ctx)
	d.key = strings.Join(d.scopes, " ")
	if m.o.Exchange != "" {
		if d.by, err = m.subject(ctx); err == nil {
			d.key += keyOf(d.by)
		}
	}
	return d, err
}

// Token returns a cached token, or requests a new token.
func (m *Machine) Token(ctx context.Context) (string, error) {
	d, err := m.demand(ctx)
	if err != nil {
		return "", err
	}
	return m.tokens.get(ctx, d.key, func(ctx context.Context) (*discovery.Token, error) { return m.request(ctx, &d) })
}

// Refused handles a refused request. After 401, the request is sent again once, with a new token. After 403, it is not
// sent again, because the scopes of the settings are not widened.
func (m *Machine) Refused(ctx context.Context, token string, h http.Header, status, before int) (again bool, err error) {
	if status != http.StatusUnauthorized || before > 0 {
		return false, nil
	}
	m.mu.Lock()
	if c, ok := discovery.Bearer(h); ok || !m.challenged {
		m.challenge, m.challenged = c, true
	}
	m.mu.Unlock()
	d, err := m.demand(ctx)
	return err == nil && m.tokens.refused(d.key, token), err
}

// failure returns the error for callers that wait for a token.
func failure(err error) *Failure {
	public := "there is no token for it"
	if e, ok := errors.AsType[*discovery.Error](err); ok && e.Code != "" {
		public += ": its authorization server says " + e.Code
	}
	return &Failure{Public: public, Err: err}
}

// request requests a token. While the authorization server is unknown, it returns nil without an error.
func (m *Machine) request(ctx context.Context, d *demand) (*discovery.Token, error) {
	at, resource, scopes, err := m.target(ctx, d.scopes)
	if err != nil || at == nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if d.by != nil {
		form = formOf(d.by, m.o.Exchange)
	}
	for name, value := range m.o.Client.Params {
		form.Set(name, value)
	}
	if resource != "" {
		form.Set("resource", resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	t, err := m.ask.Token(ctx, at, m.o.Client.Grant(), form)
	if err == nil && d.by != nil { // the token must not outlive the caller's own token
		t.Lives = min(cmp.Or(t.Lives, usualLife), max(time.Until(d.by.Until), time.Second))
	}
	return t, err
}

// Grant returns the client in the form of package discovery.
func (c *Client) Grant() *discovery.Client {
	return discovery.NewClient(c.ID, c.Secret, c.InBody, assertion.Key{
		File:      c.KeyFile,
		ID:        c.KeyID,
		Algorithm: c.Algorithm,
	})
}

// target returns the authorization server, the resource, and the scopes to request (I-211). Without an issuer in the
// settings, the server names the authorization server. Such a name is safe for a key, which signs for only one issuer.
// Settings.Validate refuses a secret without an issuer.
func (m *Machine) target(ctx context.Context, wanted []string) (at *discovery.Issuer, resource string, scopes []string, err error) {
	m.mu.Lock()
	challenge, challenged := m.challenge, m.challenged
	m.mu.Unlock()
	var metadata *discovery.Resource
	if m.o.Issuer == "" && m.o.Client.TokenURL == "" || !m.o.API && (m.o.Resource == "" || len(wanted) == 0) {
		if metadata, err = m.find.Resource(ctx, challenge.Metadata); err != nil {
			return nil, "", nil, err
		}
	}
	switch {
	case len(wanted) > 0 || m.o.API:
		scopes = wanted
	case len(challenge.Scopes) > 0:
		scopes = challenge.Scopes
	case metadata != nil:
		scopes = metadata.Scopes
	}
	switch {
	case m.o.Resource != "" && m.o.Resource != ResourceOff:
		resource = m.o.Resource
	case m.o.Resource == "" && metadata != nil:
		resource = metadata.Name
	case m.o.Resource == "" && !m.o.API:
		resource = m.find.Server()
	}
	if to := m.o.Client.TokenURL; to != "" {
		return &discovery.Issuer{Name: cmp.Or(m.o.Issuer, to), Token: to}, resource, scopes, nil
	}
	name := m.o.Issuer
	switch {
	case name != "":
	case metadata != nil:
		name = metadata.Issuers[0]
	case !challenged:
		return nil, "", nil, nil
	default: // see revision 2025-03-26
		name = m.find.Origin()
	}
	if at, err = m.find.Issuer(ctx, name); err != nil {
		return nil, "", nil, err
	}
	if at == nil && metadata == nil && m.o.Issuer == "" {
		at = m.find.Assumed()
	}
	if at == nil {
		return nil, "", nil, fmt.Errorf("the authorization server %s publishes no metadata: set token_url, or correct issuer", name)
	}
	if len(at.Methods) > 0 && m.o.Client.KeyFile != "" && !slices.Contains(at.Methods, discovery.Key) {
		m.o.Log.Debug("the metadata of the authorization server does not list signed assertions (private_key_jwt)", "issuer", at.Name)
	}
	return at, resource, scopes, nil
}
