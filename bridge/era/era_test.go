package era_test

import (
	"slices"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/era"
)

//
func TestNegotiate(t *testing.T) {
	for _, tc := range []struct {
		asked, want    string
		legacy, modern bool
	}{
		{era.Rev20241105, era.Rev20241105, true, false},
		{era.Rev20250326, era.Rev20250326, true, false},
		{era.Rev20250618, era.Rev20250618, true, false},
		{era.Rev20251125, era.Rev20251125, true, false},
		{era.FirstModern, era.LatestLegacy, false, true},
		{"2027-01-01", era.LatestLegacy, false, true},
		{"2024-10-07", era.Rev20241105, true, false},
		{"2025-11-26", era.LatestLegacy, false, false},
		{"", era.LatestLegacy, false, false},
		{"latest", era.LatestLegacy, false, false},
		{"2025-11-25 ", era.LatestLegacy, false, false},
	} {
		if got := era.Negotiate(tc.asked); got != tc.want {
			t.Errorf("Negotiate(%q) = %q, want %q", tc.asked, got, tc.want)
		}
		if l, m := era.IsLegacy(tc.asked), era.IsModern(tc.asked); l != tc.legacy || m != tc.modern {
			t.Errorf("%q: legacy %t, modern %t, want %t, %t", tc.asked, l, m, tc.legacy, tc.modern)
		}
	}
}

// TestSupported checks that all supported revisions are there, newest first, and of one era each.
func TestSupported(t *testing.T) {
	all := era.Supported()
	if want := append(era.Modern(), era.Legacy()...); !slices.Equal(all, want) || all[0] != era.LatestModern || len(all) != 5 || len(era.Legacy()) != 4 {
		t.Errorf("Supported = %q, want %q", all, want)
	}
	for i, rev := range all {
		if era.IsModern(rev) == era.IsLegacy(rev) || i > 0 && all[i-1] <= rev {
			t.Errorf("Supported = %q: %s", all, rev)
		}
	}
	all[0] = "changed"
	era.Modern()[0] = "changed"
	era.Legacy()[0] = "changed"
	if era.Supported()[0] != era.LatestModern || era.Modern()[0] != era.LatestModern || era.Legacy()[0] != era.LatestLegacy {
		t.Error("a caller's change reaches the next")
	}
}
