package login

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// anyPort is the default redirect address.
const anyPort = "http://127.0.0.1:0/callback"

// client returns the client for a sign-in, with its open callback. It takes the first of these (I-209): - the client of
// the settings - a client whose id is the URL of its metadata - the client of the earlier login - a new client
//
// earlier has the same issuer as l, which holds the request.
func (p *Person) client(ctx context.Context, l, earlier *Login, scopes []string) (c Client, back *callback, err error) {
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
		c = Client{ID: p.o.Client.ID, Method: p.o.Client.Grant().Method}
		err = open()
		return c, back, err
	case at.Documents && p.o.ClientMetadataURL != "":
		c = Client{ID: p.o.ClientMetadataURL}
		err = open()
		return c, back, err
	}
	if earlier != nil && earlier.Client.Registered && earlier.Client.Redirect != "" && (earlier.Client.Ends.IsZero() || time.Now().Before(earlier.Client.Ends)) && (p.o.RedirectURI == "" || earlier.Client.Redirect == p.o.RedirectURI) && p.stillRegistered(ctx, l, earlier.Client, scopes) {
		// The bridge listens on the registered port again. If that port is taken, the bridge registers another client
		// (I-217).
		if back, err := listen(ctx, earlier.Client.Redirect); err == nil {
			return earlier.Client, back, nil
		}
	}
	if at.Registration == "" {
		return c, nil, fmt.Errorf("the authorization server %s has no registration_endpoint: register a client there, and name it with client: { id: … } or --client-id; its redirect address is %s", at.Name, strings.Replace(redirect, ":0/", "/", 1))
	}
	if err := open(); err != nil {
		return c, nil, err
	}
	if c, err = p.register(ctx, at, back.redirect); err != nil {
		_ = back.listener.Close()
		if e, ok := errors.AsType[*discovery.Error](err); ok && at.Assumed && e.NotOAuth() {
			err = fmt.Errorf("the server names no authorization server, and there is none at %s: it may want a header instead, such as Authorization", at.Name)
		}
		return c, nil, err
	}
	return c, back, nil
}

// maxPage bounds how many bytes of a page are read.
const maxPage = 16 << 10

// stillRegistered reports whether the authorization server still shows its page to the bridge's registered client. A
// server that has removed the client tells only the person, and the browser never returns. The status of the page tells
// the bridge. Without a registration_endpoint, stillRegistered sends no request.
func (p *Person) stillRegistered(ctx context.Context, l *Login, c Client, scopes []string) bool {
	if l.Issuer.Registration == "" {
		return true
	}
	request := *l
	request.Client = c
	address, err := p.address(&request, scopes, rand.Text()+rand.Text(), rand.Text()) // no browser returns with these values
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
		return true // the person may still reach the server
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxPage))
	_ = res.Body.Close()
	switch res.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusTooManyRequests: // these are about the request, not the client
		return true
	case http.StatusUnauthorized, http.StatusForbidden: // the server may refuse programs
		if !bytes.Contains(bytes.ToLower(body), []byte("client")) {
			return true
		}
	}
	if res.StatusCode/100 != 4 {
		return true
	}
	p.o.Log.Info("the authorization server has forgotten the bridge's client: the bridge registers again", "issuer", l.Issuer.Name)
	return false
}

// register registers a client (I-210; RFC 7591). An empty redirect means a client for the device flow.
func (p *Person) register(ctx context.Context, at *discovery.Issuer, redirect string) (Client, error) {
	method := discovery.Basic // the default without metadata (RFC 8414 §2)
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
		return Client{}, fmt.Errorf("the authorization server %s refuses to register the bridge: %w", at.Name, err)
	}
	c := Client{
		ID:         gjson.GetBytes(data, "client_id").String(),
		Secret:     gjson.GetBytes(data, "client_secret").String(),
		Method:     gjson.GetBytes(data, "token_endpoint_auth_method").String(),
		Redirect:   redirect,
		Registered: true,
	}
	if c.ID == "" {
		return Client{}, fmt.Errorf("the registration answer of the authorization server %s has no client_id", at.Name)
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
