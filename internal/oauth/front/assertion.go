package front

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/jwks"
)

const (
	maxAssertion     = 16 << 10 // bytes
	maxAssertionLife = 10 * time.Minute
	maxAssertionID   = 256 // bytes of its jti
	assertionSkew    = 30 * time.Second
)

// assertedClient returns the client that an assertion names, without verifying it; empty if text is no assertion.
func assertedClient(text string) string {
	if len(text) > maxAssertion {
		return ""
	}
	signed, err := jose.ParseSignedCompact(text, assertionAlgorithms)
	if err != nil {
		return ""
	}
	return gjson.GetBytes(signed.UnsafePayloadWithoutVerification(), "sub").Str
}

var assertionAlgorithms = func() (all []jose.SignatureAlgorithm) {
	for _, name := range assertion.Algorithms {
		all = append(all, jose.SignatureAlgorithm(name))
	}
	return all
}()

// checkAssertion verifies a client's assertion for one of the audiences by the client's keys (RFC 7523 §3). It returns
// the jti and the remaining lifetime of the assertion. For that time the caller must refuse another use of the jti.
func checkAssertion(text, client string, audiences []string, keys *jwks.Fixed) (id string, left time.Duration, err error) {
	if len(text) > maxAssertion {
		return "", 0, errors.New("the assertion must not be longer than 16 KiB")
	}
	signed, err := jose.ParseSignedCompact(text, assertionAlgorithms)
	if err != nil {
		return "", 0, errors.New("the assertion must be a JSON Web Token with a supported algorithm")
	}
	h := signed.Signatures[0].Protected
	if kind, _ := h.ExtraHeaders[jose.HeaderType].(string); !slices.Contains([]string{"", "jwt", "client-authentication+jwt"}, strings.ToLower(kind)) {
		return "", 0, errors.New("the typ of the assertion must be JWT or client-authentication+jwt")
	}
	var payload []byte
	for _, k := range keys.Find(h.KeyID, h.KeyID != "", h.Algorithm) {
		if payload, err = signed.Verify(k.Public); err == nil {
			break
		}
	}
	if payload == nil {
		return "", 0, errors.New("the assertion must be signed by a key of the client")
	}
	var c struct {
		Issuer    string          `json:"iss"`
		Subject   string          `json:"sub"`
		Audience  json.RawMessage `json:"aud"`
		ID        string          `json:"jti"`
		Expires   *float64        `json:"exp"`
		Issued    *float64        `json:"iat"`
		NotBefore *float64        `json:"nbf"`
	}
	if err := json.Unmarshal(payload, &c); err != nil {
		return "", 0, errors.New("the claims of the assertion are malformed")
	}
	var aud []string
	if json.Unmarshal(c.Audience, &aud) != nil {
		aud = make([]string, 1)
		if json.Unmarshal(c.Audience, &aud[0]) != nil {
			return "", 0, errors.New("the assertion must have aud")
		}
	}
	now := time.Now()
	at := func(seconds *float64) time.Time {
		if seconds == nil {
			return now
		}
		return time.UnixMilli(int64(min(max(*seconds, 0), 1e12) * 1000))
	}
	switch {
	case c.Issuer != client || c.Subject != client:
		return "", 0, errors.New("iss and sub of the assertion must be the client_id")
	case !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(audiences, strings.TrimSuffix(a, "/")) }):
		return "", 0, errors.New("aud of the assertion must be this server's issuer or token endpoint")
	case c.Expires == nil || !now.Before(at(c.Expires).Add(assertionSkew)):
		return "", 0, errors.New("the assertion has expired or has no exp")
	case at(c.Expires).Sub(now) > maxAssertionLife:
		return "", 0, errors.New("the assertion must expire within 10 minutes")
	case at(c.Issued).Sub(now) > assertionSkew || at(c.NotBefore).Sub(now) > assertionSkew:
		return "", 0, errors.New("the assertion is not valid yet (iat or nbf)")
	case c.ID == "" || len(c.ID) > maxAssertionID:
		return "", 0, errors.New("the assertion must have a jti of at most 256 bytes")
	}
	return c.ID, at(c.Expires).Add(assertionSkew).Sub(now), nil
}
