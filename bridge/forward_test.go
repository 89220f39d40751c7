package bridge_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// A server gets what its allow-list names, and the caller's token only if it is to exchange it.
func TestForwarded(t *testing.T) {
	id := identity.New(map[string][]string{"sub": {"ann"}}, &identity.Subject{Token: "t"})
	tenant, user, token := bridge.Forward{From: "X-Tenant", To: "Tenant"}, bridge.Forward{Claim: "sub", To: "X-User"}, bridge.Forward{Token: true}
	h := http.Header{"X-Tenant": {"one"}, "X-User": {"root"}, "Sub": {"root"}, "": {"root"}}
	for _, tc := range []struct {
		name  string
		h     http.Header
		id    *identity.Identity
		list  []bridge.Forward
		want  http.Header
		shown bool
	}{
		{"no list", h, id, nil, nil, false},
		{"no client", nil, nil, []bridge.Forward{tenant, user, token}, nil, false},
		{"header", h, id, []bridge.Forward{tenant}, http.Header{"Tenant": {"one"}}, false},
		{"claim", h, id, []bridge.Forward{user}, http.Header{"X-User": {"ann"}}, false},
		{"token", h, id, []bridge.Forward{token}, http.Header{}, true},
		{"all", h, id, []bridge.Forward{tenant, token, user}, http.Header{"Tenant": {"one"}, "X-User": {"ann"}}, true},
		{"key", h, nil, []bridge.Forward{tenant, token, user}, http.Header{"Tenant": {"one"}}, false},
		{"identity alone", nil, id, []bridge.Forward{user}, http.Header{"X-User": {"ann"}}, false},
	} {
		got, to := bridge.Forwarded(tc.h, tc.id, tc.list)
		if !maps.EqualFunc(got, tc.want, slices.Equal) || (got == nil) != (tc.want == nil) || (identity.SubjectOf(to) != nil) != tc.shown || identity.Claim(to, "sub") != nil {
			t.Errorf("%s: %v, token %t, want %v, %t", tc.name, got, identity.SubjectOf(to) != nil, tc.want, tc.shown)
		}
	}
}
