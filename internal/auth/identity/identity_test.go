package identity_test

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// until is without fractions of a second, as instances write it.
var until = time.Unix(1_900_000_000, 0)

// An identity arrives at another instance as it was, beside the client's own headers. Nothing
// that a client writes is taken for a part of it.
func TestPack(t *testing.T) {
	claims := map[string][]string{"sub": {"ann"}, "SUB": {"other"}, "https://example.com/roles": {"a,b"}, "\u00fc": {"x"}}
	subject := &identity.Subject{Token: "t.o.k", Issuer: "https://idp.example.com", Principal: "staff/ann b", Until: until}
	forged := http.Header{
		"X-Tenant": {"one", "two"}, "X-Bridge-Claim-737562": {"root"}, "X-Bridge-Claim-Token": {"1 a b c"},
		"X-Bridge-Claim-Header-X-Bridge-Claim-737562": {"twice"}, "X-Bridge-Claim-": {"short"},
	}
	for name, id := range map[string]*identity.Identity{
		"none": nil, "claims": identity.New(claims, nil), "token": identity.New(nil, subject), "both": identity.New(claims, subject),
	} {
		for _, h := range []http.Header{nil, {}, {"X-Tenant": {"one"}}, forged} {
			before := maps.Clone(h)
			packed := identity.Pack(h, id)
			sent := maps.Clone(packed)
			got, of := identity.Unpack(packed)
			if !reflect.DeepEqual(h, before) || !reflect.DeepEqual(packed, sent) {
				t.Errorf("%s: headers were changed: %v, %v", name, h, packed)
			}
			if len(got) != len(h) || len(h) > 0 && !reflect.DeepEqual(got, h) {
				t.Errorf("%s: headers arrive as %v, want %v", name, got, h)
			}
			for claim := range claims {
				if !slices.Equal(identity.Claim(of, claim), identity.Claim(id, claim)) {
					t.Errorf("%s: the claim %s arrives as %v", name, claim, identity.Claim(of, claim))
				}
			}
			if !reflect.DeepEqual(identity.SubjectOf(of), identity.SubjectOf(id)) {
				t.Errorf("%s: the token arrives as %v", name, identity.SubjectOf(of))
			}
		}
	}
}

// Instances of the version before write the same.
func TestWire(t *testing.T) {
	wire := http.Header{
		"X-Bridge-Claim-737562": {"ann"}, "X-Bridge-Claim-Token": {"1900000000 https://idp.example.com t.o.k staff/ann b"}, "X-Tenant": {"one"},
	}
	h, id := identity.Unpack(wire)
	if len(h) != 1 || !slices.Equal(identity.Claim(id, "sub"), []string{"ann"}) {
		t.Errorf("headers %v, claim %v", h, identity.Claim(id, "sub"))
	}
	if s := identity.SubjectOf(id); s == nil || s.Token != "t.o.k" || s.Principal != "staff/ann b" || !s.Until.Equal(until) {
		t.Errorf("token %v", s)
	}
	if back := identity.Pack(h, id); !reflect.DeepEqual(back, wire) {
		t.Errorf("it is written as %v, want %v", back, wire)
	}
	for _, bad := range []string{"", "x", "x https://idp.example.com t p", "1900000000 https://idp.example.com t"} {
		if _, id := identity.Unpack(http.Header{"X-Bridge-Claim-Token": {bad}}); identity.SubjectOf(id) != nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
}
