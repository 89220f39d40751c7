// Package token checks the tokens that identity providers have issued for the bridge:
// JSON Web Tokens (RFC 9068), by the keys of their issuers.
//
// A token counts if it is signed by a key of the issuer that it names, is meant for the
// resource that was asked for, is neither too old nor too new, and says of whom it is.
// What else a token is, such as an ID token or one that is bound to a key, is refused.
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

	"github.com/mcp-bridge/bridge/internal/auth/assertion"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

// Issuer says whose tokens count, and which of them.
type Issuer struct {
	// URL is the issuer, exactly as its tokens name it.
	URL string
	// Audience is what a token may be for beside the resource that was asked for.
	Audience []string
	// JWKS is the URL or the file of its keys. Default: where its metadata says.
	JWKS string
	// Algorithms are those that it may sign with. Default: Algorithms.
	Algorithms []string
	// ScopeClaim has the scopes. Default: scope and scp.
	ScopeClaim string
	// Implies has the scopes that others have in them, by these.
	Implies map[string][]string
	// Skew is by how much the clocks may differ. Default 30s.
	Skew time.Duration
	// Introspection says how to ask it about tokens that only it can read; nil means that
	// these do not count. One issuer at most has it: such a token does not say whose it is.
	Introspection *Introspection
	// Front is set if the bridge gives tokens to its users, too.
	Front *Front
	// Transport makes the requests to it. Default: that of net/http.
	Transport http.RoundTripper
}

// Algorithms are those that tokens may be signed with. Each is of a public key: one that
// is secret would have to be the issuer's and ours, and who has it can make tokens.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

const (
	// DefaultSkew is by how much clocks may differ if nothing is said, and MaxSkew by
	// how much at most.
	DefaultSkew = 30 * time.Second
	MaxSkew     = 5 * time.Minute

	maxToken = 16 << 10 // bytes
	maxKnown = 10_000   // tokens that are known to be good
)

// Result is what became of a check, as metrics have it.
type Result string

// The results of checks.
const (
	OK          Result = "ok"
	Missing     Result = "missing"     // nothing was shown
	Expired     Result = "expired"     // too old
	Audience    Result = "audience"    // for somebody else
	Unknown     Result = "issuer"      // of no issuer that counts
	Signature   Result = "signature"   // not signed by its issuer
	Invalid     Result = "invalid"     // anything else that is wrong with it
	Scope       Result = "scope"       // a scope is missing
	Denied      Result = "denied"      // no rule lets it in
	Unavailable Result = "unavailable" // it cannot be checked
)

// Error is why a token does not count. Its text is for operators, and has nothing of the
// token but who gave it, for whom and as what; clients are told only what the result says.
type Error struct {
	Result Result
	Issuer string // if it is one that counts
	Why    string
	Text   bool // it has not even the form of a token: it may be a guess at a key
	// Asked: its issuer knows nothing of it. Unasked: it was not asked, because of many such.
	Asked, Unasked bool
}

func (e *Error) Error() string { return e.Why }

func refuse(r Result, issuer, format string, args ...any) *Error {
	return &Error{Result: r, Issuer: issuer, Why: fmt.Sprintf(format, args...)}
}

func expired(issuer string) *Error { return refuse(Expired, issuer, "the token has expired") }

// Token is what a token says that was found good.
type Token struct {
	// Issuer and Subject are who the caller is. Machine says that the subject is a
	// client, which acts for nobody.
	Issuer, Subject string
	Machine         bool
	// Client is who got the token, if it says so.
	Client string
	// Scopes are what it allows, and what is implied by that, sorted.
	Scopes []string
	// Until is when it ends, the difference of the clocks included.
	Until time.Time
	// Claims are all that it says: an object.
	Claims gjson.Result

	// Note keeps what its reader has made of it.
	Note atomic.Value

	audience []string
	client   bool        // the audience is the client that got the token, for the lack of another
	key      *jwks.Key   // nil for a token that its issuer was asked about
	over     func() bool // of a token of a Front: whether its login has ended; nil for others

	// Of a token that its issuer was asked about: how long the answer counts, and whether
	// a later one was that it is not good.
	fresh time.Time
	ended *atomic.Bool
}

// Gone reports whether the issuer has taken the key back that the token is signed by, or
// has said of the token itself that it is not good any more.
func (t *Token) Gone() bool {
	if t.key == nil {
		return t.ended.Load()
	}
	return t.key.Gone() || t.over != nil && t.over()
}

// Fronted reports whether the token is one that the bridge has given itself to a user of
// the issuer. It counts nowhere else, and must not be handed on.
func (t *Token) Fronted() bool { return t.over != nil }

// counts reports whether a token that was good needs no other look.
func (t *Token) counts(now time.Time) bool {
	return !t.Gone() && t.Until.After(now) && (t.key != nil || t.fresh.After(now))
}

// Resource is what a token has to be for: Root + Path, or the Root alone, which is the
// bridge as a whole.
type Resource struct{ Root, Path string }

// Is reports whether an address is that of the resource, or of the bridge as a whole. A
// slash at its end makes no difference (I-016).
func (r Resource) Is(address string) bool {
	address = strings.TrimSuffix(address, "/")
	rest, ok := strings.CutPrefix(address, r.Root)
	return ok && r.Root != "" && (rest == "" || rest == r.Path)
}

// Verifier checks tokens. Its methods may be called concurrently.
type Verifier struct {
	issuers map[string]*issuer
	opaque  *asker // of tokens that cannot be read; nil when these do not count

	mu    sync.Mutex // guards known
	known *simplelru.LRU[[32]byte, *Token]
}

// issuer is an Issuer that is ready for use.
type issuer struct {
	o          Issuer
	keys       *jwks.Set
	algorithms []jose.SignatureAlgorithm
	asks       *asker // nil when it is not asked about tokens
	users      string // of a Front, the issuer whose users its tokens are for
}

// keyed reports whether keys of the issuer are used.
func (i *issuer) keyed() bool { return !i.always() || i.o.Front != nil }

// always reports whether the issuer is asked about each of its tokens.
func (i *issuer) always() bool { return i.asks != nil && i.o.Introspection.Always }

// New makes a verifier of the tokens of those issuers. It fetches nothing: see Run.
func New(issuers []Issuer, log *slog.Logger) *Verifier {
	known, _ := simplelru.NewLRU[[32]byte, *Token](maxKnown, nil) // the size is positive
	v := &Verifier{issuers: map[string]*issuer{}, known: known}
	for _, o := range issuers {
		if o.Skew == 0 {
			o.Skew = DefaultSkew
		}
		if len(o.Algorithms) == 0 {
			o.Algorithms = Algorithms
		}
		i := &issuer{o: o, keys: jwks.New(jwks.Options{Issuer: o.URL, From: o.JWKS, Client: jwks.Client(o.Transport), Log: log})}
		for _, a := range Algorithms { // never another one, whatever the list says (I-011)
			for _, wanted := range o.Algorithms {
				if a == wanted {
					i.algorithms = append(i.algorithms, jose.SignatureAlgorithm(a))
				}
			}
		}
		if how := o.Introspection; how != nil {
			i.asks = newAsker(v, i, NewEndpoint(EndpointOptions{
				Issuer: o.URL, URL: how.URL, ID: how.Client.ID, Secret: how.Client.Secret, InBody: how.Client.InBody,
				Key:      assertion.Key{File: how.Client.KeyFile, ID: how.Client.KeyID, Algorithm: how.Client.Algorithm},
				Metadata: i.keys.Metadata, Client: jwks.Client(o.Transport), Log: log,
			}), how.Cache)
			v.opaque = i.asks
		}
		v.issuers[o.URL] = i
		if front := o.Front; front != nil {
			v.issuers[front.Issuer] = front.issuer(o, log)
		}
	}
	return v
}

// Run fetches the keys of all issuers and keeps them new, until ctx ends. It is called
// once.
func (v *Verifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range v.issuers {
		if i.keyed() { // otherwise it may have none
			wg.Go(func() { i.keys.Run(ctx) })
		}
	}
	wg.Wait()
}

// State is the state of an issuer.
type State struct {
	jwks.State
	Keys  bool                // keys of it are used
	Asked *IntrospectionState // nil when it is not asked about tokens
}

// States returns the state of the issuers, in no order.
func (v *Verifier) States() []State {
	var all []State
	for _, i := range v.issuers {
		st := State{State: i.keys.State(), Keys: i.keyed()}
		if i.asks != nil {
			asked := i.asks.at.State()
			st.Asked = &asked
		}
		all = append(all, st)
	}
	return all
}

// Verify returns what a token says, if it counts for the resource. sum identifies it:
// a hash that nobody can choose a token for. The error is an *Error, or that of ctx.
// What is returned is shared, and not to be changed.
func (v *Verifier) Verify(ctx context.Context, raw string, sum [32]byte, to Resource) (*Token, error) {
	t := v.get(sum)
	if t == nil || !t.counts(time.Now()) { // what is found says why
		had := t
		var err error
		if t, err = v.verify(ctx, raw, sum, had); err != nil {
			if had != nil {
				v.forget(sum, had, err)
			}
			return nil, err
		}
		if t.key != nil { // of others, who has asked has done so
			v.keep(sum, t)
		}
	}
	if i := v.issuers[t.Issuer]; !t.meant(to, i.o.Audience) {
		return nil, refuse(Audience, t.Issuer, "the token is for something else: its aud %.300s has neither the address of the endpoint nor that of the bridge, nor one that audience lists", fmt.Sprintf("%q", t.audience))
	}
	return t, nil
}

// get returns a token that was good; nil for one that is not known.
func (v *Verifier) get(sum [32]byte) *Token {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, _ := v.known.Get(sum)
	return t
}

// keep remembers a good token.
func (v *Verifier) keep(sum [32]byte, t *Token) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known.Add(sum, t)
}

// forget forgets a token that was good, if the error says that it is not any more.
func (v *Verifier) forget(sum [32]byte, had *Token, err error) {
	var e *Error
	if !errors.As(err, &e) || e.Result == Unavailable {
		return // nothing is known of it
	}
	if had.ended != nil {
		had.ended.Store(true)
	}
	if had.key == nil && e.Result == Expired {
		return // it is known why it does not count: nobody is asked again
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known.Remove(sum)
}

// meant reports whether one of its audiences is the resource, or one that counts too.
func (t *Token) meant(to Resource, also []string) bool {
	for _, a := range t.audience {
		if !t.client && to.Is(a) {
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

// header is what is read of the header of a token.
type header struct {
	alg, kid, typ string
	named         bool // there is a kid
}

// types are those that an access token may have (I-012).
var types = map[string]bool{"": true, "jwt": true, "at+jwt": true, "application/at+jwt": true}

// verify returns what a token says, for whatever resource it is. had is what it said when
// that was last looked at, or nil.
func (v *Verifier) verify(ctx context.Context, raw string, sum [32]byte, had *Token) (*Token, error) {
	head, body, err := split(raw)
	if v.opaque != nil && opaque(raw) && (err != nil || !gjson.ValidBytes(head)) {
		return v.opaque.verify(ctx, raw, sum, had)
	}
	if err != nil {
		return nil, &Error{Result: Invalid, Why: err.Error(), Text: len(raw) <= maxToken}
	}
	h, err := readHeader(head)
	if err != nil {
		return nil, &Error{Result: Invalid, Why: "the header of the token: " + err.Error(), Text: !gjson.ValidBytes(head)}
	}
	claims, err := object(body)
	if err != nil {
		return nil, refuse(Invalid, "", "what the token says: %v", err)
	}
	iss := member(claims, "iss")
	i := v.issuers[iss.Str]
	if i == nil || iss.Type != gjson.String {
		return nil, refuse(Unknown, "", "the token is of no issuer that oauth lists, %.200q", iss.Str)
	}
	if i.always() {
		if ends, ok := seconds(member(claims, "exp")); ok && !ends.Add(i.o.Skew).After(time.Now()) {
			return nil, expired(i.o.URL)
		}
		return i.asks.verify(ctx, raw, sum, had)
	}
	// All that costs nothing comes first: only who has a token that could be good has
	// keys fetched (I-021).
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
	if t.Scopes, err = i.scopes(claims); err != nil { // which may be work, so that it is for its issuer only to cause
		return nil, refuse(Invalid, i.o.URL, "the token: %v", err)
	}
	if i.users != "" {
		return t, i.user(t)
	}
	return t, nil
}

// signer returns the key of the issuer that has signed what is in a token.
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

// split returns the header and the payload of a token in the compact form.
func split(raw string) (head, body []byte, err error) {
	if len(raw) > maxToken {
		return nil, nil, errors.New("the token is longer than 16 KiB")
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, nil, errors.New("what was shown is neither a key nor a JSON Web Token")
	}
	if head, err = base64.RawURLEncoding.Strict().DecodeString(parts[0]); err == nil {
		body, err = base64.RawURLEncoding.Strict().DecodeString(parts[1])
	}
	if err != nil {
		return nil, nil, errors.New("what was shown is neither a key nor a JSON Web Token")
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
		return h, errors.New("it asks for an extension that is not understood")
	case !types[strings.ToLower(typ.Str)]:
		return h, fmt.Errorf("its type is not that of an access token, %.50q", typ.Str)
	}
	return header{alg.Str, kid.Str, strings.ToLower(typ.Str), kid.Exists()}, nil
}

// read checks the claims of a token of the issuer, all but for whom it is and what it
// allows. asked says that they are the issuer's answer to a question about the token.
func (i *issuer) read(claims gjson.Result, asked bool) (*Token, error) {
	no := func(r Result, format string, args ...any) (*Token, error) {
		return nil, refuse(r, i.o.URL, format, args...)
	}
	until, err := i.until(claims)
	if err != nil {
		return nil, err
	}
	t := &Token{Issuer: i.o.URL, Until: until, Claims: claims}
	if what := otherUse(claims, asked); what != "" {
		return no(Invalid, "this is no access token: %s", what)
	}
	if member(claims, "cnf").Exists() {
		return no(Invalid, "the token is bound to a key (cnf), and was shown without it")
	}
	client := member(claims, "client_id")
	if !client.Exists() {
		client = member(claims, "azp")
	}
	aud := member(claims, "aud")
	if t.client = asked && !aud.Exists() && client.Type == gjson.String; t.client {
		aud = client
	}
	var ok bool
	if t.audience, ok = list(aud); !ok || len(t.audience) == 0 {
		return no(Audience, "the token has no aud, or one that is no text: it could be for anybody")
	}
	t.Subject, t.Client = member(claims, "sub").Str, client.Str
	if s := member(claims, "sub"); !s.Exists() {
		t.Subject, t.Machine = t.Client, true
	}
	if !nameable(t.Subject) || t.Client != "" && !nameable(t.Client) {
		return no(Invalid, "the token does not say of whom it is: sub must be text of 1 to 256 bytes without control characters")
	}
	return t, nil
}

// until returns when a token ends, the difference of the clocks included.
func (i *issuer) until(claims gjson.Result) (end time.Time, err error) {
	now := time.Now()
	ends, ok := seconds(member(claims, "exp"))
	if !ok {
		return end, refuse(Invalid, i.o.URL, "the token has no exp: one that does not end is not taken")
	}
	if end = ends.Add(i.o.Skew); !end.After(now) {
		return end, expired(i.o.URL)
	}
	for _, name := range []string{"nbf", "iat"} {
		if v := member(claims, name); v.Exists() {
			if at, ok := seconds(v); !ok || at.After(now.Add(i.o.Skew)) {
				return end, refuse(Invalid, i.o.URL, "the %s of the token is ahead, or no time: are the clocks right?", name)
			}
		}
	}
	return end, nil
}

// otherUse returns what says of a token that it is for something else than access, such as
// to get the next one; empty if nothing does. What issuers write has no standard.
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
