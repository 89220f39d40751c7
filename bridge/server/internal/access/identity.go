package access

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
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/oauth/front/disk"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// newDoor makes the verifier of keys and tokens; nil without access rules. The fault is the reason
// that tokens cannot be checked as configured.
func newDoor(c *config.Config, f *front.Front, log *slog.Logger) (door *auth.Authenticator, fault error) {
	if len(c.Access) == 0 {
		return nil, nil
	}
	var issuers []token.Issuer
	for i := range c.OAuth {
		o := c.OAuth[i]
		setting.Fill(&o)
		issuer := token.Issuer{
			URL:        o.Issuer,
			Audience:   o.Audience,
			JWKS:       o.JWKS,
			Algorithms: o.Algorithms,
			ScopeClaim: o.ScopeClaim,
			Skew:       o.ClockSkew,
			Implies:    map[string][]string{},
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
	return auth.NewAuthenticator(auth.New(keysOf(c), log), issuers, rulesOf(c), log), fault
}

// newFront makes the front of an issuer; nil if none is configured. Several instances share its
// keys and its store.
func (a *Access) newFront() (*front.Front, error) {
	c := a.c()
	for i := range c.OAuth {
		o := &c.OAuth[i]
		if o.Front == nil || len(c.Access) == 0 {
			continue
		}
		own := front.Options{
			Settings: *o.Front,
			Root:     c.PublicURL + c.BasePath,
			Provider: o.Issuer,
			Log:      a.o.Log,
			Claims:   o.RuleClaims(c.Access),
		}
		own.Bridge = fronted{a, own.Provider, own.Root}
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
		case a.o.Store != nil:
			own.Store = a.o.Store
			if len(own.Secrets) == 0 {
				own.Secrets = c.Cluster.Keys()
			}
		case o.Front.StateDir != "":
			a.disk = disk.New(o.Front.StateDir)
			own.Store = a.disk
		}
		return front.New(own)
	}
	return nil, nil
}

// fronted implements front.Bridge with Access.
type fronted struct {
	a            *Access
	issuer, root string
}

var _ front.Bridge = fronted{}

func (f fronted) Identify(ctx context.Context, raw, client, nonce string) (gjson.Result, error) {
	return f.a.keys.Identify(ctx, f.issuer, raw, client, nonce)
}

func (f fronted) Admits(ctx context.Context, text, resource string) bool {
	_, err := f.a.keys.Again(ctx, http.Header{"Authorization": {"Bearer " + text}}, token.Resource{Root: f.root, Path: strings.TrimPrefix(resource, f.root)})
	return !errors.Is(err, auth.ErrDenied)
}

func (f fronted) Resource(address string) (scopes []string, ok bool) {
	endpoint, ok := strings.CutPrefix(address, f.root)
	to := Target{Base: f.a.c().BasePath, Endpoint: endpoint}
	if !ok || endpoint != "" && (endpoint[0] != '/' || !f.a.serves(to)) {
		return nil, false
	}
	return f.a.initialScopes(to), true
}

func (f fronted) Scopes() []string { return slices.Sorted(maps.Keys(f.a.tokenUse().known)) }

func (f fronted) From(r *http.Request) netip.Addr { return f.a.guard.Load().client(r) }

// rulesOf returns the access rules for users.
func rulesOf(c *config.Config) []auth.Rule {
	var all []auth.Rule
	for _, a := range c.Access {
		if a.Token != "" || a.TokenFile != "" || len(a.Claims)+len(a.Scopes)+len(a.Users) == 0 {
			continue // the rule is for a key, or for nobody: an embedding program may have left the key empty
		}
		r := auth.Rule{
			Name:   a.Name,
			Issuer: a.Issuer,
			Claims: map[string][]string{},
			Scopes: a.Scopes,
			Users:  slices.Clone(a.Users),
		}
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

// Target is the resource of a request, as tokens name it. It is an endpoint below the base path,
// such as /files/mcp. Without an endpoint it is the whole bridge (I-001).
type Target struct {
	Base, Endpoint string
	// Refuse answers a caller that is refused. If Refuse is nil, the answer is a JSON-RPC error.
	Refuse func(w http.ResponseWriter, status int, code, message string)
}

// TargetOf returns the target of an endpoint. The messages of HTTP+SSE belong to the target of their stream.
func TargetOf(base, path string) Target {
	if stream, ok := strings.CutSuffix(path, "/messages"); ok {
		return Target{Base: base, Endpoint: stream + "/sse"}
	}
	return Target{Base: base, Endpoint: path}
}

// resource returns the target with the bridge's public address, which the operator configures. Without that address,
// only a request on loopback may name its own host (I-002). For any other request, the result is empty: the address
// that a token must name is unknown.
func (a *Access) resource(r *http.Request, to Target) token.Resource {
	if !a.keys.Tokens() {
		return token.Resource{}
	}
	root := a.c().PublicURL
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
	return token.Resource{Root: root + to.Base, Path: to.Endpoint}
}

// ownHost reports whether a request came in on loopback, and its Host names loopback and the same port. Other clients
// can write any Host, even a Host that a token of another service names. port is the port that a Host without a port
// means.
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

// WellKnown begins the paths of the metadata of protected resources (RFC 9728 §3).
const WellKnown = "/.well-known/oauth-protected-resource"

// serves reports whether the target exists.
func (a *Access) serves(to Target) bool {
	if to.Endpoint == "" {
		return true
	}
	name, last, of := strings.Cut(to.Endpoint[1:], "/")
	if !of {
		name, last = "", name
	}
	return (last == "mcp" || last == "sse") && (name == "" && !of || a.o.Bridge.HasAddress(name))
}

// metadata is the metadata of a protected resource (RFC 9728 §2).
type metadata struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Methods  []string `json:"bearer_methods_supported"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Name     string   `json:"resource_name"`
}

// Readable allows the pages of all sites to read an answer, since clients may be pages (I-005, I-006). Readable
// answers preflights, and reports false for them.
func Readable(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version, Content-Type, Accept")
		h.Set("Access-Control-Max-Age", corsMaxAge)
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	return true
}

// Describe answers a request for the metadata of a target, without authentication.
func (a *Access) Describe(w http.ResponseWriter, r *http.Request, to Target) {
	if !a.serves(to) {
		answer.Refuse(w, http.StatusNotFound, "not found")
		return
	}
	id := a.resource(r, to)
	if id.Root == "" {
		answer.Refuse(w, http.StatusNotFound, "the address of this bridge is not known: set public_url in its configuration")
		return
	}
	m := metadata{
		Resource: id.Root + id.Path,
		Methods:  []string{"header"},
		Scopes:   a.initialScopes(to),
		Name:     "mcp-bridge",
	}
	if name, _, of := strings.Cut(strings.TrimPrefix(to.Endpoint, "/"), "/"); of {
		m.Name = name
	}
	for i := range a.c().OAuth {
		if a.front != nil && a.c().OAuth[i].Front != nil {
			m.Issuers = append(m.Issuers, a.front.Issuer())
			continue
		}
		m.Issuers = append(m.Issuers, a.c().OAuth[i].Issuer)
	}
	body, _ := json.Marshal(m) // every member has a JSON form
	w.Header().Set("Cache-Control", "max-age=300")
	answer.Data(w, http.StatusOK, "application/json", body)
}

// initialScopes returns the scopes that clients of a target should request first.
func (a *Access) initialScopes(to Target) []string {
	var all need
	for i := range a.c().OAuth {
		all.Add(a.c().OAuth[i].Scopes)
	}
	name, _, of := strings.Cut(strings.TrimPrefix(to.Endpoint, "/"), "/")
	for i := range a.c().Servers {
		if one := &a.c().Servers[i]; one.Name == name || !of && to.Endpoint != "" && len(a.c().Servers) == 1 {
			all.Add(one.Scopes.All)
		}
	}
	return all.All
}

// challenge returns the value of WWW-Authenticate. fault is the error code, or empty; why
// describes it (I-007, I-008).
func (a *Access) challenge(r *http.Request, to Target, fault, why string) string {
	text := challenge
	if fault != "" {
		text += `, error="` + fault + `"`
	}
	if !a.keys.Tokens() {
		return text
	}
	if fault != "" {
		text += `, error_description="` + why + `"`
	}
	if id := a.resource(r, to); id.Root != "" {
		text += `, resource_metadata="` + id.Root + WellKnown + id.Path + `"`
	}
	if scopes := a.initialScopes(to); len(scopes) > 0 {
		text += `, scope="` + strings.Join(scopes, " ") + `"`
	}
	return text
}

// refusal is the answer to a request whose credentials are not accepted.
type refusal struct {
	status int
	kind   string // value of data.bridge in the error
	text   string
	fault  string // error of the challenge; empty for none
	guess  bool   // the credentials may have been guessed
}

// refusalOf returns the answer to a request that was not accepted for that reason. refusalOf reveals nothing about
// keys, issuers and claims.
func (a *Access) refusalOf(r *http.Request, to Target, why error) refusal {
	var e *token.Error
	switch errors.As(why, &e); {
	case errors.Is(why, auth.ErrMissing) && a.keys.Tokens():
		return refusal{http.StatusUnauthorized, "unauthorized", "missing key or token: send the header Authorization: Bearer KEY-OR-TOKEN", "", false}
	case errors.Is(why, auth.ErrMissing):
		return refusal{http.StatusUnauthorized, "unauthorized", "missing key: " + showKey, "", false}
	case errors.Is(why, auth.ErrDenied):
		return refusal{http.StatusForbidden, "denied", "no access rule admits this user", "", false}
	case e == nil && !a.keys.Tokens():
		return refusal{http.StatusUnauthorized, "unauthorized", "wrong key: " + showKey, "invalid_token", true}
	case e == nil:
		return refusal{http.StatusUnauthorized, "unauthorized", "the token is not valid", "invalid_token", true}
	case e.Result == token.Unavailable:
		return refusal{http.StatusServiceUnavailable, "unavailable_identity", "tokens cannot be checked at the moment", "", false}
	case e.Result == token.Expired:
		return refusal{http.StatusUnauthorized, "unauthorized", "the token has expired", "invalid_token", false}
	case e.Result == token.Audience:
		id := a.resource(r, to)
		if id.Root == "" {
			return refusal{http.StatusUnauthorized, "unauthorized", "tokens cannot be used at this address: set public_url in the configuration of the bridge", "invalid_token", false}
		}
		return refusal{http.StatusUnauthorized, "unauthorized", "the token is not for this resource (" + id.Root + id.Path + ")", "invalid_token", false}
	}
	return refusal{http.StatusUnauthorized, "unauthorized", "the token is not valid", "invalid_token", e.Text}
}

// retryIdentity is the Retry-After of the answer to a request whose token cannot be checked now.
const retryIdentity = 5 * time.Second

// reject answers a request that is not accepted. reject does not read the body.
func (a *Access) reject(w http.ResponseWriter, r *http.Request, path string, to Target, why error) {
	if gone := r.Context().Err(); gone != nil && errors.Is(why, gone) {
		return // the client left during the check, whose result is unknown
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadLimit)) // the server sets a new deadline for the next request
	}
	no := a.refusalOf(r, to, why)
	if wait := a.countGuess(r, no.guess, why); wait > 0 {
		TooMany(w, wait, to.Refuse)
		return
	}
	switch no.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", a.challenge(r, to, no.fault, no.text))
	case http.StatusServiceUnavailable:
		httpio.RetryAfter(w.Header(), retryIdentity)
	}
	a.logRejected(r, path, why)
	if to.Refuse != nil {
		to.Refuse(w, no.status, no.kind, no.text)
		return
	}
	answer.Data(w, no.status, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, no.text, []byte(`{"bridge":"`+no.kind+`"}`)).Append(nil, nil, nil))
}

// Issuers returns the state of the keys of all issuers; nil if none is configured.
func (a *Access) Issuers() (all []status.Issuer) {
	if !a.keys.Tokens() {
		return nil
	}
	for _, s := range a.keys.Issuers() {
		st := status.Issuer{
			Issuer: s.Issuer,
			State:  "ok",
			Fault:  s.Fault,
		}
		if !s.At.IsZero() {
			st.Since = &s.At
		}
		switch {
		case s.Keys && !s.Have:
			st.State = "unreachable"
		case s.Asked != nil && s.Asked.Fault != "":
			st.State, st.Fault = "unreachable", s.Asked.Fault
		case s.Keys && s.Stale:
			st.State = "old"
		}
		all = append(all, st)
	}
	return all
}
