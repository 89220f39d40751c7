// Package token verifies the tokens that identity providers issue for the bridge. It verifies JSON Web
// Tokens (RFC 9068) by the keys of their issuers, and opaque tokens by introspection (RFC 7662).
//
// A token is valid if the issuer that it names has signed it, its audience is the requested resource, and it names its
// subject. It must be neither expired nor from the future. The package refuses tokens of other kinds, such as ID tokens
// and tokens bound to a key.
package token

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Issuer is an issuer whose tokens are accepted, with the rules for its tokens.
type Issuer struct {
	// URL identifies the issuer, exactly as in its tokens.
	URL string
	// Audience lists accepted audiences, besides the requested resource.
	Audience []string
	// JWKS is the URL or the file of the issuer's keys. Default: the jwks_uri in the issuer's metadata.
	JWKS string
	// Algorithms are the signature algorithms that tokens may use. Default: the variable Algorithms.
	Algorithms []string
	// ScopeClaim is the claim that holds the scopes. Default: scope and scp.
	ScopeClaim string
	// Implies maps scopes to the scopes that they include.
	Implies map[string][]string
	// Skew is how much the clocks of the issuer and the bridge may differ.
	Skew time.Duration
	// Introspection holds the settings to ask the issuer about opaque tokens. nil means that opaque tokens are refused.
	// At most one issuer has it, because an opaque token does not name its issuer.
	Introspection *Introspection
	// Front is set if the bridge itself issues tokens to users of the issuer.
	Front *Front
	// Transport sends the requests to the issuer. Default: that of net/http.
	Transport http.RoundTripper
}

// Algorithms are the supported signature algorithms. All use public keys: with a secret key, whoever can verify a token
// could also make one.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

const (
	maxToken = 16 << 10 // bytes
	maxKnown = 10_000   // valid tokens in the cache
)

// Result is the result of a check, as metrics name it.
type Result string

// The values of Result.
const (
	OK          Result = "ok"
	Missing     Result = "missing"     // no token
	Expired     Result = "expired"     // expired
	Audience    Result = "audience"    // the token is for another resource
	Unknown     Result = "issuer"      // the token is of an unknown issuer
	Signature   Result = "signature"   // no key of the issuer has signed the token
	Invalid     Result = "invalid"     // any other fault
	Scope       Result = "scope"       // the token lacks a scope
	Denied      Result = "denied"      // no access rule admits the user
	Unavailable Result = "unavailable" // the token cannot be checked now
)

// Error is why a token is refused. Why is for operators. Of the token it holds only issuer, audience and type. Clients
// only get Result.
type Error struct {
	Result Result
	Issuer string // empty for an unknown issuer
	Why    string
	Text   bool // the text does not have the form of a token, so it may be a guess at a key
	// Asked means that the issuer does not know the token. Unasked means that the issuer was not asked, after too many
	// tokens that it did not know.
	Asked, Unasked bool
}

func (e *Error) Error() string { return e.Why }

func refuse(r Result, issuer, format string, args ...any) *Error {
	return &Error{
		Result: r,
		Issuer: issuer,
		Why:    fmt.Sprintf(format, args...),
	}
}

func expired(issuer string) *Error { return refuse(Expired, issuer, "the token has expired") }

// Token is a verified token.
type Token struct {
	// Issuer and Subject identify the caller. Machine means that the subject is a program that acts for no user.
	Issuer, Subject string
	Machine         bool
	// Client is the client that got the token. It may be empty.
	Client string
	// Scopes are the scopes of the token and the scopes that these include, sorted.
	Scopes []string
	// Until is when the token expires, plus the allowed skew.
	Until time.Time
	// Claims are the claims of the token, a JSON object.
	Claims gjson.Result

	// Note is for the reader of the token, which can store a result in it.
	Note atomic.Value

	audience         []string
	audienceIsClient bool        // the token has no aud, and audience is the client that got it
	key              *jwks.Key   // nil for an introspected token
	loginEnded       func() bool // reports whether the login of a Front's token has ended; nil for other tokens

	// fresh is how long the answer about an introspected token counts. ended reports whether a later answer revoked the
	// token.
	fresh time.Time
	ended *atomic.Bool
}

// Revoked reports whether the issuer has revoked the token or the key that signed it, or whether the login has ended.
func (t *Token) Revoked() bool {
	if t.key == nil {
		return t.ended.Load()
	}
	return t.key.Withdrawn() || t.loginEnded != nil && t.loginEnded()
}

// Fronted reports whether the bridge itself issued the token to a user of the issuer. Such a token must not be sent to
// servers, none of which accepts it.
func (t *Token) Fronted() bool { return t.loginEnded != nil }

// valid reports whether a verified token needs no other check at now.
func (t *Token) valid(now time.Time) bool {
	return !t.Revoked() && t.Until.After(now) && (t.key != nil || t.fresh.After(now))
}

// Resource is what a token is needed for. Its audience is Root + Path, or Root alone, which is the whole bridge.
type Resource struct{ Root, Path string }

// Is reports whether an address is that of the resource or of the whole bridge. It ignores a trailing slash (I-016).
func (r Resource) Is(address string) bool {
	address = strings.TrimSuffix(address, "/")
	rest, ok := strings.CutPrefix(address, r.Root)
	return ok && r.Root != "" && (rest == "" || rest == r.Path)
}

// Verifier verifies tokens. Its methods may be called concurrently.
type Verifier struct {
	issuers map[string]*issuer
	opaque  *asker // nil if opaque tokens are refused

	mu    sync.Mutex // guards known
	known simplelru.LRUCache[[32]byte, *Token]
}

// issuer is the state of an Issuer.
type issuer struct {
	o          Issuer
	keys       *jwks.Set
	algorithms []jose.SignatureAlgorithm
	asker      *asker // nil without introspection
	usersOf    string // issuer of the users, for a Front
}

// usesKeys reports whether the keys of the issuer are needed.
func (i *issuer) usesKeys() bool { return !i.introspectsAll() || i.o.Front != nil }

// introspectsAll reports whether all tokens of the issuer are introspected.
func (i *issuer) introspectsAll() bool { return i.asker != nil && i.o.Introspection.Always }

// New returns a Verifier for tokens of the issuers. Only Run and Verify send requests.
func New(issuers []Issuer, log *slog.Logger) *Verifier {
	known, _ := simplelru.NewLRU[[32]byte, *Token](maxKnown, nil) // the size is positive
	v := &Verifier{issuers: map[string]*issuer{}, known: known}
	for _, o := range issuers {
		if len(o.Algorithms) == 0 {
			o.Algorithms = Algorithms
		}
		i := &issuer{o: o, keys: jwks.New(jwks.Options{
			Issuer: o.URL,
			From:   o.JWKS,
			Client: jwks.Client(o.Transport),
			Log:    log,
		})}
		for _, a := range Algorithms { // only supported algorithms, even if the list has others (I-011)
			for _, wanted := range o.Algorithms {
				if a == wanted {
					i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(a))
				}
			}
		}
		if o.Introspection != nil {
			how := *o.Introspection
			setting.Fill(&how)
			i.asker = newAsker(v, i, NewEndpoint(EndpointOptions{
				Issuer:   o.URL,
				URL:      how.URL,
				As:       how.Client.grant(),
				Metadata: i.keys.Metadata,
				Client:   jwks.Client(o.Transport),
				Log:      log,
			}), how.Cache)
			v.opaque = i.asker
		}
		v.issuers[o.URL] = i
		if front := o.Front; front != nil {
			v.issuers[front.Issuer] = front.issuer(o, log)
		}
	}
	return v
}

// Run fetches and refreshes the keys of all issuers until ctx ends. It must be called only once.
func (v *Verifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range v.issuers {
		if i.usesKeys() { // an issuer whose keys are not needed may publish none
			wg.Go(func() { i.keys.Run(ctx) })
		}
	}
	wg.Wait()
}

// State is the state of an issuer.
type State struct {
	jwks.State
	Keys  bool                // the keys of the issuer are needed
	Asked *IntrospectionState // nil without introspection
}

// States returns the states of the issuers, in random order.
func (v *Verifier) States() []State {
	var all []State
	for _, i := range v.issuers {
		st := State{State: i.keys.State(), Keys: i.usesKeys()}
		if i.asker != nil {
			asked := i.asker.at.State()
			st.Asked = &asked
		}
		all = append(all, st)
	}
	return all
}

// Verify returns the token if it is valid for the resource. sum must identify the token: a hash for which nobody can
// find another token. The error is an *Error, or that of ctx. Callers share the result, and must not change it.
func (v *Verifier) Verify(ctx context.Context, raw string, sum [32]byte, to Resource) (*Token, error) {
	t := v.get(sum)
	if t == nil || !t.valid(time.Now()) { // verify finds out why the token is not valid
		cached := t
		var err error
		if t, err = v.verify(ctx, raw, sum, cached); err != nil {
			if cached != nil {
				v.forget(sum, cached, err)
			}
			return nil, err
		}
		if t.key != nil { // the asker stores introspected tokens
			v.store(sum, t)
		}
	}
	if i := v.issuers[t.Issuer]; !t.isFor(to, i.o.Audience) {
		return nil, refuse(Audience, t.Issuer, "the token is for another resource: its aud %.300s must have the address of the endpoint, that of the bridge, or one in audience", fmt.Sprintf("%q", t.audience))
	}
	return t, nil
}

// get returns a verified token from the cache; nil for an unknown one.
func (v *Verifier) get(sum [32]byte) *Token {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, _ := v.known.Get(sum)
	return t
}

// store adds a verified token to the cache.
func (v *Verifier) store(sum [32]byte, t *Token) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known.Add(sum, t)
}

// forget removes a token from the cache if err means that the token is not valid any more.
func (v *Verifier) forget(sum [32]byte, cached *Token, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Result == Unavailable {
		return // the token may still be valid
	}
	if cached.ended != nil {
		cached.ended.Store(true)
	}
	if cached.key == nil && e.Result == Expired {
		return // stays in the cache, so that the issuer is not asked about it again
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known.Remove(sum)
}

// isFor reports whether an audience of the token is the resource or is in also.
func (t *Token) isFor(to Resource, also []string) bool {
	for _, a := range t.audience {
		if !t.audienceIsClient && to.Is(a) {
			return true
		}
		for _, other := range also {
			if strings.TrimSuffix(a, "/") == strings.TrimSuffix(other, "/") {
				return true
			}
		}
	}
	return false
}

// header is the header of a JSON Web Token.
type header struct {
	alg, kid, typ string
	named         bool // the header has a kid
}

// types are the types that access tokens may have. A token may also have no type (I-012).
var types = map[string]bool{"jwt": true, "at+jwt": true, "application/at+jwt": true}

// verify verifies a token, for any resource. cached is the token in the cache, or nil.
func (v *Verifier) verify(ctx context.Context, raw string, sum [32]byte, cached *Token) (*Token, error) {
	head, body, err := split(raw)
	if v.opaque != nil && mayBeOpaque(raw) && (err != nil || !gjson.ValidBytes(head)) {
		return v.opaque.verify(ctx, raw, sum, cached)
	}
	if err != nil {
		return nil, &Error{
			Result: Invalid,
			Why:    err.Error(),
			Text:   len(raw) <= maxToken,
		}
	}
	h, err := readHeader(head)
	if err != nil {
		return nil, &Error{
			Result: Invalid,
			Why:    "the header of the token: " + err.Error(),
			Text:   !gjson.ValidBytes(head),
		}
	}
	claims, err := object(body)
	if err != nil {
		return nil, refuse(Invalid, "", "the claims of the token: %v", err)
	}
	iss := member(claims, "iss")
	i := v.issuers[iss.Str]
	if i == nil || iss.Type != gjson.String {
		return nil, refuse(Unknown, "", "the issuer of the token, %.200q, is not in oauth", iss.Str)
	}
	if i.introspectsAll() {
		if ends, ok := seconds(member(claims, "exp")); ok && !ends.Add(i.o.Skew).After(time.Now()) {
			return nil, expired(i.o.URL)
		}
		return i.asker.verify(ctx, raw, sum, cached)
	}
	// Cheap checks come first, so that only a token that could be valid causes a fetch of keys (I-021).
	parsed, err := jose.ParseSignedCompact(raw, i.algorithms)
	if err != nil {
		return nil, refuse(Signature, i.o.URL, "the token is not signed with an algorithm that its issuer may use, or not in the compact form")
	}
	t, err := i.read(claims, false)
	if err != nil {
		return nil, err
	}
	if t.key, err = i.signer(ctx, h, parsed, body); err != nil {
		return nil, err
	}
	if t.Scopes, err = i.scopes(claims); err != nil { // last, since it may be much work, which only the issuer may cause
		return nil, refuse(Invalid, i.o.URL, "the token: %v", err)
	}
	if i.usersOf != "" {
		return t, i.toUser(t)
	}
	return t, nil
}

// signer returns the issuer's key that signed the token.
func (i *issuer) signer(ctx context.Context, h header, parsed *jose.JSONWebSignature, body []byte) (*jwks.Key, error) {
	keys, err := i.keys.Find(ctx, h.kid, h.named, h.alg)
	switch {
	case errors.Is(err, jwks.ErrUnavailable):
		return nil, refuse(Unavailable, i.o.URL, "%v", err)
	case errors.Is(err, jwks.ErrUnknown):
		return nil, refuse(Signature, i.o.URL, "%v", err)
	case err != nil:
		return nil, err
	}
	for _, k := range keys {
		if payload, err := parsed.Verify(k.Public); err == nil && string(payload) == string(body) {
			return k, nil
		}
	}
	return nil, refuse(Signature, i.o.URL, "the token is not signed by a key of its issuer")
}

// split decodes the header and the payload of a token in compact form.
func split(raw string) (head, body []byte, err error) {
	if len(raw) > maxToken {
		return nil, nil, errors.New("the token is longer than 16 KiB")
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, nil, errors.New("the credential is neither a key nor a JSON Web Token")
	}
	if head, err = base64.RawURLEncoding.Strict().DecodeString(parts[0]); err == nil {
		body, err = base64.RawURLEncoding.Strict().DecodeString(parts[1])
	}
	if err != nil {
		return nil, nil, errors.New("the credential is neither a key nor a JSON Web Token")
	}
	return head, body, nil
}

func readHeader(data []byte) (h header, err error) {
	v, err := object(data)
	if err != nil {
		return h, err
	}
	alg, kid, typ := member(v, "alg"), member(v, "kid"), member(v, "typ")
	switch {
	case alg.Type != gjson.String || kid.Exists() && kid.Type != gjson.String || typ.Exists() && typ.Type != gjson.String:
		return h, errors.New("alg, kid and typ must be text")
	case member(v, "crit").Exists(), member(v, "b64").Exists():
		return h, errors.New("it needs an extension (crit or b64), which the bridge does not support")
	case typ.Exists() && !types[strings.ToLower(typ.Str)]:
		return h, fmt.Errorf("its typ is %.50q, which is not that of an access token", typ.Str)
	}
	return header{alg.Str, kid.Str, strings.ToLower(typ.Str), kid.Exists()}, nil
}

// read checks the claims of a token, apart from audience and scopes. asked says that the claims are the answer of an
// introspection.
func (i *issuer) read(claims gjson.Result, asked bool) (*Token, error) {
	fail := func(r Result, format string, args ...any) (*Token, error) {
		return nil, refuse(r, i.o.URL, format, args...)
	}
	until, err := i.until(claims)
	if err != nil {
		return nil, err
	}
	t := &Token{
		Issuer: i.o.URL,
		Until:  until,
		Claims: claims,
	}
	if what := otherUse(claims, asked); what != "" {
		return fail(Invalid, "the token is not an access token: %s", what)
	}
	if member(claims, "cnf").Exists() {
		return fail(Invalid, "the token is bound to a key (cnf), which the bridge does not support")
	}
	client := member(claims, "client_id")
	if !client.Exists() {
		client = member(claims, "azp")
	}
	aud := member(claims, "aud")
	if t.audienceIsClient = asked && !aud.Exists() && client.Type == gjson.String; t.audienceIsClient {
		aud = client
	}
	var ok bool
	if t.audience, ok = list(aud); !ok || len(t.audience) == 0 {
		return fail(Audience, "the token must have an aud of text: without it, the token could be for anybody")
	}
	t.Subject, t.Client = member(claims, "sub").Str, client.Str
	if s := member(claims, "sub"); !s.Exists() {
		t.Subject, t.Machine = t.Client, true
	}
	if !validName(t.Subject) || t.Client != "" && !validName(t.Client) {
		return fail(Invalid, "the token names no user: sub must be text of 1 to 256 bytes without control characters")
	}
	return t, nil
}

// until returns the time at which a token expires, plus the allowed skew.
func (i *issuer) until(claims gjson.Result) (end time.Time, err error) {
	now := time.Now()
	ends, ok := seconds(member(claims, "exp"))
	if !ok {
		return end, refuse(Invalid, i.o.URL, "the token must have exp: the bridge accepts no token without an end")
	}
	if end = ends.Add(i.o.Skew); !end.After(now) {
		return end, expired(i.o.URL)
	}
	for _, name := range []string{"nbf", "iat"} {
		if v := member(claims, name); v.Exists() {
			if at, ok := seconds(v); !ok || at.After(now.Add(i.o.Skew)) {
				return end, refuse(Invalid, i.o.URL, "the %s of the token is in the future or no time: check the clocks", name)
			}
		}
	}
	return end, nil
}

// otherUse returns why a token is not an access token but, for example, a refresh token; empty if it may be an access
// token. No standard defines such claims.
func otherUse(claims gjson.Result, asked bool) string {
	is := func(name string, values ...string) bool {
		v := member(claims, name)
		return v.Exists() && slices.ContainsFunc(values, func(one string) bool { return strings.EqualFold(one, v.Str) })
	}
	isNot := func(name string, values ...string) bool { return member(claims, name).Exists() && !is(name, values...) }
	for name, wrong := range map[string]bool{
		"typ":        is("typ", "refresh", "id", "offline"), // Keycloak
		"token_use":  isNot("token_use", "access", "access_token"),
		"token_type": asked && isNot("token_type", "bearer", "access_token", "urn:ietf:params:oauth:token-type:access_token"),
	} {
		if wrong {
			return fmt.Sprintf("its %s is %.50q", name, member(claims, name).String())
		}
	}
	return ""
}
