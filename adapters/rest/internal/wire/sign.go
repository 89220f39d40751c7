package wire

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
)

// maxSaid is how much the log has of what a hook says of its failure.
const maxSaid = 500

// equipSigners gives the credentials that sign requests what does it.
func (s *Source) equipSigners() error {
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

// hookSaid returns what a hook has said of its failure, for the log. What is in its
// environment is masked only here: answers may well have the name of a region in them.
func (s *Source) hookSaid(hook *sign.HookError) string {
	s.mu.Lock()
	secret := slices.Clone(s.secret)
	s.mu.Unlock()
	for _, c := range s.o.credentials() {
		if c.Hook != nil {
			for _, value := range c.Hook.Env {
				secret = append(secret, spellings(value)...)
			}
		}
	}
	longestFirst(secret)
	return head(without([]byte(hook.Detail), secret), maxSaid)
}

// sign signs a request that is ready otherwise. What the caller has sent stays as
// it is.
func (p *Plan) sign(ctx context.Context, r *http.Request) error {
	for _, u := range p.uses {
		if u.signer == nil {
			continue
		}
		if err := u.signer.Sign(ctx, r, p.Body); err != nil {
			return err
		}
		for name := range r.Header {
			// Signatures hold for one request: they would drive tokens out of what is masked.
			if u.hide != nil && p.Header[name] == nil && Sensitive(name) && !strings.Contains(name, "Signature") {
				_, token, found := strings.Cut(r.Header.Get(name), "Bearer ")
				if u.hide(r.Header.Get(name)); found {
					u.hide(token)
				}
			}
		}
		for _, name := range p.forwarded {
			r.Header[name] = p.Header[name]
		}
	}
	return nil
}

// resigned has a request signed anew where it is redirected on the same server: its
// path is another then. It is redirected nowhere else.
func (p *Plan) resigned(r *http.Request) *http.Request {
	for _, u := range p.uses {
		if u.signer != nil {
			return r.WithContext(remote.OnRedirect(r.Context(), func(next *http.Request) error { return p.sign(next.Context(), next) }))
		}
	}
	return r
}
