package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// Whoever starts the bridge for one server is told what modern clients share,
// unless the way of sharing says it itself.
func TestRunSaysIsolation(t *testing.T) {
	const told = "clients of 2026-07-28 have no sessions"
	t.Setenv("BRIDGE_TEST_KEY", "a-key-of-some-length")
	for _, tc := range []struct {
		flags []string
		want  string // empty means nothing
	}{
		{nil, "they all are one caller to the bridge"},
		{[]string{"--token-env", "BRIDGE_TEST_KEY"}, "all that have the key are one caller"},
		{[]string{"--share", "principal"}, "--share call"},
		{[]string{"--share", "call"}, ""},
		{[]string{"--share", "all"}, ""},
		{[]string{"--offer", "legacy"}, ""},
	} {
		var out, log bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		stop()
		args := append(append([]string{"run", "--listen", "127.0.0.1:0"}, tc.flags...), "http://127.0.0.1:1/mcp")
		if code := run(ctx, args, &out, &log); code != 0 {
			t.Errorf("%q: exit code %d, %s", tc.flags, code, log.String())
		}
		if got := strings.Contains(log.String(), told); got != (tc.want != "") || !strings.Contains(log.String(), tc.want) {
			t.Errorf("%q: stderr %s, want %q", tc.flags, log.String(), tc.want)
		}
	}
}
