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

// Front holds the settings to verify the tokens that the bridge itself issues to users of an issuer. Such a token
// counts as a token of that issuer, with the claims of the user's ID token.
type Front struct {
	// Issuer is the iss of the bridge's own tokens.
	Issuer string
	// Keys are the public keys of these tokens, as a JSON Web Key Set.
	Keys []byte
	// Open returns the current claims of the user of a verified token, as a JSON object. over reports whether the login
	// has ended; it is called each time that the token is used.
	Open func(claims gjson.Result) (said []byte, over func() bool, err error)
}

// issuer returns the state for the bridge's own tokens, issued to users of another issuer.
func (f *Front) issuer(of Issuer, log *slog.Logger) *issuer {
	i := Issuer{
		URL:     f.Issuer,
		Implies: of.Implies,
		Skew:    of.Skew,
		Front:   f,
	}
	return &issuer{
		o:          i,
		usersOf:    of.URL,
		algorithms: []jose.SignatureAlgorithm{jose.ES256},
		keys: jwks.New(jwks.Options{
			Issuer: f.Issuer,
			Text:   f.Keys,
			Log:    log,
		}),
	}
}

// toUser turns a verified token of the bridge into a token of its user's issuer.
func (i *issuer) toUser(t *Token) error {
	claims, over, err := i.o.Front.Open(t.Claims)
	if err == nil {
		t.Claims, err = object(claims)
	}
	if err != nil {
		return refuse(Invalid, i.o.URL, "the token: %v", err)
	}
	if t.loginEnded = over; over() {
		return refuse(Invalid, i.o.URL, "the login of the token has ended: sign in again")
	}
	t.Issuer = i.usersOf
	return nil
}

// Identify verifies an ID token that an issuer has issued to a client, and returns its claims (OpenID Connect Core
// §3.1.3.7). An empty nonce is not checked.
func (v *Verifier) Identify(ctx context.Context, from, raw, client, nonce string) (claims gjson.Result, err error) {
	i := v.issuers[from]
	if i == nil {
		return claims, errors.New("there is no such issuer")
	}
	fail := func(why string) (gjson.Result, error) { return gjson.Result{}, errors.New("the ID token: " + why) }
	head, body, err := split(raw)
	if err != nil {
		return fail("it is not a JSON Web Token")
	}
	h, err := readHeader(head)
	if err != nil {
		return fail(err.Error())
	}
	if claims, err = object(body); err != nil {
		return fail(err.Error())
	}
	parsed, err := jose.ParseSignedCompact(raw, i.algorithms)
	if err != nil {
		return fail("its signature algorithm is not allowed for its issuer")
	}
	if _, err := i.signer(ctx, h, parsed, body); err != nil {
		return fail(err.Error())
	}
	if _, err := i.until(claims); err != nil {
		return fail(err.Error())
	}
	aud, ok := list(member(claims, "aud"))
	azp := member(claims, "azp")
	switch sub := member(claims, "sub"); {
	case strings.Contains(h.typ, "at+"):
		return fail("it is an access token")
	case member(claims, "iss").Str != from:
		return fail("its iss is another issuer")
	case !ok || !slices.Contains(aud, client) || azp.Exists() && azp.Str != client || len(aud) > 1 && !azp.Exists():
		return fail("its aud or azp is another client")
	case nonce != "" && member(claims, "nonce").Str != nonce:
		return fail("its nonce is that of another sign-in")
	case sub.Type != gjson.String || !validName(sub.Str):
		return fail("it names no user: sub must be text of 1 to 256 bytes without control characters")
	}
	return claims, nil
}
