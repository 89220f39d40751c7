package wire

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

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
