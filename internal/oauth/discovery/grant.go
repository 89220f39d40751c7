package discovery

import (
	"bytes"
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

// The ways in which a client shows who it is.
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

// Client is who asks.
type Client struct {
	ID     string
	Secret string // empty without one
	// Method is how it shows who it is; empty means as the issuer wants it.
	Method string
	Key    assertion.Key // that signs, in place of a secret
}

// Token is what an authorization server has given.
type Token struct {
	Access  string
	Refresh string   // empty without one
	ID      string   // says who the user is (OpenID Connect); empty without one, and not checked
	Scopes  []string // that were granted; nil if it does not say
	// Lives is for how long the token is good; 0 if it does not say.
	Lives time.Duration
}

// Error is a refusal of an authorization server.
type Error struct {
	Status int
	Code   string // such as invalid_grant; empty if it gives none
	Text   string // what it says of it, without what we have sent; empty if nothing
}

// Error says what the server has answered.
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

// Strange reports whether it looks as if no authorization server has answered: there is
// nothing at that address, or the request is refused without a code.
func (e *Error) Strange() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return true
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	}
	return e.Status/100 == 3 || e.Status/100 == 4 && e.Code == ""
}

// Refused returns the code with which an authorization server has refused; empty for every
// other failure, which says nothing about tokens (I-256).
func Refused(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout {
		return e.Code
	}
	return ""
}

// Asker sends requests to authorization servers.
type Asker struct{ client *http.Client }

// NewAsker makes one. The transport should refuse addresses that strangers may not name. No
// redirect is followed: a secret goes to the address that was meant, or nowhere.
func NewAsker(transport http.RoundTripper) *Asker {
	return &Asker{&http.Client{
		Transport: transport, Timeout: limit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Token asks for a token at the token endpoint of an issuer.
func (a *Asker) Token(ctx context.Context, at *Issuer, c *Client, form url.Values) (*Token, error) {
	data, err := a.Send(ctx, at, at.Token, c, form)
	if err != nil {
		return nil, err
	}
	return read(data)
}

// Send sends a form to an endpoint of an issuer, as a client, and returns the answer.
func (a *Asker) Send(ctx context.Context, at *Issuer, endpoint string, c *Client, form url.Values) ([]byte, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the endpoint of the authorization server is not a URL")
	}
	h := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}, "User-Agent": {"mcp-bridge"}}
	if form, err = c.show(at, form, h); err != nil {
		return nil, err
	}
	text := form.Encode()
	r := (&http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}).WithContext(ctx)
	status, data, err := a.do(r)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return nil, refusal(status, data, append(secrets(form), c.Secret))
	}
	return data, nil
}

// do sends a request and reads the answer.
func (a *Asker) do(r *http.Request) (status int, data []byte, err error) {
	res, err := a.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("the authorization server cannot be reached: %w", Reason(err))
	}
	defer res.Body.Close()
	data, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("the answer of the authorization server breaks off: %w", Reason(err))
	case len(data) > maxAnswer:
		return 0, nil, errors.New("the answer of the authorization server is larger than 1 MiB")
	}
	return res.StatusCode, data, nil
}

// secrets are the values of a form that nobody else may see.
func secrets(form url.Values) (all []string) {
	for _, name := range []string{"client_secret", "client_assertion", "refresh_token", "code", "code_verifier", "subject_token", "assertion", "token", "device_code"} {
		all = append(all, form.Get(name))
	}
	return all
}

// refusal reads an error (RFC 6749 §5.2). What was sent is taken out of it.
func refusal(status int, data []byte, hidden []string) *Error {
	e := &Error{Status: status}
	if code := gjson.GetBytes(data, "error"); code.Type == gjson.String && len(code.Str) < 60 && httpguts.ValidHeaderFieldName(code.Str) {
		e.Code = code.Str
	}
	text := gjson.GetBytes(data, "error_description").String()
	for _, h := range hidden {
		if h != "" {
			text = strings.ReplaceAll(text, h, "…")
			if q := url.QueryEscape(h); q != h {
				text = strings.ReplaceAll(text, q, "…")
			}
		}
	}
	e.Text = sanitize.Text(strings.ToValidUTF8(text[:min(len(text), 300)], ""))
	return e
}

// show adds what shows who the client is (I-219).
func (c *Client) show(at *Issuer, form url.Values, h http.Header) (url.Values, error) {
	out := url.Values{}
	for name, values := range form {
		out[name] = values
	}
	switch method := c.method(at); method {
	case None:
		out.Set("client_id", c.ID)
	case Basic: // encoded as RFC 6749 §2.3.1 has it
		r := http.Request{Header: h}
		r.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	case Post:
		out.Set("client_id", c.ID)
		out.Set("client_secret", c.Secret)
	case Key:
		if err := c.Key.Show(out, c.ID, at.Name, at.Algorithms); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%q is no way in which the bridge can show an authorization server who it is", sanitize.Text(method))
	}
	return out, nil
}

// method returns how the client shows who it is.
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

var errDeep = fmt.Errorf("the answer of the authorization server is nested too deeply: more than %d levels", MaxDepth)

// read reads the answer that has a token (I-220).
func read(data []byte) (*Token, error) {
	t := &Token{Access: gjson.GetBytes(data, "access_token").Str, Refresh: gjson.GetBytes(data, "refresh_token").Str, ID: gjson.GetBytes(data, "id_token").Str}
	switch {
	case rawjson.Deeper(data, MaxDepth): // before what calls itself for each level
		return nil, errDeep
	case !gjson.ValidBytes(data) || t.Access == "" || len(t.Access) > maxToken || !httpguts.ValidHeaderFieldValue(t.Access) || strings.ContainsAny(t.Access, " \t"):
		return nil, errors.New("the answer of the authorization server has no token that can be used")
	case !strings.EqualFold(gjson.GetBytes(data, "token_type").String(), "bearer") && gjson.GetBytes(data, "token_type").Exists():
		return nil, errors.New("the authorization server gives tokens of another type than bearer")
	}
	if v := gjson.GetBytes(data, "scope"); v.Type == gjson.String {
		t.Scopes = strings.Fields(v.Str)
	}
	if n := gjson.GetBytes(data, "expires_in"); n.Float() > 0 && n.Float() < 1e9 {
		t.Lives = time.Duration(n.Float() * float64(time.Second))
	}
	return t, nil
}

// Register sends the metadata of a client to a registration endpoint (RFC 7591), and
// returns the answer.
func (a *Asker) Register(ctx context.Context, endpoint string, metadata map[string]any) ([]byte, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the registration endpoint is not a URL")
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	r := (&http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"mcp-bridge"}},
		Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text))}).WithContext(ctx)
	status, data, err := a.do(r)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return nil, refusal(status, data, nil)
	}
	switch {
	case rawjson.Deeper(data, MaxDepth):
		return nil, errDeep
	case !gjson.ValidBytes(data):
		return nil, errors.New("its answer is no JSON")
	}
	return data, nil
}
