package token

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

// Front says how tokens are checked that the bridge itself gives to users of an issuer.
// Each counts as one of the issuer that says what its ID token has said.
type Front struct {
	// Issuer is the iss of these tokens.
	Issuer string
	// Keys are those that they are signed by: a JSON Web Key Set.
	Keys []byte
	// Open returns what an ID token of the issuer would say now, of the claims of a token of
	// ours whose signature is good: an object. over reports whether the login has ended: it
	// is asked each time that the token is shown.
	Open func(claims gjson.Result) (said []byte, over func() bool, err error)
}

// issuer returns the issuer of these tokens, for users of another one.
func (f *Front) issuer(of Issuer, log *slog.Logger) *issuer {
	o := Issuer{URL: f.Issuer, Implies: of.Implies, Skew: of.Skew, Front: f}
	return &issuer{
		o: o, users: of.URL, algorithms: []jose.SignatureAlgorithm{jose.ES256},
		keys: jwks.New(jwks.Options{Issuer: f.Issuer, Text: f.Keys, Log: log}),
	}
}

// user makes a good token of ours one of the issuer whose user it is for.
func (i *issuer) user(t *Token) error {
	said, over, err := i.o.Front.Open(t.Claims)
	if err == nil {
		t.Claims, err = object(said)
	}
	if err != nil {
		return refuse(Invalid, i.o.URL, "the token: %v", err)
	}
	if t.over = over; over() {
		return refuse(Invalid, i.o.URL, "the login has ended that the token is of")
	}
	t.Issuer = i.users
	return nil
}

// Identify checks an ID token that an issuer has given to a client, and returns what it
// says (OpenID Connect Core §3.1.3.7). An empty nonce is not looked at.
func (v *Verifier) Identify(ctx context.Context, from, raw, client, nonce string) (claims gjson.Result, err error) {
	i := v.issuers[from]
	if i == nil {
		return claims, errors.New("there is no such issuer")
	}
	no := func(why string) (gjson.Result, error) { return gjson.Result{}, errors.New("the ID token: " + why) }
	head, body, err := split(raw)
	if err != nil {
		return no("it is no JSON Web Token")
	}
	h, err := readHeader(head)
	if err != nil {
		return no(err.Error())
	}
	if claims, err = object(body); err != nil {
		return no(err.Error())
	}
	parsed, err := jose.ParseSignedCompact(raw, i.algorithms)
	if err != nil {
		return no("it is not signed with an algorithm that its issuer may use")
	}
	if _, err := i.signer(ctx, h, parsed, body); err != nil {
		return no(err.Error())
	}
	if _, err := i.until(claims); err != nil {
		return no(err.Error())
	}
	aud, ok := list(member(claims, "aud"))
	azp := member(claims, "azp")
	switch sub := member(claims, "sub"); {
	case strings.Contains(h.typ, "at+"):
		return no("it is an access token")
	case member(claims, "iss").Str != from:
		return no("it is of another issuer")
	case !ok || !slices.Contains(aud, client) || azp.Exists() && azp.Str != client || len(aud) > 1 && !azp.Exists():
		return no("it is for another client")
	case nonce != "" && member(claims, "nonce").Str != nonce:
		return no("it is of another sign-in: its nonce is another one")
	case sub.Type != gjson.String || !nameable(sub.Str):
		return no("it does not say of whom it is: sub must be text of 1 to 256 bytes without control characters")
	}
	return claims, nil
}
