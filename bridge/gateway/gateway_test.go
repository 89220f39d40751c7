package gateway

import (
	"context"
	"testing"
)

// What an address offers is what its server says, else what the bridge does; all
// servers as one go by the bridge.
func TestOffersModern(t *testing.T) {
	for _, tc := range []struct {
		all, own Offer
		alone    bool
		asked    string
		want     bool
	}{
		{"", "", false, "one", true},
		{"", "", false, "", true},
		{OfferLegacy, "", false, "one", false},
		{OfferLegacy, "", false, "", false},
		{OfferLegacy, OfferAll, false, "one", true},
		{OfferLegacy, OfferAll, false, "", false},
		{OfferAll, OfferLegacy, false, "one", false},
		{OfferAll, OfferLegacy, false, "two", true},
		{OfferAll, OfferLegacy, false, "", true},
		{OfferAll, OfferLegacy, true, "", false},
		{OfferLegacy, OfferAll, true, "", true},
	} {
		o := Options{Offer: tc.all, Servers: []ServerOptions{{Name: "one", Adapter: &fake{}, ServerSettings: ServerSettings{Offer: tc.own}}}}
		if !tc.alone {
			o.Servers = append(o.Servers, ServerOptions{Name: "two", Adapter: &fake{}})
		}
		g := newGateway(o)
		if got := g.OffersModern(tc.asked); got != tc.want {
			t.Errorf("OffersModern(%q) = %v with %+v", tc.asked, got, tc)
		}
		g.Close(context.Background())
	}
}
