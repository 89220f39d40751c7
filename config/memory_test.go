package config

import (
	"strings"
	"testing"
)

// In a small container, messages must not take all of the memory: the kernel would end the bridge for
// all its callers.
func TestFit(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		memory            int64
		file              string
		message, inFlight Size
		warnings          string // all texts
	}{
		{0, "", 16 * mb, 512 * mb, ""},
		{4096 * mb, "", 16 * mb, 512 * mb, ""},
		{2048 * mb, "", 16 * mb, 512 * mb, ""},
		{256 * mb, "", 16 * mb, 64 * mb, ""},
		{128 * mb, "", 16 * mb, 32 * mb, ""},
		{100 * mb, "", 25 * mb / 2, 25 * mb, ""},
		{40*mb + 4711, "", 5 * mb, 10 * mb, ""},
		{40 * mb, "max_message: 8MiB\n", 8 * mb, 10 * mb, ""},
		{128 * mb, "max_bytes_in_flight: 20MiB\n", 16 * mb, 20 * mb, ""},
		{128 * mb, "max_bytes_in_flight: 512MiB\n", 16 * mb, 512 * mb, "bridge.yaml:1: max_bytes_in_flight is 512MiB, more than a quarter of the 128MiB of memory"},
		{128 * mb, "max_message: 40MiB\n", 40 * mb, 40 * mb, "bridge.yaml:1: max_message is 40MiB, more than"},
	} {
		got := parsed(t, c.file+"servers: { a: { http: https://example.com/mcp } }\n", nil)
		got.Fit(c.memory)
		if text := strings.Join(got.Warnings, "\n"); got.MaxMessage != c.message || got.MaxInFlight != c.inFlight || !strings.HasPrefix(text, c.warnings) || (text == "") != (c.warnings == "") {
			t.Errorf("%d of memory, %q: max_message %v, max_bytes_in_flight %v, warnings %q", c.memory, c.file, got.MaxMessage, got.MaxInFlight, text)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%d of memory, %q: %v", c.memory, c.file, err)
		}
	}
}
