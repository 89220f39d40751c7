// Package discovery finds the authorization server of a server, and requests tokens there. It reads the metadata of the
// server (RFC 9728), which names the authorization server. Then it reads the metadata of the authorization server (RFC
// 8414, OpenID Connect Discovery).
//
// The package trusts no metadata. It sends no secret to read metadata, and accepts nothing that would give one server
// the tokens of another.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

const (
	maxDocument = 1 << 20
	// MaxDepth bounds the nesting of a document, because later checks recurse for each level.
	MaxDepth = 100
	// Limit bounds the time of one request.
	Limit            = 10 * time.Second
	maxRedirects     = 3
	maxListed        = 100 // issuers, or scopes, in one list
	wellKnown        = "/.well-known/"
	resourceMetadata = "oauth-protected-resource"
	oauth            = "oauth-authorization-server"
	openid           = "openid-configuration"
)

// Finder reads metadata on behalf of one server.
type Finder struct {
	server  *url.URL
	client  *http.Client
	trusted []string // hosts, with ports, that the operator named
}

// NewFinder returns a Finder for the server at an address that the operator set. transport should refuse addresses that
// strangers must not name. trusted are other addresses that the operator set.
func NewFinder(server *url.URL, transport http.RoundTripper, trusted ...string) *Finder {
	at := *server
	at.Fragment, at.User, at.Scheme, at.Host = "", nil, strings.ToLower(at.Scheme), strings.ToLower(at.Host)
	return &Finder{&at, &http.Client{
		Transport:     transport,
		Timeout:       Limit,
		CheckRedirect: sameOrigin,
	}, Hosts(trusted...)}
}

// Hosts returns the hosts of URLs, with their ports. It leaves out URLs without a host.
func Hosts(addresses ...string) (all []string) {
	for _, a := range addresses {
		if u, err := url.Parse(a); err == nil && u.Host != "" {
			all = append(all, u.Host)
		}
	}
	return all
}

// sameOrigin allows up to maxRedirects redirects within an origin (I-214).
func sameOrigin(r *http.Request, via []*http.Request) error {
	if first := via[0].URL; len(via) > maxRedirects || r.URL.Scheme != first.Scheme || !strings.EqualFold(r.URL.Host, first.Host) {
		return http.ErrUseLastResponse
	}
	return nil
}

// Loopback reports whether a host means this machine.
func Loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// Address parses an address in metadata, which must be https. It may be http on this machine, if the server is on this
// machine, too, or the operator named the host (I-214).
func (f *Finder) Address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return nil, fmt.Errorf("%q must be a URL such as https://login.example.com/token", sanitize.Text(cut(text)))
	case u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("%q must have no user and no #fragment", sanitize.Text(cut(text)))
	case u.Scheme == "https", u.Scheme == "http" && Loopback(u.Hostname()) && (Loopback(f.server.Hostname()) || slices.ContainsFunc(f.trusted, func(host string) bool { return strings.EqualFold(host, u.Host) })):
		return u, nil
	}
	return nil, fmt.Errorf("%q must be https", sanitize.Text(cut(text)))
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), 200)], "") }

// Resource is the metadata of a server.
type Resource struct {
	// Name identifies the server as the audience of tokens, exactly as the server writes it.
	Name string
	// Issuers are the authorization servers, at least one.
	Issuers []string
	// Scopes are the scopes that clients should request first; nil if the server names none.
	Scopes []string
}

var errNoDocument = errors.New("there is no such document")

// Resource reads the server's metadata: first at named, the address in a challenge, unless it is empty or relative,
// then at the addresses of RFC 9728. If there is no metadata, the result is nil (I-202, I-207).
func (f *Finder) Resource(ctx context.Context, named string) (*Resource, error) {
	origin, path := f.Origin(), strings.TrimSuffix(f.server.EscapedPath(), "/")
	addresses := []string{origin + wellKnown + resourceMetadata}
	if path != "" {
		addresses = slices.Insert(addresses, 0, origin+wellKnown+resourceMetadata+path)
	}
	if u, err := url.Parse(named); err == nil && u.IsAbs() { // a relative address is ignored (I-201)
		addresses = slices.Insert(slices.DeleteFunc(addresses, func(p string) bool { return p == named }), 0, named)
	}
	for _, address := range addresses {
		data, err := f.get(ctx, address)
		if errors.Is(err, errNoDocument) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the metadata of the server at %s: %w", cut(address), err)
		}
		r, err := f.resource(data)
		if err != nil {
			return nil, fmt.Errorf("the metadata of the server at %s: %w", cut(address), err)
		}
		return r, nil
	}
	return nil, nil
}

// resource parses metadata, which must be about this server.
func (f *Finder) resource(data []byte) (*Resource, error) {
	r := &Resource{Name: stringAt(data, "resource")}
	if !f.covers(r.Name) {
		return nil, fmt.Errorf("its resource is %q, which is not this server: sign-in is refused. If you know that address, use it as the server's", sanitize.Text(cut(r.Name)))
	}
	r.Issuers, r.Scopes = stringsAt(data, "authorization_servers"), stringsAt(data, "scopes_supported")
	if len(r.Issuers) == 0 {
		return nil, errors.New("its authorization_servers must name at least one")
	}
	return r, nil
}

// covers reports whether a resource is this server: its address, a part of the address up to a slash, or the address
// with one more slash, as servers that are mounted at /mcp/ write it. It normalizes nothing, since a token is for
// exactly that text (I-203).
func (f *Finder) covers(resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "" || strings.HasSuffix(resource, "#") {
		return false
	}
	if resource == f.server.String() {
		return true
	}
	if u.RawQuery != "" || u.ForceQuery || u.Scheme != f.server.Scheme || !strings.EqualFold(u.Host, f.server.Host) {
		return false
	}
	own, its := f.server.EscapedPath(), u.EscapedPath()
	rest, ok := strings.CutPrefix(own, its)
	return ok && (rest == "" || strings.HasSuffix(its, "/") || rest[0] == '/') || its == own+"/"
}

// Origin returns the server's origin, without a trailing slash.
func (f *Finder) Origin() string { return f.server.Scheme + "://" + f.server.Host }

// Server returns the server's address as the name of a resource. It leaves out the query, which may hold a key.
func (f *Finder) Server() string {
	u := *f.server
	u.RawQuery, u.ForceQuery = "", false
	return u.String()
}

// Issuer is the metadata of an authorization server.
type Issuer struct {
	// Name identifies the issuer, exactly as the authorization server writes it.
	Name string `json:"name"`
	// Authorization, Token, Registration, Revocation and Device are endpoints of the issuer; empty if there is none.
	Authorization string `json:"authorization,omitempty"`
	Token         string `json:"token"`
	Registration  string `json:"registration,omitempty"`
	Revocation    string `json:"revocation,omitempty"`
	Device        string `json:"device,omitempty"`
	// Userinfo and Introspection are endpoints of the issuer, and Keys is its jwks_uri; empty if there is none.
	Userinfo      string `json:"-"`
	Introspection string `json:"-"`
	Keys          string `json:"-"`
	// Methods are the methods by which clients can authenticate at the token endpoint. Algorithms are the algorithms of
	// signed assertions. Each is nil if the metadata does not list them.
	Methods    []string `json:"methods,omitempty"`
	Algorithms []string `json:"algorithms,omitempty"`
	// Scopes are the scopes of the issuer; nil if the metadata does not list them.
	Scopes []string `json:"scopes,omitempty"`
	// Claims are claims of the issuer's tokens; nil if the metadata does not list them. There may be others.
	Claims []string `json:"-"`
	// Challenges are the PKCE methods that the issuer supports.
	Challenges []string `json:"challenges,omitempty"`
	// Documents means that a client id may be the URL of the client's metadata.
	Documents bool `json:"documents,omitempty"`
	// NamesItself means that the answer to an authorization request has iss.
	NamesItself bool `json:"names_itself,omitempty"`
	// Assumed means that the issuer has no metadata, and that its endpoints are those of revision 2025-03-26.
	Assumed bool `json:"assumed,omitempty"`
}

// Issuer reads the metadata of the authorization server with that name (I-205). If it has none, the result is nil.
func (f *Finder) Issuer(ctx context.Context, name string) (*Issuer, error) {
	return f.first(ctx, name, false)
}

// Provider is Issuer for an OpenID provider. It reads the document of OpenID Connect first, since only that document
// has to name the userinfo endpoint.
func (f *Finder) Provider(ctx context.Context, name string) (*Issuer, error) {
	return f.first(ctx, name, true)
}

// first reads the first document that has metadata.
func (f *Finder) first(ctx context.Context, name string, provider bool) (*Issuer, error) {
	u, err := f.Address(name)
	if err != nil {
		return nil, fmt.Errorf("the authorization server %w", err)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return nil, fmt.Errorf("the authorization server %q must have no query", sanitize.Text(cut(name)))
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	addresses := []string{origin + wellKnown + oauth + path, origin + wellKnown + openid + path}
	if path != "" {
		addresses = append(addresses, origin+path+wellKnown+openid)
	}
	if provider {
		slices.Reverse(addresses)
	}
	for _, address := range addresses {
		data, err := f.get(ctx, address)
		if errors.Is(err, errNoDocument) {
			continue
		}
		var i *Issuer
		if err == nil {
			i, err = f.issuer(name, data)
		}
		if err != nil {
			return nil, fmt.Errorf("the metadata of the authorization server at %s: %w", cut(address), err)
		}
		return i, nil
	}
	return nil, nil
}

// ParseIssuer parses the metadata of an issuer, and does not check it. A malformed member counts as missing.
func ParseIssuer(data []byte) *Issuer {
	return &Issuer{
		Name:          stringAt(data, "issuer"),
		Authorization: stringAt(data, "authorization_endpoint"),
		Token:         stringAt(data, "token_endpoint"),
		Registration:  stringAt(data, "registration_endpoint"),
		Revocation:    stringAt(data, "revocation_endpoint"),
		Device:        stringAt(data, "device_authorization_endpoint"),
		Userinfo:      stringAt(data, "userinfo_endpoint"),
		Introspection: stringAt(data, "introspection_endpoint"),
		Keys:          stringAt(data, "jwks_uri"),
		Claims:        stringsAt(data, "claims_supported"),
		Methods:       stringsAt(data, "token_endpoint_auth_methods_supported"),
		Algorithms:    stringsAt(data, "token_endpoint_auth_signing_alg_values_supported"),
		Scopes:        stringsAt(data, "scopes_supported"),
		Challenges:    stringsAt(data, "code_challenge_methods_supported"),
		Documents:     gjson.GetBytes(data, "client_id_metadata_document_supported").Type == gjson.True,
		NamesItself:   gjson.GetBytes(data, "authorization_response_iss_parameter_supported").Type == gjson.True,
	}
}

// issuer parses metadata, which must be that of the issuer name (I-206).
func (f *Finder) issuer(name string, data []byte) (*Issuer, error) {
	i := ParseIssuer(data)
	if i.Name != name && i.Name != name+"/" && i.Name+"/" != name {
		return nil, fmt.Errorf("its issuer is %q, which is another one: sign-in is refused", sanitize.Text(cut(i.Name)))
	}
	if i.Token == "" {
		return nil, errors.New("its token_endpoint is missing")
	}
	for _, e := range []struct{ key, address string }{
		{"authorization_endpoint", i.Authorization}, {"token_endpoint", i.Token}, {"registration_endpoint", i.Registration},
		{"revocation_endpoint", i.Revocation}, {"device_authorization_endpoint", i.Device},
	} {
		if e.address == "" {
			continue
		}
		if _, err := f.Address(e.address); err != nil {
			return nil, fmt.Errorf("%s %w", e.key, err)
		}
	}
	if _, err := f.Address(i.Userinfo); err != nil { // only the front needs it, so a wrong one is no error
		i.Userinfo = ""
	}
	return i, nil
}

// Assumed returns the endpoints of a server of revision 2025-03-26 that has no metadata (I-207).
func (f *Finder) Assumed() *Issuer {
	o := f.Origin()
	return &Issuer{
		Name:          o,
		Authorization: o + "/authorize",
		Token:         o + "/token",
		Registration:  o + "/register",
		Assumed:       true,
	}
}

// get fetches a document. If there is none at the address, the error is errNoDocument.
func (f *Finder) get(ctx context.Context, address string) ([]byte, error) {
	u, err := f.Address(address)
	if err != nil {
		return nil, err
	}
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    u,
		Host:   u.Host,
		Header: http.Header{
			"Accept": {"application/json"}, "User-Agent": {"mcp-bridge"}, "Mcp-Protocol-Version": {"2025-11-25"},
		},
	}).WithContext(ctx)
	res, err := f.client.Do(r)
	if err != nil {
		return nil, Reason(err)
	}
	defer res.Body.Close()
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode >= 400 && res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests,
		res.StatusCode == http.StatusOK && (kind == "text/html" || kind == "text/plain") && err == nil: // a site may answer every address with a page
		return nil, errNoDocument
	case res.StatusCode/100 == 3:
		return nil, errors.New("the answer redirects to another origin: set the final address")
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the answer is HTTP %d", res.StatusCode)
	}
	data, err := ReadAnswer(res)
	switch {
	case err != nil:
		return nil, err
	case rawjson.Deeper(data, MaxDepth):
		return nil, fmt.Errorf("the answer is nested deeper than %d levels", MaxDepth)
	case !gjson.ValidBytes(data) || !gjson.ParseBytes(data).IsObject():
		return nil, errors.New("the answer must be a JSON object")
	}
	return data, nil
}

// ReadAnswer reads the body of an answer, of at most 1 MiB.
func ReadAnswer(res *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = errors.New("the answer is larger than 1 MiB")
	}
	return data, Reason(err)
}

// Reason returns an error of net/http without the URL, which may hold a code or a token.
func Reason(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// MaxAge returns the lifetime in Cache-Control, but at least least and at most most. Without one it returns least.
func MaxAge(h http.Header, least, most time.Duration) time.Duration {
	for part := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil && strings.EqualFold(name, "max-age") {
			return min(max(time.Duration(seconds)*time.Second, least), most)
		}
	}
	return least
}

func stringAt(data []byte, key string) string {
	if v := gjson.GetBytes(data, key); v.Type == gjson.String {
		return v.Str
	}
	return ""
}

// stringsAt returns the strings in a list. It returns nil for an empty list (I-211).
func stringsAt(data []byte, key string) (all []string) {
	gjson.GetBytes(data, key).ForEach(func(_, v gjson.Result) bool {
		if v.Type == gjson.String {
			all = append(all, v.Str)
		}
		return len(all) < maxListed
	})
	return all
}

// Answered checks iss in the answer to an authorization request. has says that the answer has iss (I-213; RFC 9207
// §2.4). After an error, nothing else of the answer may be used.
func (i *Issuer) Answered(iss string, has bool) error {
	switch {
	case has && iss != i.Name:
		return errors.New("the answer has the iss of another authorization server than was asked: it is refused")
	case !has && i.NamesItself:
		return errors.New("the answer has no iss, which the authorization server promises in its metadata: it is refused")
	}
	return nil
}
