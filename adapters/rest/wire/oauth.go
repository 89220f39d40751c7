package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
)

const (
	// tokenMargin is how long before its end a token is not used any more.
	tokenMargin = 30 * time.Second
	// tokenLife is taken when the server does not say how long a token lives.
	tokenLife    = 5 * time.Minute
	tokenTimeout = 30 * time.Second
	maxToken     = 1 << 20
	// firstRefusal is how long after a token was not to be had the next is asked
	// for, twice as long each time, but no longer than maxRefusal.
	firstRefusal = time.Second
	maxRefusal   = 30 * time.Second
	// maxScopes bounds the tokens that are kept, one for each set of scopes.
	maxScopes = 64
)

// tokens gets tokens by client credentials and keeps them until shortly before
// they end. Those who need one at the same time share one request.
type tokens struct {
	s      *Source
	client *Client
	at     *url.URL

	mu   sync.Mutex // guards kept
	kept map[string]*token
}

// token is one that there is or that is asked for.
type token struct {
	done  chan struct{} // closed when value or err is there
	value string
	until time.Time
	err   error
	fails int // how many before this one were not to be had
}

// newTokens checks where tokens come from. The document may name the place; then
// the secret goes there only encrypted, or to the API's own server.
func (s *Source) newTokens(c *Client, scheme *openapi.SecurityScheme) (*tokens, error) {
	at := c.TokenURL
	if at == "" && scheme != nil {
		for _, f := range scheme.Flows {
			if f.Kind == "clientCredentials" {
				at = f.TokenURL
			}
		}
	}
	if at == "" {
		return nil, errors.New("client: set token_url: the document does not name it")
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, errors.New("client: token_url is not a URL")
	}
	if !u.IsAbs() && s.home != nil {
		u = s.home.ResolveReference(u)
	}
	switch {
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		return nil, errors.New("client: token_url must be an address such as https://login.example.com/token")
	case c.TokenURL == "" && u.Scheme != "https" && (s.home == nil || !httpclient.SameOrigin(u, s.home)):
		return nil, errors.New("client: the document has tokens come over http from another server: if that is meant, set token_url")
	}
	return &tokens{s: s, client: c, at: u, kept: map[string]*token{}}, nil
}

// get returns a token for scopes.
func (t *tokens) get(ctx context.Context, scopes []string) (string, error) {
	if len(t.client.Scopes) > 0 {
		scopes = t.client.Scopes
	}
	scope := strings.Join(scopes, " ")
	t.mu.Lock()
	one := t.kept[scope]
	if one == nil || one.over(time.Now()) {
		if len(t.kept) >= maxScopes {
			clear(t.kept) // who waits has what it waits for
		}
		fails := 0
		if one != nil && one.err != nil {
			fails = one.fails + 1
		}
		one = &token{done: make(chan struct{}), fails: fails}
		if !t.s.start(func() { t.fetch(one, scope) }) {
			t.mu.Unlock()
			return "", errClosed
		}
		t.kept[scope] = one
	}
	t.mu.Unlock()
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// over reports whether a token has to be asked for anew.
func (o *token) over(now time.Time) bool {
	select {
	case <-o.done:
		return !now.Before(o.until)
	default:
		return false
	}
}

// drop forgets a token that the API does not accept. Another that has come
// meanwhile stays.
func (t *tokens) drop(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for scope, one := range t.kept {
		select {
		case <-one.done:
			if one.value == value {
				delete(t.kept, scope)
			}
		default:
		}
	}
}

// fetch asks for a token. It is nobody's in particular, so the end of one call
// does not end it.
func (t *tokens) fetch(one *token, scope string) {
	defer close(one.done)
	ctx, cancel := context.WithTimeout(t.s.life, tokenTimeout)
	defer cancel()
	one.value, one.until, one.err = t.ask(ctx, scope)
	if one.err == nil {
		t.s.hide(one.value)
		return
	}
	// Who asks meanwhile is told the same: a server that refuses or is down is not
	// asked with each call.
	one.until = time.Now().Add(min(firstRefusal<<min(one.fails, 10), maxRefusal))
}

func (t *tokens) ask(ctx context.Context, scope string) (string, time.Time, error) {
	form := []string{"grant_type=client_credentials"}
	add := func(name, value string) { form = append(form, escape(name, unreserved)+"="+escape(value, unreserved)) }
	if scope != "" {
		add("scope", scope)
	}
	var params []string
	for name := range t.client.Params {
		params = append(params, name)
	}
	slices.Sort(params)
	for _, name := range params {
		add(name, t.client.Params[name])
	}
	if t.client.InBody {
		add("client_id", t.client.ID)
		add("client_secret", t.client.Secret)
	}
	p := &Plan{Method: http.MethodPost, URL: t.at, Body: []byte(strings.Join(form, "&")), Header: http.Header{
		"Content-Type": {formType}, "Accept": {jsonType},
	}}
	r := p.request(ctx)
	if !t.client.InBody { // encoded as RFC 6749, section 2.3.1 has it
		r.SetBasicAuth(url.QueryEscape(t.client.ID), url.QueryEscape(t.client.Secret))
	}
	asked := time.Now()
	res, err := t.s.http.Do(r)
	if err != nil {
		return "", asked, errors.New("no token: the server that gives them " + wordsOf(ctx, err))
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxToken))
	if err != nil {
		return "", asked, errors.New("no token: the server that gives them " + wordsOf(ctx, err))
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusCreated {
		why := ""
		if code := gjson.GetBytes(b, "error").String(); code != "" && len(code) < 60 && httpguts.ValidHeaderFieldName(code) {
			why = ": " + code // one of RFC 6749's words
		}
		return "", asked, fmt.Errorf("no token: the server that gives them says %d%s", res.StatusCode, why)
	}
	value := gjson.GetBytes(b, "access_token").String()
	if !gjson.ValidBytes(b) || value == "" || !httpguts.ValidHeaderFieldValue(value) {
		return "", asked, errors.New("no token: the server that gives them says something else")
	}
	if kind := gjson.GetBytes(b, "token_type").String(); kind != "" && !strings.EqualFold(kind, "bearer") {
		return "", asked, errors.New("no token: the server gives tokens of another type than bearer")
	}
	life := tokenLife
	if n := gjson.GetBytes(b, "expires_in"); n.Exists() && n.Num > 0 && n.Num < 1e9 {
		life = time.Duration(n.Num) * time.Second
	}
	// A token that lives shorter than the margin serves those who wait for it.
	return value, asked.Add(max(life-tokenMargin, 0)), nil
}
