package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
	"github.com/mcp-bridge/bridge/internal/seal"
)

const (
	maxID = 1 << 10
	// documentMost is how long the metadata of a client counts at most, and keysMost its keys.
	documentMost = 24 * time.Hour
	keysMost     = 5 * time.Minute
)

// isDocument reports whether the id of a client is the address of its metadata.
func isDocument(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.Opaque == "" && u.User == nil && honest(id, u) && len(u.Path) > 1 && !strings.Contains(id, "#") && len(id) <= maxID &&
		!slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// described reads the metadata of the client of that id (I-102).
func (f *Front) described(id string) func(data []byte) (*client, error) {
	return func(data []byte) (*client, error) {
		var m struct {
			ID        string           `json:"client_id"`
			Name      string           `json:"client_name"`
			Redirects []string         `json:"redirect_uris"`
			Method    string           `json:"token_endpoint_auth_method"`
			Keys      *json.RawMessage `json:"jwks"` // nil for null, too
			KeysAt    string           `json:"jwks_uri"`
		}
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return nil, wrongDocument("it is no JSON object with client_id, client_name and redirect_uris")
		case m.ID != id:
			return nil, wrongDocument("its client_id is another one")
		case m.Method != "" && m.Method != discovery.None && m.Method != discovery.Key:
			return nil, wrongDocument("its token_endpoint_auth_method must be none or private_key_jwt: this server gives no secrets")
		}
		redirects, ok := f.redirects(m.Redirects)
		if !ok || len(redirects) == 0 {
			return nil, wrongDocument("its redirect_uris must be at most 8, each https, or http on loopback, without user, fragment, code, state, iss and error")
		}
		c := &client{Name: clip(m.Name), Redirects: redirects}
		if m.Method != discovery.Key {
			return c, nil
		}
		switch {
		case (m.Keys != nil) == (m.KeysAt != ""), m.KeysAt != "" && !isDocument(m.KeysAt):
			return nil, wrongDocument("with private_key_jwt it must have either jwks or jwks_uri, an https address")
		case m.KeysAt != "":
			c.keysAt = m.KeysAt
			return c, nil
		}
		var err error
		if c.keys, err = jwks.Parse(*m.Keys); err != nil {
			return nil, wrongDocument("its jwks cannot be used: " + err.Error())
		}
		return c, nil
	}
}

// known returns a client that asks for a sign-in. The error is for its user.
func (f *Front) known(r *http.Request, id string) (*client, error) {
	if !isDocument(id) {
		if c := f.registered(id); c != nil {
			return c, nil
		}
		return nil, errors.New("it is not registered here, or was registered with a key that this server does not have any more: let it register again")
	}
	from := f.o.From(r)
	c, err := f.docs.Get(r.Context(), id, site(from), f.fetches(from), f.described(id))
	if err != nil {
		f.o.Log.Info("the metadata of a client cannot be used", "client", fmt.Sprintf("%.200q", id), "err", err)
		if told, ok := errors.AsType[wrongDocument](err); ok {
			return nil, fmt.Errorf("its metadata cannot be used: %w", told)
		}
		return nil, errors.New("its metadata cannot be fetched")
	}
	return c, nil
}

// fetches counts that somebody has one fetched.
func (f *Front) fetches(from netip.Addr) func() bool {
	return func() bool { return f.fetching.take(network(from)) == 0 }
}

// prover has a client show that it has the key that its document says it has.
type prover func() *fault

// prover returns that of a request: an assertion that it signs counts once (RFC 7523). Clients
// whose document says nothing of a key need none.
func (f *Front) prover(r *http.Request, id string, get func(string) string) prover {
	return func() *fault {
		if !isDocument(id) {
			return nil
		}
		ctx, from := context.WithoutCancel(r.Context()), f.o.From(r)
		c, err := f.docs.Get(ctx, id, site(from), f.fetches(from), f.described(id))
		if err == nil && !c.keyed() {
			return nil
		}
		var keys *jwks.Fixed
		if err == nil {
			if keys = c.keys; keys == nil {
				keys, err = f.sets.Get(ctx, c.keysAt, site(from), f.fetches(from), jwks.Parse)
			}
		}
		if err != nil {
			f.o.Log.Warn("the keys of a client are not available", "client", idOf(id), "err", err)
			return errKeys
		}
		jti, left, err := "", time.Duration(0), error(nil)
		if get("client_assertion_type") != assertion.Type {
			err = errors.New("there is no client_assertion of the type jwt-bearer")
		} else {
			jti, left, err = assertion.Check(get("client_assertion"), id, []string{f.o.Root, f.o.Root + "/token"}, keys)
		}
		if err != nil {
			f.o.Log.Info("a client did not show its key", "client", idOf(id), "err", err)
			return &fault{http.StatusUnauthorized, "invalid_client", err.Error()}
		}
		place := "shown:" + seal.Fingerprint(id+" "+jti)
		switch first, err := f.put(ctx, place, nil, []byte(f.sealed(place, true)), left, twice); {
		case err != nil:
			return f.lost(err)
		case !first:
			return &fault{http.StatusUnauthorized, "invalid_client", "the assertion was shown before: each counts once"}
		}
		return nil
	}
}
