// Package identity holds what servers get of a caller's token.
package identity

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Identity holds the claims of a caller's token that the bridge sends to servers (I-057), and the token itself if the
// bridge exchanges it for a token of a server (I-303). It is immutable. It is nil for a caller without a token.
// Adapters of other modules can pass it on, but not read it.
type Identity struct {
	claims  map[string][]string // the text of each claim, by the claim's name
	subject *Subject
}

// Subject is a caller's token that the bridge has verified, and exchanges for a token of a server.
type Subject struct {
	Token     string
	Issuer    string
	Principal string    // the caller
	Until     time.Time // when the token expires
}

// New returns an identity. Each claim has one text. subject may be nil.
func New(claims map[string][]string, subject *Subject) *Identity { return &Identity{claims, subject} }

// Claim returns the text of a claim in the form of the values of a header; nil if id does not have the claim.
func Claim(id *Identity, name string) []string {
	if id == nil {
		return nil
	}
	return id.claims[name]
}

// SubjectOf returns the token to exchange; nil if there is none.
func SubjectOf(id *Identity) *Subject {
	if id == nil {
		return nil
	}
	return id.subject
}

// WithoutClaims returns an identity that holds the token alone; nil if there is no token.
func WithoutClaims(id *Identity) *Identity {
	if id == nil || id.subject == nil {
		return nil
	}
	return &Identity{subject: id.subject}
}

// WithoutToken returns an identity that holds the claims alone; nil if there are no claims.
func WithoutToken(id *Identity) *Identity {
	if id == nil || len(id.claims) == 0 {
		return nil
	}
	return &Identity{claims: id.claims}
}

// The headers in which an identity goes from one instance of the bridge to another, and into the store of sessions.
// Instances of neighbouring versions must be able to read them.
const (
	prefix     = "X-Bridge-Claim-"  // the name of the claim in hexadecimal follows
	subjectKey = prefix + "Token"   // the fields of a Subject
	escaped    = prefix + "Header-" // the name of a client's header that begins with prefix follows
)

// Pack returns headers that hold the headers h of a client and an identity. It does not change h.
func Pack(h http.Header, id *Identity) http.Header {
	if id == nil && !holdsPacked(h) {
		return h
	}
	out := make(http.Header, len(h)+1)
	for name, values := range h {
		if isPacked(name) { // a client sent a header with such a name
			name = escaped + name
		}
		out[name] = values
	}
	if id == nil {
		return out
	}
	for name, text := range id.claims {
		out[http.CanonicalHeaderKey(prefix+hex.EncodeToString([]byte(name)))] = text
	}
	if s := id.subject; s != nil {
		out[subjectKey] = []string{strings.Join([]string{strconv.FormatInt(s.Until.Unix(), 10), s.Issuer, s.Token, s.Principal}, " ")}
	}
	return out
}

func isPacked(name string) bool { return strings.HasPrefix(name, prefix) }

func holdsPacked(h http.Header) bool {
	for name := range h {
		if isPacked(name) {
			return true
		}
	}
	return false
}

// Unpack returns the arguments of the Pack that made packed. It does not change packed.
func Unpack(packed http.Header) (h http.Header, id *Identity) {
	if !holdsPacked(packed) {
		return packed, nil
	}
	h, id = make(http.Header, len(packed)), &Identity{claims: map[string][]string{}}
	for name, values := range packed {
		own, client := strings.CutPrefix(name, escaped)
		key, written := strings.CutPrefix(name, prefix)
		switch {
		case client:
			h[own] = values
		case !written:
			h[name] = values
		case name == subjectKey:
			id.subject = parseSubject(values)
		default:
			if claim, err := hex.DecodeString(key); err == nil && len(values) == 1 {
				id.claims[string(claim)] = values
			}
		}
	}
	if len(id.claims) == 0 && id.subject == nil {
		return h, nil
	}
	return h, id
}

// parseSubject returns nil for values that Pack did not write.
func parseSubject(values []string) *Subject {
	if len(values) != 1 {
		return nil
	}
	parts := strings.SplitN(values[0], " ", 4) // only the last part may have spaces
	if len(parts) != 4 {
		return nil
	}
	until, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return nil
	}
	return &Subject{
		Issuer:    parts[1],
		Token:     parts[2],
		Principal: parts[3],
		Until:     time.Unix(until, 0),
	}
}
