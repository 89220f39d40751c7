package remote

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// Authorizer returns tokens for the requests to a server.
type Authorizer interface {
	// Token returns the token for a request, or "" if the request needs none. After an error, the
	// request is not sent.
	Token(ctx context.Context) (string, error)
	// Refused is called after the server has refused a request that had that token. h are the headers
	// of the response, and status is 401 or 403. before is how often the server refused this request
	// before. Refused reports whether to send the request again, which is safe, since the server has
	// not acted on it. The error is for the caller of the request.
	Refused(ctx context.Context, token string, h http.Header, status, before int) (again bool, err error)
}

var _ Authorizer = (*oauth.Machine)(nil)

// maxRefused bounds the bytes of a refusal's body that are read, so that its connection can be used
// again.
const maxRefused = 64 << 10

// sessionHeader has the id of the session to which a request belongs.
const sessionHeader = "Mcp-Session-Id"

// Credentials returns the name of the header with a request's credentials, or "" if there are none.
func Credentials(r *http.Request) string {
	for _, name := range []string{"Authorization", "X-API-Key"} {
		if r.Header.Get(name) != "" {
			return name
		}
	}
	return ""
}

// forgotten reports whether a 401 is about the session of the request, and not about the token.
// Older versions of the Rust SDK answer so after a restart. The body can still be read from its
// beginning.
func forgotten(res *http.Response) bool {
	if _, bearer := discovery.Bearer(res.Header); bearer || res.StatusCode != http.StatusUnauthorized {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, maxRefused))
	res.Body = &reread{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	return err == nil && SessionNotFound(string(head))
}

// SessionNotFound reports whether the text of a 401 means that the server has forgotten the
// session.
func SessionNotFound(text string) bool {
	return strings.Contains(strings.ToLower(text), "session not found")
}

// reread is a body whose beginning was read, and is returned again.
type reread struct {
	io.Reader
	io.Closer
}

// send sends a request, with a token unless the request has its own header Authorization. After a
// refusal, it may send the request again with another token.
func (c *Client) send(by *http.Client, r *http.Request) (*http.Response, error) {
	if cookies, ok := r.Context().Value(cookiesKey{}).(*Cookies); ok {
		with := *by
		with.Jar, by = cookies, &with
	}
	do := func(r *http.Request) (*http.Response, error) {
		res, err := clean(by.Do(r))
		if err == nil {
			err = wantsTLS(res)
		}
		if err != nil {
			return res, err
		}
		return decoded(res)
	}
	if c.auth == nil || r.Header.Get("Authorization") != "" {
		return do(r)
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
		res, err := do(again)
		if err != nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
			return res, err
		}
		if r.Header.Get(sessionHeader) != "" && forgotten(res) {
			return res, nil
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
