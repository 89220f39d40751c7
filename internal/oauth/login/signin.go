package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// SignIn signs in now, even if no sign-in is needed. If the server refuses the new token, SignIn returns both the login
// and an error.
func (p *Person) SignIn(ctx context.Context) (*Login, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit())
	defer cancel()
	d := demand{signs: true}
	status, h, err := p.probe(ctx, "")
	if err != nil {
		return nil, err
	}
	d.challenge, _ = discovery.Bearer(h)
	unlock, err := p.o.Store.Lock(ctx, p.key)
	if err != nil {
		return nil, fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	earlier, err := p.o.Store.Read(p.key)
	if err != nil && !errors.Is(err, errBroken) {
		return nil, err
	}
	r, err := p.metadata(ctx, d.challenge)
	if err != nil {
		return nil, err
	}
	if err := p.signIn(ctx, &work{forced: true, unasked: status < 500 && status != http.StatusUnauthorized && status != http.StatusForbidden}, earlier, r, d.challenge, false); err != nil {
		return nil, err
	}
	p.mu.Lock()
	l, unsaved := p.login, p.unsaved
	p.mu.Unlock()
	if unsaved != nil {
		return nil, fmt.Errorf("you have signed in, but the login could not be stored: %w", unsaved)
	}
	if p.o.API { // its base URL may not be an operation
		return l, nil
	}
	if status, h, err := p.probe(ctx, l.Access); err == nil && status == http.StatusUnauthorized {
		if _, bearer := discovery.Bearer(h); bearer { // otherwise, the answer may be about a session
			return l, fmt.Errorf("you have signed in, but the server refuses the token that %s has just issued: ask the operator of the server", l.Issuer.Name)
		}
	}
	return l, nil
}

// ErrUnreachable means that the server did not answer the probe.
var ErrUnreachable = errors.New("the server cannot be reached")

// probe sends a harmless request to get the server's challenge. token may be empty.
func (p *Person) probe(ctx context.Context, token string) (status int, h http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, discovery.Limit)
	defer cancel()
	method, ping := http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if p.o.API {
		method, ping = http.MethodGet, ""
	}
	r, err := http.NewRequestWithContext(ctx, method, p.o.Server.String(), strings.NewReader(ping))
	if err != nil {
		return 0, nil, errors.New("the address of the server is not a URL")
	}
	r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "User-Agent": {"mcp-bridge"}}
	if ping != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := p.o.Transport.RoundTrip(r)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrUnreachable, discovery.Reason(err))
	}
	_ = res.Body.Close()
	return res.StatusCode, res.Header, nil
}

// signIn signs in. earlier is the previous login, or nil. r is the server's metadata, or nil.
func (p *Person) signIn(ctx context.Context, w *work, earlier *Login, r *discovery.Resource, c discovery.Challenge, widen bool) error {
	at, err := p.issuer(ctx, earlier, r)
	if err != nil {
		return err
	}
	if w.unasked && at.Assumed {
		return errors.New("the server does not ask for a sign-in: it answers without a token, and names no authorization server")
	}
	if earlier != nil && earlier.Issuer.Name != at.Name {
		earlier = nil // credentials for one issuer are never sent to another issuer (I-209)
	}
	l := &Login{
		Server:   p.find.Server(),
		Issuer:   *at,
		Resource: p.resource(r),
	}
	scopes := p.scopes(at, earlier, r, c, widen)
	flow := p.byBrowser
	if p.o.Device != nil {
		flow = p.byDevice
	}
	t, err := flow(ctx, w, l, earlier, scopes)
	if err != nil {
		if discovery.Refused(err) == "invalid_client" && l.Client.Registered {
			l.Client = Client{} // the next attempt registers the client again
			p.save(l)
		}
		return err
	}
	l.setToken(t, scopes)
	p.save(l)
	p.o.Log.Info("signed in", "issuer", at.Name)
	return nil
}

// byBrowser makes the person sign in with a browser on this machine, and returns the token. A file holds the attempt:
// if this process ends, the next process waits at the same redirect address (I-254).
func (p *Person) byBrowser(ctx context.Context, w *work, l, earlier *Login, scopes []string) (*discovery.Token, error) {
	a, back := p.resume(ctx, l, scopes)
	if a != nil && a.Login.Client.Registered && !p.stillRegistered(ctx, l, a.Login.Client, scopes) {
		_ = back.listener.Close()
		if earlier != nil && earlier.Client == a.Login.Client {
			earlier = nil
		}
		a = nil
	}
	shownBefore := a != nil && !w.forced && time.Since(a.Began) < pageOpenFor
	if a == nil {
		client, opened, err := p.client(ctx, l, earlier, scopes)
		if err != nil {
			return nil, err
		}
		l.Client, back = client, opened
		a = &attempt{
			Login:    *l,
			Scopes:   scopes,
			Verifier: rand.Text() + rand.Text(),
			State:    rand.Text() + rand.Text(),
			Began:    time.Now(),
		}
		if err := p.o.Store.begin(p.key, a); err != nil {
			p.o.Log.Warn("a sign-in in progress could not be stored: another process cannot finish it", "err", err)
		}
	}
	l.Client = a.Login.Client
	address, err := p.address(l, a.Scopes, a.Verifier, a.State)
	if err != nil {
		_ = back.listener.Close()
		return nil, err
	}
	w.mu.Lock()
	w.address = address
	w.mu.Unlock()
	if shownBefore {
		p.o.Log.Info("this process continues a sign-in that another one began")
	} else {
		p.o.Ask(address)
	}
	code, err := back.await(ctx, a.State, &l.Issuer, p.o.Typed)
	if !errors.Is(err, context.Canceled) { // otherwise, the browser may still return
		p.o.Store.forget(p.key)
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("nobody signed in within %d minutes: begin again; if the page reported an unknown client, run 'mcp-bridge logout' for this server first", int(Limit.Minutes()))
		}
		return nil, err
	}
	form := url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {l.Client.Redirect},
		"code_verifier": {a.Verifier},
	}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	return p.token(ctx, l, form)
}

// issuer returns the authorization server of the settings, or a server that the MCP server names. It prefers the issuer
// of the earlier login if the MCP server still names that issuer (I-204).
func (p *Person) issuer(ctx context.Context, earlier *Login, r *discovery.Resource) (*discovery.Issuer, error) {
	name := p.o.Issuer
	switch {
	case name != "":
	case r != nil:
		name = r.Issuers[0]
		if earlier != nil {
			if i := slices.IndexFunc(r.Issuers, func(name string) bool { return same(name, earlier.Issuer.Name) }); i >= 0 {
				name = r.Issuers[i]
			}
		}
	case p.o.API:
		return nil, errors.New("the API names no authorization server (RFC 9728): set the issuer")
	default:
		name = p.find.Origin()
	}
	at, err := p.find.Issuer(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case at == nil && r == nil && p.o.Issuer == "":
		return p.find.Assumed(), nil
	case at == nil:
		return nil, fmt.Errorf("the authorization server %s publishes no metadata", name)
	case p.o.Device != nil && at.Device == "":
		return nil, fmt.Errorf("the authorization server %s has no device flow: sign in without --device, in a browser on this machine", name)
	case p.o.Device != nil:
	case at.Authorization == "":
		return nil, fmt.Errorf("nobody can sign in at the authorization server %s: its metadata has no authorization_endpoint", name)
	case !slices.Contains(at.Challenges, "S256") && p.o.PKCE != oauth.PKCEAssume: // (I-208)
		return nil, fmt.Errorf("the metadata of the authorization server %s does not list PKCE with S256: if it supports it, set pkce: assume in a configuration file, under oauth", name)
	}
	return at, nil
}

// same reports whether two names are of the same issuer. A trailing slash makes no difference (I-206).
func same(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

func (p *Person) resource(r *discovery.Resource) string {
	switch {
	case p.o.Resource == oauth.ResourceOff:
		return ""
	case p.o.Resource != "":
		return p.o.Resource
	case r != nil:
		return r.Name
	}
	if p.o.API {
		return ""
	}
	return p.find.Server()
}

// metadata returns the server's metadata, or nil if the server has none or none is needed.
func (p *Person) metadata(ctx context.Context, c discovery.Challenge) (*discovery.Resource, error) {
	if p.o.API && p.o.Issuer != "" {
		return nil, nil
	}
	return p.find.Resource(ctx, c.Metadata)
}

// scopes returns the scopes to request: those of the settings, else of the challenge, else of the server's metadata,
// else none. With widen, the scopes of the settings and of the challenge are added to the earlier scopes (I-211,
// I-212). offline_access is added if the authorization server knows it.
func (p *Person) scopes(at *discovery.Issuer, earlier *Login, r *discovery.Resource, c discovery.Challenge, widen bool) []string {
	var all []string
	switch {
	case widen:
		if earlier != nil {
			all = append(all, earlier.Asked...)
		}
		all = append(append(all, p.o.Scopes...), c.Scopes...)
	case len(p.o.Scopes) > 0:
		all = append(all, p.o.Scopes...)
	case len(c.Scopes) > 0:
		all = append(all, c.Scopes...)
	case r != nil:
		all = append(all, r.Scopes...)
	}
	if slices.Contains(at.Scopes, "offline_access") {
		all = append(all, "offline_access")
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s string) bool {
		twice := seen[s]
		seen[s] = true
		return twice
	})
}

// address returns the address of the authorization request.
func (p *Person) address(l *Login, scopes []string, verifier, state string) (string, error) {
	u, err := p.find.Address(l.Issuer.Authorization)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": l.Client.ID, "redirect_uri": l.Client.Redirect, "state": state,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256",
		"resource": l.Resource, "scope": strings.Join(scopes, " "),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}
