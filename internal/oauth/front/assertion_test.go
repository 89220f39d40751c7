package front

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

func keySet(t *testing.T, keys ...*authtest.Key) *jwks.Fixed {
	t.Helper()
	var all []any
	for _, k := range keys {
		all = append(all, k.JWK(t))
	}
	text, err := json.Marshal(map[string]any{"keys": all})
	if err != nil {
		t.Fatal(err)
	}
	f, err := jwks.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Valid assertions of a client (RFC 7523 §3).
func TestCheckAssertion(t *testing.T) {
	const client, issuer = "https://app.example.com/client.json", "https://mcp.example.com"
	synctest.Test(t, func(t *testing.T) {
		key, second, stranger := authtest.NewKey(t, "1", "ES256"), authtest.NewKey(t, "2", "EdDSA"), authtest.NewKey(t, "1", "ES256")
		keys := keySet(t, key, second)
		now := time.Now().Unix()
		claims := func(changes ...any) authtest.Claims {
			c := authtest.Claims{"iss": client, "sub": client, "aud": issuer, "jti": "one", "iat": now, "exp": now + 60}
			for i := 0; i+1 < len(changes); i += 2 {
				if name := changes[i].(string); changes[i+1] == nil {
					delete(c, name)
				} else {
					c[name] = changes[i+1]
				}
			}
			return c
		}
		typed := authtest.Claims{"typ": "JWT"}
		for name, text := range map[string]string{
			"good": key.Sign(t, typed, claims()), "for the token endpoint": key.Sign(t, typed, claims("aud", []string{"x", issuer + "/token"})),
			"a slash more": key.Sign(t, typed, claims("aud", issuer+"/")), "without a type": key.Sign(t, authtest.Claims{"typ": nil}, claims()),
			"of its own type": key.Sign(t, authtest.Claims{"typ": "client-authentication+jwt"}, claims()), "the other key": second.Sign(t, typed, claims()),
			"without the name of the key": second.Sign(t, authtest.Claims{"typ": "JWT", "kid": nil}, claims()), "just expired": key.Sign(t, typed, claims("exp", now-29)),
			"a clock ahead": key.Sign(t, typed, claims("iat", now+29, "nbf", now+29)), "without iat": key.Sign(t, typed, claims("iat", nil)),
		} {
			if id, left, err := checkAssertion(text, client, []string{issuer, issuer + "/token"}, keys); err != nil || id != "one" || left <= 0 || left > 90*time.Second {
				t.Errorf("%s: %q %v %v", name, id, left, err)
			}
			if got := assertedClient(text); got != client {
				t.Errorf("%s: it is of %q", name, got)
			}
		}
		unsigned := authtest.Encode(t, authtest.Claims{"alg": "none"}) + "." + authtest.Encode(t, claims()) + "."
		for name, tc := range map[string]struct{ text, want string }{
			"nothing": {"", "must be a JSON Web Token"}, "alg none": {unsigned, "must be a JSON Web Token"}, "too long": {strings.Repeat("x", 17<<10), "16 KiB"},
			"a key of another": {stranger.Sign(t, typed, claims()), "signed by a key of the client"}, "an access token": {key.Sign(t, nil, claims()), "the typ of the assertion"},
			"iss": {key.Sign(t, typed, claims("iss", "x")), "must be the client_id"}, "sub": {key.Sign(t, typed, claims("sub", "x")), "must be the client_id"},
			"aud": {key.Sign(t, typed, claims("aud", "https://idp.example.com")), "aud of the assertion must be"}, "no aud": {key.Sign(t, typed, claims("aud", nil)), "must have aud"},
			"aud is an object": {key.Sign(t, typed, claims("aud", authtest.Claims{"a": issuer})), "must have aud"},
			"expired":          {key.Sign(t, typed, claims("exp", now-31)), "expired"}, "no exp": {key.Sign(t, typed, claims("exp", nil)), "expired"},
			"for an hour": {key.Sign(t, typed, claims("exp", now+3600)), "10 minutes"}, "for ever": {key.Sign(t, typed, claims("exp", 1e300)), "10 minutes"},
			"tomorrow": {key.Sign(t, typed, claims("nbf", now+86400)), "not valid yet"}, "no jti": {key.Sign(t, typed, claims("jti", nil)), "must have a jti"},
			"a long jti": {key.Sign(t, typed, claims("jti", strings.Repeat("x", 257))), "must have a jti"}, "claims that are none": {key.Sign(t, typed, []string{"x"}), "are malformed"},
		} {
			if _, _, err := checkAssertion(tc.text, client, []string{issuer}, keys); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", name, err, tc.want)
			}
		}
	})
}

// checkAssertion accepts the bridge's own assertions.
func TestCheckOwnAssertion(t *testing.T) {
	key := authtest.NewKey(t, "1", "ES256")
	form := url.Values{}
	if err := (&assertion.Key{File: key.File(t), ID: "1"}).AddTo(form, "bridge", "https://idp.example.com", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := checkAssertion(form.Get("client_assertion"), "bridge", []string{"https://idp.example.com"}, keySet(t, key)); err != nil || form.Get("client_assertion_type") != assertion.Type {
		t.Errorf("%v %v", form, err)
	}
}
