package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/oauth/front/disk"
)

// newDoor makes what lets callers in; nil without access rules. The fault is why tokens
// cannot be checked as it is configured.
func newDoor(c *config.Config, f *front.Front, log *slog.Logger) (door *auth.Door, fault error) {
	if len(c.Access) == 0 {
		return nil, nil
	}
	var issuers []token.Issuer
	for i := range c.OAuth {
		o := &c.OAuth[i]
		issuer := token.Issuer{
			URL: o.Issuer, Audience: o.Audience, JWKS: o.JWKS, Algorithms: o.Algorithms, ScopeClaim: o.ScopeClaim, Skew: o.ClockSkew,
			Implies: map[string][]string{},
		}
		for name, implied := range o.Implies {
			issuer.Implies[name] = implied
		}
		if o.Introspection != (config.Introspection{}) {
			issuer.Introspection = &o.Introspection
		}
		if o.Front != nil && f != nil {
			issuer.Front = f.Tokens()
		}
		transport, err := o.Reach()
		if err != nil {
			fault = errors.Join(fault, fmt.Errorf("oauth: %s: ca_file %s %w", o.Issuer, o.CAFile, err))
		}
		issuer.Transport = transport
		issuers = append(issuers, issuer)
	}
	return auth.NewDoor(auth.New(keysOf(c), log), issuers, rulesOf(c), log), fault
}

// newFront makes what stands in for an issuer; nil if it is not configured. Where there are
// several instances, they share its keys and its store.
func (s *Server) newFront() (*front.Front, error) {
	c := s.c()
	for i := range c.OAuth {
		o := &c.OAuth[i]
		if o.Front == nil || len(c.Access) == 0 {
			continue
		}
		own := front.Options{
			Settings: *o.Front, Root: c.PublicURL + c.BasePath, Provider: o.Issuer, Log: s.log,
			Identify: func(ctx context.Context, raw, client, nonce string) (gjson.Result, error) {
				return s.keys.Identify(ctx, o.Issuer, raw, client, nonce)
			},
			Admits: func(ctx context.Context, text, resource string) bool {
				root := c.PublicURL + c.BasePath
				_, err := s.keys.Again(ctx, http.Header{"Authorization": {"Bearer " + text}}, token.Resource{Root: root, Path: strings.TrimPrefix(resource, root)})
				return !errors.Is(err, auth.ErrDenied)
			},
			Resource: s.scopesAt,
			Scopes:   func() []string { return slices.Sorted(maps.Keys(s.claimed().known)) },
			From:     func(r *http.Request) netip.Addr { return s.guard.Load().client(r) },
		}
		var err error
		if own.Transport, err = o.Reach(); err != nil {
			return nil, fmt.Errorf("oauth: front: ca_file %w", err)
		}
		if own.Documents, err = remote.Strangers(); err != nil {
			return nil, fmt.Errorf("oauth: front: %w", err)
		}
		if own.Secrets, err = o.Front.Secrets(); err != nil {
			return nil, fmt.Errorf("oauth: front: %w", err)
		}
		switch {
		case s.instance != nil:
			own.Store = s.instance.kept.values
			if len(own.Secrets) == 0 {
				own.Secrets = c.Cluster.Keys()
			}
		case o.Front.StateDir != "":
			s.disk = disk.New(o.Front.StateDir)
			own.Store = s.disk
		}
		return front.New(own)
	}
	return nil, nil
}

// scopesAt returns the scopes that clients of an address are told to ask for; ok is false
// if it is none of the bridge.
func (s *Server) scopesAt(address string) (scopes []string, ok bool) {
	root := s.c().PublicURL + s.c().BasePath
	endpoint, ok := strings.CutPrefix(address, root)
	to := place{s.c().BasePath, endpoint}
	if !ok || endpoint != "" && (endpoint[0] != '/' || !s.serves(to)) {
		return nil, false
	}
	return s.asked(to), true
}

// rulesOf returns the access rules that are for users.
func rulesOf(c *config.Config) []auth.Rule {
	var all []auth.Rule
	for _, a := range c.Access {
		if a.Token != "" || a.TokenFile != "" || len(a.Claims)+len(a.Scopes)+len(a.Users) == 0 {
			continue // a rule that names nobody lets nobody in: a program may have had no text for its key
		}
		r := auth.Rule{Name: a.Name, Issuer: a.Issuer, Claims: map[string][]string{}, Scopes: a.Scopes, Users: slices.Clone(a.Users)}
		for name, patterns := range a.Claims {
			r.Claims[name] = patterns
		}
		for i, p := range r.Users {
			if p == config.AnyUser {
				r.Users[i] = "*"
			}
		}
		all = append(all, r)
	}
	return all
}

// place is what a request is for, as tokens name it: an endpoint below base, such as
// /files/mcp, or without one the bridge as a whole (I-001).
type place struct{ base, endpoint string }

// placeOf returns the place of an endpoint: messages are for the stream that they
// belong to.
func placeOf(base, path string) place {
	if stream, ok := strings.CutSuffix(path, "/messages"); ok {
		return place{base, stream + "/sse"}
	}
	return place{base, path}
}

// resource returns the place as tokens name it. Where clients are is what the operator
// says. Only on loopback the request may say by which of its names it came (I-002); of
// any other request nobody knows for which address its token has to be.
func (s *Server) resource(r *http.Request, to place) token.Resource {
	if !s.keys.Tokens() {
		return token.Resource{}
	}
	root := s.c().PublicURL
	if root == "" {
		scheme, port := "http", "80"
		if r.TLS != nil {
			scheme, port = "https", "443"
		}
		if !ownHost(r, port) {
			return token.Resource{}
		}
		root = scheme + "://" + r.Host
	}
	return token.Resource{Root: root + to.base, Path: to.endpoint}
}

// ownHost reports whether a request came in on loopback, and its Host is a name of
// loopback with the port that it came in on. Whoever calls by another way writes into
// Host what it likes: that may be what a token of another service is for. port is what a
// Host without one means.
func ownHost(r *http.Request, port string) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !address.Local(address.Hostname(r.Host)) {
		return false
	}
	if _, said, err := net.SplitHostPort(r.Host); err == nil {
		port = said
	}
	at, err := netip.ParseAddrPort(a.String())
	return err == nil && at.Addr().Unmap().IsLoopback() && port == strconv.Itoa(int(at.Port()))
}

// wellKnown begins the paths at which protected resources describe themselves
// (RFC 9728 §3).
const wellKnown = "/.well-known/oauth-protected-resource"

// described returns the place that a path has the metadata of. It has them below the
// base, which a proxy may be all that it hands on, and where the standard looks for
// them: between the host and the path of the resource (I-003, I-004).
func described(path, base string) (to place, ok bool) {
	endpoint, ok := strings.CutPrefix(path, base+wellKnown)
	if !ok {
		endpoint, ok = strings.CutPrefix(path, wellKnown+base)
	}
	if endpoint == "/" {
		endpoint = ""
	}
	return place{base, endpoint}, ok && (endpoint == "" || endpoint[0] == '/')
}

// serves reports whether there is such a place.
func (s *Server) serves(to place) bool {
	if to.endpoint == "" {
		return true
	}
	name, last, of := strings.Cut(to.endpoint[1:], "/")
	if !of {
		name, last = "", name
	}
	return (last == "mcp" || last == "sse") && (name == "" && !of || s.now.Load().reached[name] != nil)
}

// metadata is what a protected resource says of itself (RFC 9728 §2).
type metadata struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Methods  []string `json:"bearer_methods_supported"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Name     string   `json:"resource_name"`
}

// describe answers a request for the metadata of a place: to anybody, and to the pages of
// all sites, since clients may be pages (I-005, I-006).
func (s *Server) describe(w http.ResponseWriter, r *http.Request, to place) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	switch {
	case r.Method == http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", looking)
		h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version, Content-Type, Accept")
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
		return
	case !takes(looking, r.Method):
		wrongMethod(w, looking)
		return
	case !s.serves(to):
		refuse(w, http.StatusNotFound, "nothing is served here")
		return
	}
	id := s.resource(r, to)
	if id.Root == "" {
		refuse(w, http.StatusNotFound, "the address of this bridge is not known: set public_url in its configuration")
		return
	}
	m := metadata{Resource: id.Root + id.Path, Methods: []string{"header"}, Scopes: s.asked(to), Name: "mcp-bridge"}
	if name, _, of := strings.Cut(strings.TrimPrefix(to.endpoint, "/"), "/"); of {
		m.Name = name
	}
	for i := range s.c().OAuth {
		if s.front != nil && s.c().OAuth[i].Front != nil {
			m.Issuers = append(m.Issuers, s.front.Issuer())
			continue
		}
		m.Issuers = append(m.Issuers, s.c().OAuth[i].Issuer)
	}
	body, _ := json.Marshal(m) // nothing in it can fail
	h.Set("Cache-Control", "max-age=300")
	data(w, http.StatusOK, "application/json", body)
}

// asked returns the scopes that clients of a place are told to ask for to begin with.
func (s *Server) asked(to place) []string {
	var all access.Need
	for i := range s.c().OAuth {
		all.Add(s.c().OAuth[i].Scopes)
	}
	name, _, of := strings.Cut(strings.TrimPrefix(to.endpoint, "/"), "/")
	for i := range s.c().Servers {
		if one := &s.c().Servers[i]; one.Name == name || !of && to.endpoint != "" && len(s.c().Servers) == 1 {
			all.Add(one.Scopes.All)
		}
	}
	return all.All
}

// challenge returns what tells a client how to get in. fault is the error and its
// description, or empty (I-007, I-008).
func (s *Server) challenge(r *http.Request, to place, fault, why string) string {
	text := challenge
	if fault != "" {
		text += `, error="` + fault + `"`
	}
	if !s.keys.Tokens() {
		return text
	}
	if fault != "" {
		text += `, error_description="` + why + `"`
	}
	if id := s.resource(r, to); id.Root != "" {
		text += `, resource_metadata="` + id.Root + wellKnown + id.Path + `"`
	}
	if scopes := s.asked(to); len(scopes) > 0 {
		text += `, scope="` + strings.Join(scopes, " ") + `"`
	}
	return text
}

// refusal is the answer to a request whose caller is not let in.
type refusal struct {
	status int
	kind   string // data.bridge of the error
	text   string
	fault  string // of the challenge; empty for none
	guess  bool   // it may have been somebody's guess
}

// refusalOf returns the answer to a request that was not let in for that reason. It says
// nothing of keys, issuers and claims.
func (s *Server) refusalOf(r *http.Request, to place, why error) refusal {
	var e *token.Error
	switch errors.As(why, &e); {
	case errors.Is(why, auth.ErrMissing) && s.keys.Tokens():
		return refusal{http.StatusUnauthorized, "unauthorized", "this takes a key or a token, in the header Authorization: Bearer KEY-OR-TOKEN", "", false}
	case errors.Is(why, auth.ErrMissing):
		return refusal{http.StatusUnauthorized, "unauthorized", showKey, "", false}
	case errors.Is(why, auth.ErrDenied):
		return refusal{http.StatusForbidden, "denied", "no access rule lets this user in", "", false}
	case e == nil && !s.keys.Tokens():
		return refusal{http.StatusUnauthorized, "unauthorized", showKey, "invalid_token", true}
	case e == nil:
		return refusal{http.StatusUnauthorized, "unauthorized", "the token is not valid", "invalid_token", true}
	case e.Result == token.Unavailable:
		return refusal{http.StatusServiceUnavailable, "unavailable_identity", "tokens cannot be checked at the moment", "", false}
	case e.Result == token.Expired:
		return refusal{http.StatusUnauthorized, "unauthorized", "the token has expired", "invalid_token", false}
	case e.Result == token.Audience:
		id := s.resource(r, to)
		if id.Root == "" {
			return refusal{http.StatusUnauthorized, "unauthorized", "no token is for this address: set public_url in the configuration of the bridge", "invalid_token", false}
		}
		return refusal{http.StatusUnauthorized, "unauthorized", "the token is not for this resource (" + id.Root + id.Path + ")", "invalid_token", false}
	}
	return refusal{http.StatusUnauthorized, "unauthorized", "the token is not valid", "invalid_token", e.Text}
}

// retryIdentity is after how many seconds a client may come back whose token cannot be
// checked.
const retryIdentity = "5"

// turnAway answers a request that is not let in. Its body is not looked at.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, path string, to place, why error) {
	if gone := r.Context().Err(); gone != nil && errors.Is(why, gone) {
		return // the client has gone while its token was being checked; otherwise that counts
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadLimit)) // the server sets another for the next request
	}
	no := s.refusalOf(r, to, why)
	if wait := s.guessed(r, no.guess, why); wait > 0 {
		tooMany(w, wait)
		return
	}
	switch no.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", s.challenge(r, to, no.fault, no.text))
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryIdentity)
	}
	s.complain(r, path, why)
	data(w, no.status, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, no.text, []byte(`{"bridge":"`+no.kind+`"}`)).Append(nil, nil, nil))
}

// issuerState is the state of the keys of an issuer, for /readyz.
type issuerState struct {
	Issuer string `json:"issuer"`
	// State is ok, old (the keys cannot be fetched again) or unreachable (there are none,
	// or it could not be asked about a token, so that tokens of it cannot be checked).
	State string     `json:"state"`
	Since *time.Time `json:"keys_since,omitempty"`
	Fault string     `json:"last_error,omitempty"`
}

func (s *Server) issuers() (all []issuerState) {
	if !s.keys.Tokens() {
		return nil
	}
	for _, i := range s.keys.Issuers() {
		st := issuerState{Issuer: i.Issuer, State: "ok", Since: moment(i.At), Fault: i.Fault}
		switch {
		case i.Keys && !i.Have:
			st.State = "unreachable"
		case i.Asked != nil && i.Asked.Fault != "":
			st.State, st.Fault = "unreachable", i.Asked.Fault
		case i.Keys && i.Stale:
			st.State = "old"
		}
		all = append(all, st)
	}
	return all
}
