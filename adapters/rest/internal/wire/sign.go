package wire

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/internal/cut"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// maxHookDetail bounds the text of a hook's error in the log, in bytes.
const maxHookDetail = 500

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

// hookDetail returns a hook's own error text for the log. Only here, values of the hook's environment
// are masked as well: an answer may well contain such a value, for example the name of a region.
func (s *Source) hookDetail(hook *sign.HookError) string {
	var own []string
	for _, c := range s.o.credentials() {
		if c.Hook != nil {
			own = slices.AppendSeq(own, maps.Values(c.Hook.Env))
		}
	}
	return cut.Head(s.secrets.With(long(own)...).Bytes([]byte(hook.Detail)), maxHookDetail)
}

// sign signs a finished request. Forwarded headers of the caller stay unchanged.
func (p *Plan) sign(ctx context.Context, r *http.Request) error {
	for _, u := range p.uses {
		if u.signer == nil {
			continue
		}
		given := maps.Clone(r.Header)
		if err := u.signer.Sign(ctx, r, p.Body); err != nil {
			return err
		}
		for name, values := range r.Header {
			if !slices.Equal(values, given[name]) {
				replace(r.Header, name, values)
			}
		}
		for name := range r.Header {
			// A signature is good for one request only, and would displace tokens from the list of secrets.
			if u.hide != nil && p.Header[name] == nil && sanitize.MayNameSecret(name) && !strings.Contains(name, "Signature") {
				_, token, found := strings.Cut(r.Header.Get(name), "Bearer ")
				if u.hide(r.Header.Get(name)); found {
					u.hide(token)
				}
			}
		}
		for _, name := range p.forwarded {
			replace(r.Header, name, p.Header[name])
		}
	}
	return nil
}

// resigned returns the request so that it is signed anew after a redirect, since its path changes.
// Only redirects on the same server are followed.
func (p *Plan) resigned(r *http.Request) *http.Request {
	for _, u := range p.uses {
		if u.signer != nil {
			return r.WithContext(remote.OnRedirect(r.Context(), func(next *http.Request) error { return p.sign(next.Context(), next) }))
		}
	}
	return r
}
