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
	// documentMost is the maximum lifetime of a client's metadata, and keysMost of its keys.
	documentMost = 24 * time.Hour
	keysMost     = 5 * time.Minute
)

// isDocument reports whether a client's id is the address of its metadata document.
func isDocument(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.Opaque == "" && u.User == nil && readable(id, u) && len(u.Path) > 1 && !strings.Contains(id, "#") && len(id) <= maxID &&
		!slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// documentParser returns a parser of the metadata document of a client id (I-102).
func (f *Front) documentParser(id string) func(data []byte) (*client, error) {
	return func(data []byte) (*client, error) {
		var m struct {
			ID        string           `json:"client_id"`
			Name      string           `json:"client_name"`
			Redirects []string         `json:"redirect_uris"`
			Method    string           `json:"token_endpoint_auth_method"`
			Keys      *json.RawMessage `json:"jwks"` // nil for null too
			KeysAt    string           `json:"jwks_uri"`
		}
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return nil, wrongDocument("it must be a JSON object with client_id, client_name and redirect_uris")
		case m.ID != id:
			return nil, wrongDocument("its client_id must be its own address")
		case m.Method != "" && m.Method != discovery.None && m.Method != discovery.Key:
			return nil, wrongDocument("its token_endpoint_auth_method must be none or private_key_jwt: this server gives no secrets")
		}
		redirects, ok := f.redirects(m.Redirects)
		if !ok || len(redirects) == 0 {
			return nil, wrongDocument("its redirect_uris must be at most 8, each https, or http on loopback, without user, fragment, code, state, iss and error")
		}
		c := &client{Name: displayName(m.Name), Redirects: redirects}
		if m.Method != discovery.Key {
			return c, nil
		}
		switch {
		case (m.Keys != nil) == (m.KeysAt != ""), m.KeysAt != "" && !isDocument(m.KeysAt):
			return nil, wrongDocument("with private_key_jwt it must have either jwks or jwks_uri, which must be https")
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

// findClient returns the client of an authorization request. The error is for its user.
func (f *Front) findClient(r *http.Request, id string) (*client, error) {
	if !isDocument(id) {
		if c := f.registered(id); c != nil {
			return c, nil
		}
		return nil, errors.New("it is not registered here, or this server has lost the key of its registration: let it register again")
	}
	from := f.o.Bridge.From(r)
	c, err := f.clientDocs.Get(r.Context(), id, site(from), f.fetches(from), f.documentParser(id))
	if err != nil {
		f.o.Log.Info("the metadata of a client cannot be used", "client", fmt.Sprintf("%.200q", id), "err", err)
		if fault, ok := errors.AsType[wrongDocument](err); ok {
			return nil, fmt.Errorf("its metadata cannot be used: %w", fault)
		}
		return nil, errors.New("its metadata cannot be fetched")
	}
	return c, nil
}

// fetches returns a function that counts a fetch for an address and reports whether the fetch is allowed.
func (f *Front) fetches(from netip.Addr) func() bool {
	return func() bool { return f.fetching.take(network(from)) == 0 }
}

// prover checks that a client has the private key for a key in its document.
type prover func() *fault

// prover returns the check for a request: a signed assertion, which works only once (RFC 7523). Clients without a key
// in their document pass.
func (f *Front) prover(r *http.Request, id string, get func(string) string) prover {
	return func() *fault {
		if !isDocument(id) {
			return nil
		}
		ctx, from := context.WithoutCancel(r.Context()), f.o.Bridge.From(r)
		c, err := f.clientDocs.Get(ctx, id, site(from), f.fetches(from), f.documentParser(id))
		if err == nil && !c.keyed() {
			return nil
		}
		var keys *jwks.Fixed
		if err == nil {
			if keys = c.keys; keys == nil {
				keys, err = f.keySets.Get(ctx, c.keysAt, site(from), f.fetches(from), jwks.Parse)
			}
		}
		if err != nil {
			f.o.Log.Warn("the keys of a client cannot be fetched", "client", idOf(id), "err", err)
			return errKeys
		}
		jti, remaining, err := "", time.Duration(0), error(nil)
		if get("client_assertion_type") != assertion.Type {
			err = errors.New("client_assertion_type must be jwt-bearer, with a client_assertion")
		} else {
			jti, remaining, err = checkAssertion(get("client_assertion"), id, []string{f.o.Root, f.o.Root + "/token"}, keys)
		}
		if err != nil {
			f.o.Log.Info("a client did not authenticate with its key", "client", idOf(id), "err", err)
			return &fault{http.StatusUnauthorized, "invalid_client", err.Error()}
		}
		key := "shown:" + seal.Fingerprint(id+" "+jti)
		switch first, err := f.put(ctx, key, nil, []byte(f.sealed(key, true)), remaining, twice); {
		case err != nil:
			return f.storeFailed(err)
		case !first:
			return &fault{http.StatusUnauthorized, "invalid_client", "the client_assertion was used before: sign a new one for each request"}
		}
		return nil
	}
}
