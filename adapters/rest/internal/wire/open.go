package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// New returns a source. It reads the files that o.HTTP names, and makes no connection.
func New(o Options) (*Source, error) {
	o.Fill()
	s := &Source{
		o:       o,
		schemas: o.Schemas,
		log:     o.Log,
		budget:  o.Budget,
		forward: map[string]string{},
	}
	if s.schemas == nil {
		s.schemas = validate.NewCache(defaultSchemas)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	client, err := remote.New(o.HTTP)
	if err != nil {
		return nil, err
	}
	s.http, s.closeIdle = client, client.Close
	if err := s.openClients(client); err != nil {
		return nil, err
	}
	if s.reach, err = NewReach(&s.o); err != nil {
		return nil, err
	}
	if err := s.checkHeaders(&o); err != nil {
		return nil, err
	}
	if s.budget == nil {
		s.budget = NewBudget(&o)
	}
	s.life, s.stop = context.WithCancel(context.Background())
	if err := errors.Join(s.openTokens(), s.openSigners()); err != nil {
		s.stop()
		s.closeIdle()
		return nil, err
	}
	secrets := append(s.reach.keys.secrets(&o), o.Secrets...)
	if home := s.reach.home.URL; home != nil {
		for name, values := range home.Query() {
			if sanitize.MayNameSecret(name) {
				secrets = append(secrets, values...)
			}
		}
	}
	s.hidden = map[string]bool{}
	for name, value := range o.Headers {
		s.hidden[http.CanonicalHeaderKey(name)] = sanitize.MayNameSecret(name) || slices.ContainsFunc(o.Secrets, func(t string) bool { return t != "" && strings.Contains(value, t) })
	}
	s.secrets = sanitize.NewMask(masked, long(secrets)...)
	return s, nil
}

// openClients opens the clients for servers that the first client must not reach.
func (s *Source) openClients(first *remote.Client) error {
	s.clients = map[clientKey]doer{}
	all := []*remote.Client{first}
	for _, m := range []clientKey{{true, anyAddress}, {false, noLinkLocal}, {true, noLinkLocal}, {false, publicOnly}, {true, publicOnly}} {
		if m.bare && s.o.HTTP.CertFile == "" || m.guard != anyAddress && s.o.Document == nil {
			continue
		}
		c := s.o.HTTP
		if m.bare {
			c.CertFile, c.KeyFile = "", ""
		}
		switch m.guard {
		case noLinkLocal:
			c.Refuses = remote.LinkLocal
		case publicOnly:
			c.Outside = true
		}
		client, err := remote.New(c)
		if err != nil {
			return err
		}
		s.clients[m] = client
		all = append(all, client)
	}
	s.closeIdle = func() {
		for _, c := range all {
			c.Close()
		}
	}
	return nil
}

// checkHeaders checks the configured headers and Options.Forward, and sets s.forward.
func (s *Source) checkHeaders(o *Options) error {
	for name, value := range o.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || openapi.OfConnection(name) && !strings.EqualFold(name, "Cookie") {
			return fmt.Errorf("headers: %s cannot be sent", name)
		}
	}
	for _, rule := range o.Forward {
		from, to, ok := strings.Cut(rule, " as ")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		if !ok {
			to = from
		}
		for _, name := range []string{from, to} {
			if !httpguts.ValidHeaderFieldName(name) {
				return fmt.Errorf("forward: %q is not the name of a header", name)
			}
			if remote.Reserved(name) || openapi.OfConnection(name) && !strings.EqualFold(name, "Cookie") || strings.HasPrefix(http.CanonicalHeaderKey(name), "Content-") {
				return fmt.Errorf("forward: %s belongs to the connection and cannot be passed on", name)
			}
		}
		s.forward[http.CanonicalHeaderKey(from)] = http.CanonicalHeaderKey(to)
	}
	return nil
}

// openTokens opens the token sources of credentials. Credentials with the same client and endpoint
// share a source.
func (s *Source) openTokens() (wrong error) {
	type key struct {
		client *Client
		at     string
	}
	all := map[key]*tokens{}
	s.reach.keys.each(func(u *use) {
		if !u.gets || wrong != nil {
			return
		}
		k := key{u.from.Client, u.at.String()}
		if all[k] == nil {
			t := &tokens{hide: s.hide, number: s.budget.tokens.Add(1)}
			var end func()
			if t.by, end, wrong = s.authorizer(&u.from, u.at); wrong != nil {
				return
			}
			if u.from.Login {
				t.warnLogin = sync.OnceFunc(func() { s.log.Warn("calls need a sign-in", "err", "run 'mcp-bridge login "+s.o.Name+"'") })
			}
			all[k] = t
			inner := s.closeIdle
			s.closeIdle = func() {
				end()
				inner()
			}
		}
		u.tokens = all[k]
	})
	return wrong
}

// authorizer returns the token source of a credential. end closes it.
func (s *Source) authorizer(c *Credential, at endpoint) (by remote.Authorizer, end func(), err error) {
	o := oauth.Options{
		Settings: c.settings(),
		Server:   &url.URL{Scheme: "https"},
		Log:      s.log,
	}
	switch home := s.reach.home.URL; {
	case c.Login: // the same address as in SignIn
		o.Server, err = url.Parse(s.o.BaseURL)
	case home != nil:
		o.Server = home
	}
	if err != nil {
		return nil, nil, errors.New("base_url is not a URL")
	}
	if o.Issuer == "" && !c.Login {
		o.Client.TokenURL = at.String() // the endpoint may be from the document
		o.Transport = tripper(func(r *http.Request) (*http.Response, error) { return s.client(false, s.reach.guard(at)).Do(r) })
	} else {
		out := s.o.HTTP
		out.URL = o.Server.String()
		if o.Transport, err = remote.Outward(out, o.Private, o.Trusted()...); err != nil {
			return nil, nil, err
		}
	}
	if !c.Login {
		m := oauth.NewMachine(o)
		return m, m.Close, nil
	}
	p, err := login.NewOwn(login.Options{Options: o, Command: "mcp-bridge login " + s.o.Name})
	if err != nil {
		return nil, nil, fmt.Errorf("credentials: login: %w", err)
	}
	return p, p.Close, nil
}

// tripper is a function as an http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t(r)
	if err != nil && res != nil {
		_ = res.Body.Close()
		res = nil
	}
	return res, err
}

// openSigners opens the signers of credentials that sign requests.
func (s *Source) openSigners() error {
	var wrong error
	closeIdle := s.closeIdle
	s.reach.keys.each(func(u *use) {
		switch c := u.signs; {
		case wrong != nil:
			return
		case c.AWS != nil:
			u.signer = c.AWS.Signer()
		case c.Hook != nil:
			var err error
			if u.signer, err = c.Hook.Signer(); err != nil {
				wrong = fmt.Errorf("credentials: hook: %w", err)
				return
			}
			u.hide = s.hide
		default:
			return
		}
		signer, inner := u.signer, closeIdle
		closeIdle = func() {
			signer.Close()
			inner()
		}
	})
	s.closeIdle = closeIdle
	return wrong
}

// Close ends calls in flight with an error, and returns when all have ended.
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	s.closeIdle()
}
