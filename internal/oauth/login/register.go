package login

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// anyPort is where the browser comes back to, unless the settings say otherwise.
const anyPort = "http://127.0.0.1:0/callback"

// client returns who asks the authorization server for tokens, and the callback, which is
// open: a client of the settings, else one that is named by the URL of its metadata, else
// the one of an earlier login, else a new one (I-209). was is of the same issuer as l, which
// has what is asked for.
func (p *Person) client(ctx context.Context, l, was *Login, scopes []string) (c Client, back *callback, err error) {
	at, redirect := &l.Issuer, anyPort
	if p.o.RedirectURI != "" {
		redirect = p.o.RedirectURI
	}
	open := func() error {
		if back, err = listen(ctx, redirect); err == nil {
			c.Redirect = back.redirect
		}
		return err
	}
	switch {
	case p.o.Client != nil:
		c = Client{ID: p.o.Client.ID}
		if p.o.Client.InBody {
			c.Method = discovery.Post
		}
		err = open()
		return c, back, err
	case at.Documents && p.o.ClientMetadataURL != "":
		c = Client{ID: p.o.ClientMetadataURL}
		err = open()
		return c, back, err
	}
	if was != nil && was.Client.Registered && was.Client.Redirect != "" && (was.Client.Ends.IsZero() || time.Now().Before(was.Client.Ends)) && (p.o.RedirectURI == "" || was.Client.Redirect == p.o.RedirectURI) && p.known(ctx, l, was.Client, scopes) {
		// The same port again. If somebody else has it, another client is registered (I-217).
		if back, err := listen(ctx, was.Client.Redirect); err == nil {
			return was.Client, back, nil
		}
	}
	if at.Registration == "" {
		return c, nil, fmt.Errorf("the authorization server %s registers no clients by itself: register one there, and name it with client: { id: … } or --client-id; the browser comes back to %s", at.Name, strings.Replace(redirect, ":0/", "/", 1))
	}
	if err := open(); err != nil {
		return c, nil, err
	}
	if c, err = p.register(ctx, at, back.redirect); err != nil {
		_ = back.listener.Close()
		return c, nil, err
	}
	return c, back, nil
}

// maxPage is how much of a page is read.
const maxPage = 16 << 10

// known reports whether the authorization server shows its page to a client that the bridge
// has registered. One that has forgotten it tells the person alone, and the browser never
// comes back; it is told apart by the status of that page. Where no other client can be
// registered, nothing is asked.
func (p *Person) known(ctx context.Context, l *Login, c Client, scopes []string) bool {
	if l.Issuer.Registration == "" {
		return true
	}
	asks := *l
	asks.Client = c
	address, err := p.address(&asks, scopes, rand.Text()+rand.Text(), rand.Text()) // which nobody comes back with
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, discovery.Limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return true
	}
	r.Header = http.Header{"Accept": {"text/html"}, "User-Agent": {"mcp-bridge"}}
	res, err := p.o.Transport.RoundTrip(r)
	if err != nil {
		return true // the person may reach it
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, maxPage))
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusTooManyRequests: // about the request
		return true
	case http.StatusUnauthorized, http.StatusForbidden: // perhaps it does not like programs
		if !bytes.Contains(bytes.ToLower(said), []byte("client")) {
			return true
		}
	}
	if res.StatusCode/100 != 4 {
		return true
	}
	p.o.Log.Info("the authorization server does not know the bridge any more: it is registered anew", "issuer", l.Issuer.Name)
	return false
}

// register makes a client (I-210; RFC 7591); without an address to come back to, one for the
// device flow.
func (p *Person) register(ctx context.Context, at *discovery.Issuer, redirect string) (Client, error) {
	method := discovery.Basic // what it is without metadata (RFC 8414 §2)
	for _, m := range []string{discovery.None, discovery.Post, discovery.Basic} {
		if slices.Contains(at.Methods, m) {
			method = m
			break
		}
	}
	if len(at.Methods) == 0 && at.Assumed {
		method = discovery.None
	}
	metadata := map[string]any{
		"client_name": "mcp-bridge", "redirect_uris": []string{redirect}, "application_type": "native", "token_endpoint_auth_method": method,
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
	}
	if redirect == "" {
		metadata["redirect_uris"], metadata["response_types"], metadata["grant_types"] = []string{}, []string{}, []string{deviceGrant, "refresh_token"}
	}
	data, err := p.ask.Register(ctx, at.Registration, metadata)
	if err != nil {
		return Client{}, fmt.Errorf("the authorization server %s does not register the bridge: %w", at.Name, err)
	}
	c := Client{
		ID: gjson.GetBytes(data, "client_id").String(), Secret: gjson.GetBytes(data, "client_secret").String(),
		Method: gjson.GetBytes(data, "token_endpoint_auth_method").String(), Redirect: redirect, Registered: true,
	}
	if c.ID == "" {
		return Client{}, fmt.Errorf("the authorization server %s does not say under which name it has registered the bridge", at.Name)
	}
	if c.Method == discovery.None {
		c.Secret = ""
	}
	if c.Method == "" && c.Secret != "" {
		c.Method = method
		if method == discovery.None {
			c.Method = discovery.Post
		}
	}
	if ends := gjson.GetBytes(data, "client_secret_expires_at").Int(); ends > 0 {
		c.Ends = time.Unix(ends, 0)
	}
	return c, nil
}
