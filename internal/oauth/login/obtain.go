package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// obtain gets a token other than the refused one. Only one process on this machine does so at a time. If another
// process got a token meanwhile, obtain uses that token (I-253, I-254).
func (p *Person) obtain(ctx context.Context, w *work, d demand) error {
	unlock, err := p.o.Store.Lock(ctx, p.key)
	if err != nil {
		return fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	l, err := p.o.Store.Read(p.key)
	switch {
	case errors.Is(err, errBroken):
		p.o.Log.Warn("the stored login cannot be read and is replaced", "err", err)
	case err != nil:
		return err
	}
	p.mu.Lock()
	var unsaved *Login
	if p.unsaved != nil && p.login != nil && l.access() == p.unsavedOver {
		copied := *p.login // the file still holds the login that could not be replaced
		unsaved = &copied
	}
	p.mu.Unlock()
	if unsaved != nil {
		p.save(unsaved) // the disk may have room by now
		own := *unsaved
		l = &own
	}
	if l.serves(d) {
		if unsaved == nil {
			p.setLogin(l, nil)
		}
		return nil
	}
	var r *discovery.Resource
	known := false
	if d.refused != "" && l != nil && !d.widen { // the server may have changed to another issuer (I-257)
		if r, err = p.metadata(ctx, d.challenge); err != nil {
			return err
		}
		known = true
		if p.reassigned(l, r) {
			p.o.Log.Info("the server has another authorization server now", "was", l.Issuer.Name)
			l = nil
		}
	}
	if l != nil && !d.widen && d.refused != "" && l.Access == d.refused && l.fresh(time.Now()) {
		if l.Renewed || l.Refresh == "" { // another sign-in would not help
			return errors.New("it refuses a token that its authorization server has just issued")
		}
	}
	if l != nil && l.Refresh != "" && !d.widen {
		w.renews = true
		again, err := p.renew(ctx, l)
		if err != nil && !again && p.moved(err) { // the authorization server's address may have changed
			if !known {
				if r, err = p.metadata(ctx, d.challenge); err != nil {
					return err
				}
				known = true
			}
			if p.reassigned(l, r) {
				err, again = fmt.Errorf("the server now names another authorization server than %s", l.Issuer.Name), true
				l = nil
			} else {
				again, err = p.renewElsewhere(ctx, l, r)
			}
		}
		if err == nil || !again {
			return err
		}
		w.renews = false
		p.o.Log.Info("the login for the server ended", "err", err)
	}
	if !d.signs {
		return nil
	}
	if p.noPrompt() {
		what := "the login for it ended"
		if l == nil {
			what = "it needs a token"
		} else if d.widen {
			what = "the request needs the scopes " + strings.Join(d.challenge.Scopes, " ")
		}
		return p.unsigned(what)
	}
	if !known {
		if r, err = p.metadata(ctx, d.challenge); err != nil {
			return err
		}
	}
	return p.signIn(ctx, w, l, r, d.challenge, d.widen)
}

// unsigned returns the error for a missing sign-in if no person can sign in here. Only the person gets the command; for
// other callers, the error says that the operator must sign in.
func (p *Person) unsigned(what string) error {
	if p.o.Own {
		return &oauth.Failure{Public: what + "; sign in: " + p.o.Command, SignIn: true}
	}
	return &oauth.Failure{
		Public: what + ": the bridge's operator must sign in",
		Err:    fmt.Errorf("sign in: %s", p.o.Command),
		SignIn: true,
	}
}

// setLogin makes a login the current login. unkept is the reason why the login was not saved, or nil.
func (p *Person) setLogin(l *Login, unkept error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.login, p.unsaved = l, unkept
}

// save stores a login before the login's token is used. If the disk is full, the login stays in memory (I-253).
func (p *Person) save(l *Login) {
	err := p.o.Store.Write(p.key, l)
	if err != nil {
		stored, _ := p.o.Store.Read(p.key)
		p.mu.Lock()
		p.unsavedOver = stored.access()
		p.mu.Unlock()
		p.o.Log.Error("the login for the server could not be stored: other processes must sign in again", "err", err)
	}
	p.setLogin(l, err)
}

// renew gets a new token with the refresh token. again means that a sign-in must follow.
func (p *Person) renew(ctx context.Context, old *Login) (again bool, err error) {
	l := *old
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.Refresh}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	t, err := p.token(ctx, &l, form)
	switch code := discovery.Refused(err); {
	case err == nil:
		l.setToken(t, l.Asked)
		l.Renewed = true
		p.save(&l)
		return false, nil
	case code == "invalid_client" && !l.Client.Registered:
		return false, &oauth.Failure{
			Public: "its authorization server refuses the configured client: check client_id and client_secret",
			Err:    err,
			SignIn: true,
		}
	case code == "invalid_client":
		l.Client = Client{}
		fallthrough
	case code == "invalid_grant": // the login has ended; the client stays valid (I-256)
		l.dropTokens()
		p.save(&l)
		*old = l
		return true, err
	default: // no other answer is about the refresh token
		return false, &oauth.Failure{Public: "its token could not be renewed", Err: err}
	}
}

// moved reports whether a renewal failed as if the authorization server had moved: another server answered, or
// rediscoverAfter consecutive renewals got no answer.
func (p *Person) moved(err error) bool {
	if e, ok := errors.AsType[*discovery.Error](err); ok {
		return e.NotOAuth()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewals.fails >= rediscoverAfter
}

// reassigned reports whether the server now names other authorization servers than the login's (I-257).
func (p *Person) reassigned(l *Login, r *discovery.Resource) bool {
	return p.o.Issuer == "" && r != nil && !slices.ContainsFunc(r.Issuers, func(name string) bool { return same(name, l.Issuer.Name) })
}

// renewElsewhere renews at the new address of the login's authorization server.
func (p *Person) renewElsewhere(ctx context.Context, l *Login, r *discovery.Resource) (again bool, err error) {
	at, err := p.issuer(ctx, l, r)
	if err == nil && (!same(at.Name, l.Issuer.Name) || at.Token == l.Issuer.Token) {
		err = errors.New("the answer is not that of an authorization server, and its metadata names no other address")
	}
	if err != nil {
		return false, &oauth.Failure{Public: "its token could not be renewed", Err: err}
	}
	p.o.Log.Info("the authorization server has a new token_endpoint", "issuer", at.Name)
	l.Issuer = *at
	return p.renew(ctx, l)
}

func (l *Login) setToken(t *discovery.Token, asked []string) {
	l.Access, l.Obtained, l.Until, l.Asked = t.Access, time.Now(), time.Time{}, asked
	if t.Refresh != "" {
		l.Refresh = t.Refresh
	}
	if t.Lives > 0 {
		l.Until = l.Obtained.Add(t.Lives)
	}
	if t.Scopes != nil {
		l.Granted = t.Scopes
	} else if l.Granted == nil {
		l.Granted = asked
	}
}
