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

// Front is how to verify the tokens that the bridge itself issues to users of an issuer. Each counts as a
// token of that issuer, with the claims of the user's ID token.
type Front struct {
	// Issuer is the iss of these tokens.
	Issuer string
	// Keys are the keys that sign them: a JSON Web Key Set.
	Keys []byte
	// Open returns the present claims of the user of a verified token: an object. over reports
	// whether the login has ended; it is called each time that the token is used.
	Open func(claims gjson.Result) (said []byte, over func() bool, err error)
}

// issuer returns the state of the issuer of these tokens, for users of another issuer.
func (f *Front) issuer(of Issuer, log *slog.Logger) *issuer {
	o := Issuer{URL: f.Issuer, Implies: of.Implies, Skew: of.Skew, Front: f}
	return &issuer{
		o: o, users: of.URL, algorithms: []jose.SignatureAlgorithm{jose.ES256},
		keys: jwks.New(jwks.Options{Issuer: f.Issuer, Text: f.Keys, Log: log}),
	}
}

// user turns a verified token of the bridge into one of its user's issuer.
func (i *issuer) user(t *Token) error {
	said, over, err := i.o.Front.Open(t.Claims)
	if err == nil {
		t.Claims, err = object(said)
	}
	if err != nil {
		return refuse(Invalid, i.o.URL, "the token: %v", err)
	}
	if t.over = over; over() {
		return refuse(Invalid, i.o.URL, "the login of the token has ended: sign in again")
	}
	t.Issuer = i.users
	return nil
}

// Identify verifies an ID token that an issuer has issued to a client, and returns its claims (OpenID
// Connect Core §3.1.3.7). It checks no nonce if nonce is empty.
func (v *Verifier) Identify(ctx context.Context, from, raw, client, nonce string) (claims gjson.Result, err error) {
	i := v.issuers[from]
	if i == nil {
		return claims, errors.New("there is no such issuer")
	}
	no := func(why string) (gjson.Result, error) { return gjson.Result{}, errors.New("the ID token: " + why) }
	head, body, err := split(raw)
	if err != nil {
		return no("it is not a JSON Web Token")
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
		return no("its signature algorithm is not allowed for its issuer")
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
		return no("its iss is another issuer")
	case !ok || !slices.Contains(aud, client) || azp.Exists() && azp.Str != client || len(aud) > 1 && !azp.Exists():
		return no("its aud or azp is another client")
	case nonce != "" && member(claims, "nonce").Str != nonce:
		return no("its nonce is that of another sign-in")
	case sub.Type != gjson.String || !nameable(sub.Str):
		return no("it names no user: sub must be text of 1 to 256 bytes without control characters")
	}
	return claims, nil
}
