package httpclient

import (
	"context"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/internal/oauth"
)

// Authorizer gives the requests to a server their token, and hears when one is refused.
type Authorizer interface {
	// Token returns the token to show, or empty for none. The error says why there is none;
	// nothing is sent then.
	Token(ctx context.Context) (string, error)
	// Refused is told that the server has refused a request that showed that token, with 401
	// or 403, and how often it has refused this one before. It reports whether to send the
	// request again: the server has not acted on it. The error is for whoever made it.
	Refused(ctx context.Context, token string, h http.Header, status, before int) (again bool, err error)
}

var _ Authorizer = (*oauth.Machine)(nil)

// maxRefused is how much of the body of a refusal is read, so that its connection can be
// used again.
const maxRefused = 64 << 10

// send sends a request with a token. A request with an Authorization of its own goes out
// as it is.
func (c *Client) send(by *http.Client, r *http.Request) (*http.Response, error) {
	if c.auth == nil || r.Header.Get("Authorization") != "" {
		return clean(by.Do(r))
	}
	for before := 0; ; before++ {
		token, err := c.auth.Token(r.Context())
		if err != nil {
			return nil, err
		}
		again := r.Clone(r.Context())
		if token != "" {
			again.Header.Set("Authorization", "Bearer "+token)
		}
		if r.GetBody != nil && before > 0 {
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		res, err := clean(by.Do(again))
		if err != nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			return res, err
		}
		more, err := c.auth.Refused(r.Context(), token, res.Header, res.StatusCode, before)
		if err == nil && !more {
			return res, nil
		}
		_, _ = io.CopyN(io.Discard, res.Body, maxRefused)
		_ = res.Body.Close()
		if err != nil {
			return nil, err
		}
	}
}
