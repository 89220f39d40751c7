package login

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// SignOut revokes the tokens of a login if the authorization server can revoke tokens (RFC 7009). In any case, it
// removes the login (I-258) and an attempt. o are the settings, or nil; the secret of their client is sent only to
// their issuer. The error shows whether the login is still stored.
func SignOut(ctx context.Context, s *Store, key string, transport http.RoundTripper, o *oauth.Settings) error {
	unlock, err := s.Lock(ctx, key)
	if err != nil {
		return fmt.Errorf("the folder of logins cannot be used: %w", err)
	}
	defer unlock()
	s.forget(key)
	l, err := s.Read(key)
	if err == nil && l != nil && l.Issuer.Revocation != "" && cmp.Or(l.Refresh, l.Access) != "" {
		var client *oauth.Client
		if o != nil && o.Client != nil && o.Client.ID == l.Client.ID && same(o.Issuer, l.Issuer.Name) {
			client = o.Client
		}
		form := url.Values{"token": {cmp.Or(l.Refresh, l.Access)}}
		if _, err = discovery.NewAsker(transport).Send(ctx, &l.Issuer, l.Issuer.Revocation, l.Client.grant(client), form); err != nil {
			err = fmt.Errorf("the login is removed here, but its tokens could not be revoked: %w", err)
		}
	} else if err != nil {
		err = fmt.Errorf("the login is removed, but its tokens could not be revoked: %w", err)
	}
	if removed := s.Remove(key); removed != nil {
		return fmt.Errorf("the login cannot be removed: %w", removed)
	}
	return err
}
