package toolchain

import "testing"

func TestVulnerable(t *testing.T) {
	for v, want := range map[string]bool{
		"go1.25.14":           true,
		"go1.26":              true,
		"go1.26.8":            true,
		"go1.26.8 X:synctest": true,
		"go1.26.9":            false,
		"go1.26.11":           false,
		"go1.27rc1":           true,
		"go1.27.0":            true,
		"go1.27.1":            true,
		"go1.27.2":            false,
		"go1.28rc1":           false,
		"devel go1.28-abcd":   false,
	} {
		if got := Vulnerable(v); got != want {
			t.Errorf("Vulnerable(%q) = %v, want %v", v, got, want)
		}
	}
}
