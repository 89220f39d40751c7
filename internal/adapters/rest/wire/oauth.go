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

	"github.com/mcp-bridge/bridge/internal/adapters/media"
	"github.com/mcp-bridge/bridge/internal/adapters/rest/openapi"
	"github.com/mcp-bridge/bridge/internal/adapters/rest/wire/param"
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
	at     endpoint

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

// tokenURL returns where tokens come from. The document may name the place. Then
// the secret goes there only encrypted, or to the API's own server; and a document
// at a URL may name no place that gets no credentials otherwise: refused says why
// the secret does not go there.
func (r *Reach) tokenURL(c *Client, scheme *openapi.SecurityScheme) (at endpoint, refused string, err error) {
	text := c.TokenURL
	if text == "" {
		f := clientFlow(scheme)
		text, at.far = f.TokenURL, f.Far
	}
	if text == "" {
		return at, "", errors.New("client: set token_url: the document does not name it")
	}
	home := r.home
	if at.URL, err = url.Parse(text); err != nil {
		return at, "", errors.New("client: token_url is not a URL")
	}
	if !at.IsAbs() && home.URL != nil {
		at.URL, at.far = home.ResolveReference(at.URL), at.far || home.far
	}
	switch {
	case at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil:
		return at, "", errors.New("client: token_url must be an address such as https://login.example.com/token")
	case r.stranger(at), r.guarded(at) && Blocked(at.URL):
		refused = fmt.Sprintf("the document has tokens come from %s, and was itself read elsewhere. The client's secret does not go there; whoever runs the bridge can allow it with token_url or trusted", originOf(at.URL))
	case c.TokenURL == "" && at.Scheme != "https" && !r.trusted.has(at.URL):
		return at, "", errors.New("client: the document has tokens come over http from another server: if that is meant, set token_url")
	}
	return at, refused, nil
}

// clientFlow returns how a client gets tokens of its own by a scheme; the zero flow
// if it does not.
func clientFlow(scheme *openapi.SecurityScheme) (found openapi.Flow) {
	if scheme == nil {
		return found
	}
	for _, f := range scheme.Flows {
		if f.Kind == "clientCredentials" {
			found = f
		}
	}
	return found
}

// tokenSchemes returns the schemes of the document that say where a client gets
// tokens of its own.
func (r *Reach) tokenSchemes() []*openapi.SecurityScheme {
	if r.o.Document == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.o.Document.Schemes), func(s *openapi.SecurityScheme) bool { return clientFlow(s).TokenURL == "" })
}

// equipTokens gives the credentials that need tokens what gets them. Those of the
// same client from the same place share it.
func (s *Source) equipTokens() {
	type key struct {
		client *Client
		at     string
	}
	all := map[key]*tokens{}
	s.reach.keys.each(func(u *use) {
		if u.client == nil {
			return
		}
		k := key{u.client, u.at.String()}
		if all[k] == nil {
			all[k] = &tokens{s: s, client: u.client, at: u.at, kept: map[string]*token{}}
		}
		u.tokens = all[k]
	})
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
	add := func(name, value string) {
		form = append(form, param.Escape(name, param.Unreserved)+"="+param.Escape(value, param.Unreserved))
	}
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
	p := &Plan{Method: http.MethodPost, URL: t.at.URL, Body: []byte(strings.Join(form, "&")), Header: http.Header{
		"Content-Type": {media.Form}, "Accept": {media.JSON},
	}}
	r := p.request(ctx)
	if !t.client.InBody { // encoded as RFC 6749, section 2.3.1 has it
		r.SetBasicAuth(url.QueryEscape(t.client.ID), url.QueryEscape(t.client.Secret))
	}
	asked := time.Now()
	res, err := t.s.way(false, t.s.reach.guarded(t.at)).Do(r)
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
