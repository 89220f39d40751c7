package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// The methods of client authentication.
const (
	None  = "none"
	Basic = "client_secret_basic"
	Post  = "client_secret_post"
	Key   = "private_key_jwt"
)

const (
	limit     = 30 * time.Second
	maxAnswer = 1 << 20
	maxToken  = 64 << 10
)

// Client is the bridge as a client of an authorization server.
type Client struct {
	ID     string
	Secret string // empty without one
	// Method is the authentication method. Empty means any method that the issuer supports.
	Method string
	Key    assertion.Key // signs assertions, in place of Secret
}

// NewClient returns the client of an operator's settings. inBody says that the secret goes into the body, not a header.
func NewClient(id, secret string, inBody bool, key assertion.Key) *Client {
	c := &Client{
		ID:     id,
		Secret: secret,
		Key:    key,
	}
	if inBody {
		c.Method = Post
	}
	return c
}

// Token is the answer of a token endpoint.
type Token struct {
	Access  string
	Refresh string   // empty without one
	ID      string   // ID token (OpenID Connect), not verified; empty without one
	Scopes  []string // granted scopes; nil if the answer does not name them
	// Lives is the lifetime of the access token; 0 means unknown.
	Lives time.Duration
}

// Error is the error answer of an authorization server.
type Error struct {
	Status int
	Code   string // such as invalid_grant; may be empty
	Text   string // error_description without secrets of the request; may be empty
}

// Error returns the status, the code and the description.
func (e *Error) Error() string {
	s := fmt.Sprintf("the authorization server says %d", e.Status)
	if e.Code != "" {
		s += ": " + e.Code
	}
	if e.Text != "" {
		s += " (" + e.Text + ")"
	}
	return s
}

// NotOAuth reports whether the answer is not from an authorization server: there is nothing at the address, or the
// error has no code.
func (e *Error) NotOAuth() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return true
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	}
	return e.Status/100 == 3 || e.Status/100 == 4 && e.Code == ""
}

// Final reports whether the server refuses the request for good, so that a repetition would get the same answer.
func (e *Error) Final() bool {
	return e != nil && e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout
}

// Refused returns the code of a Final error. It returns "" for other failures, which say nothing about tokens (I-256).
func Refused(err error) string {
	if e, _ := errors.AsType[*Error](err); e.Final() {
		return e.Code
	}
	return ""
}

// Asker sends requests to authorization servers.
type Asker struct{ client *http.Client }

// NewAsker returns an Asker. transport should refuse addresses that strangers must not name. The Asker follows no
// redirect, so that no secret goes to another address.
func NewAsker(transport http.RoundTripper) *Asker { return &Asker{Unredirected(transport, limit)} }

// Unredirected returns an HTTP client that follows no redirect, which could lead anywhere (I-020).
func Unredirected(transport http.RoundTripper, limit time.Duration) *http.Client {
	return &http.Client{
		Transport:     transport,
		Timeout:       limit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (a *Asker) Token(ctx context.Context, at *Issuer, c *Client, form url.Values) (*Token, error) {
	data, err := a.Send(ctx, at, at.Token, c, form)
	if err != nil {
		return nil, err
	}
	return read(data)
}

// Send sends a form to an endpoint of an issuer, with the authentication of the client c, and returns the answer.
func (a *Asker) Send(ctx context.Context, at *Issuer, endpoint string, c *Client, form url.Values) ([]byte, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the endpoint of the authorization server must be a URL")
	}
	h := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	if form, err = c.Authenticate(at, form, h); err != nil {
		return nil, err
	}
	return a.post(ctx, u, h, form.Encode(), append(secrets(form), c.Secret))
}

// post sends a POST, and returns the answer. hidden are secrets that an error must not show.
func (a *Asker) post(ctx context.Context, u *url.URL, h http.Header, text string, hidden []string) ([]byte, error) {
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "mcp-bridge")
	r := (&http.Request{
		Method:        http.MethodPost,
		URL:           u,
		Host:          u.Host,
		Header:        h,
		Body:          io.NopCloser(strings.NewReader(text)),
		ContentLength: int64(len(text)),
	}).WithContext(ctx)
	status, data, err := a.do(r)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return nil, refusal(status, data, hidden)
	}
	return data, nil
}

// Userinfo asks the userinfo endpoint of a provider for claims about the user of an access token (OpenID Connect Core
// §5.3). If they are about another subject, it returns an error.
func (a *Asker) Userinfo(ctx context.Context, at *Issuer, access, subject string) (claims gjson.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Userinfo, nil)
	if err != nil {
		return claims, errors.New("the userinfo_endpoint must be a URL")
	}
	r.Header = http.Header{"Authorization": {"Bearer " + access}, "Accept": {"application/json"}, "User-Agent": {"mcp-bridge"}}
	status, data, err := a.do(r)
	switch {
	case err != nil:
		return claims, err
	case status != http.StatusOK:
		return claims, refusal(status, data, []string{access})
	case rawjson.Deeper(data, MaxDepth):
		return claims, errDeep
	case !gjson.ValidBytes(data) || !gjson.ParseBytes(data).IsObject():
		return claims, errors.New("the answer of userinfo must be a JSON object: have the provider send it unsigned")
	case stringAt(data, "sub") != subject: // claims about another user must not be used
		return claims, errors.New("the answer of userinfo is about another user")
	}
	return gjson.ParseBytes(data), nil
}

func (a *Asker) do(r *http.Request) (status int, data []byte, err error) {
	res, err := a.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("the authorization server cannot be reached: %w", Reason(err))
	}
	defer res.Body.Close()
	data, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("the answer of the authorization server is cut off: %w", Reason(err))
	case len(data) > maxAnswer:
		return 0, nil, errors.New("the answer of the authorization server is larger than 1 MiB")
	}
	return res.StatusCode, data, nil
}

// secrets returns the values of a form that are secret.
func secrets(form url.Values) (all []string) {
	for _, name := range []string{"client_secret", "client_assertion", "refresh_token", "code", "code_verifier", "subject_token", "assertion", "token", "device_code"} {
		all = append(all, form.Get(name))
	}
	return all
}

// refusal parses an error answer (RFC 6749 §5.2), and removes the secrets hidden from it.
func refusal(status int, data []byte, hidden []string) *Error {
	e := &Error{Status: status}
	if code := gjson.GetBytes(data, "error"); code.Type == gjson.String && len(code.Str) < 60 && httpguts.ValidHeaderFieldName(code.Str) {
		e.Code = code.Str
	}
	text := string(sanitize.NewMask("…", hidden...).Bytes([]byte(gjson.GetBytes(data, "error_description").String())))
	e.Text = sanitize.Text(strings.ToValidUTF8(text[:min(len(text), 300)], ""))
	return e
}

// Authenticate adds the client's authentication to a request (I-219): to the headers h, or to the copy of form that it
// returns.
func (c *Client) Authenticate(at *Issuer, form url.Values, h http.Header) (url.Values, error) {
	out := url.Values{}
	for name, values := range form {
		out[name] = values
	}
	switch method := c.method(at); method {
	case None:
		out.Set("client_id", c.ID)
	case Basic: // the encoding is that of RFC 6749 §2.3.1
		r := http.Request{Header: h}
		r.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	case Post:
		out.Set("client_id", c.ID)
		out.Set("client_secret", c.Secret)
	case Key:
		if err := c.Key.AddTo(out, c.ID, at.Name, at.Algorithms); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the bridge does not support the client authentication method %q", sanitize.Text(method))
	}
	return out, nil
}

// method returns the authentication method that the client uses at an issuer.
func (c *Client) method(at *Issuer) string {
	switch {
	case c.Key.File != "":
		return Key
	case c.Secret == "":
		return None
	case c.Method != "":
		return c.Method
	case len(at.Methods) > 0 && !slices.Contains(at.Methods, Basic) && slices.Contains(at.Methods, Post):
		return Post
	}
	return Basic
}

var errDeep = fmt.Errorf("the answer of the authorization server is nested deeper than %d levels", MaxDepth)

// SplitScopes returns the scopes in a text. Only spaces separate them (RFC 6749 §3.3).
func SplitScopes(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
}

// read parses the answer of a token endpoint (I-220).
func read(data []byte) (*Token, error) {
	t := &Token{
		Access:  gjson.GetBytes(data, "access_token").Str,
		Refresh: gjson.GetBytes(data, "refresh_token").Str,
		ID:      gjson.GetBytes(data, "id_token").Str,
	}
	switch {
	case rawjson.Deeper(data, MaxDepth): // before the checks below, which recurse for each level
		return nil, errDeep
	case !gjson.ValidBytes(data) || t.Access == "" || len(t.Access) > maxToken || !httpguts.ValidHeaderFieldValue(t.Access) || strings.ContainsAny(t.Access, " \t"):
		return nil, errors.New("the answer of the authorization server has no usable access_token")
	case !strings.EqualFold(gjson.GetBytes(data, "token_type").String(), "bearer") && gjson.GetBytes(data, "token_type").Exists():
		return nil, errors.New("the token_type of the authorization server's answer must be Bearer")
	}
	if v := gjson.GetBytes(data, "scope"); v.Type == gjson.String {
		t.Scopes = SplitScopes(v.Str)
	}
	if n := gjson.GetBytes(data, "expires_in"); n.Float() > 0 && n.Float() < 1e9 {
		t.Lives = time.Duration(n.Float() * float64(time.Second))
	}
	return t, nil
}

// Register sends client metadata to a registration endpoint (RFC 7591), and returns the answer.
func (a *Asker) Register(ctx context.Context, endpoint string, metadata map[string]any) ([]byte, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the registration endpoint must be a URL")
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	data, err := a.post(ctx, u, http.Header{"Content-Type": {"application/json"}}, string(text), nil)
	switch {
	case err != nil:
		return nil, err
	case rawjson.Deeper(data, MaxDepth):
		return nil, errDeep
	case !gjson.ValidBytes(data):
		return nil, errors.New("its answer must be JSON")
	}
	return data, nil
}
