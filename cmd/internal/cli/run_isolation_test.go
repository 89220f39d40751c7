package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config"
)

// Whoever starts the bridge for one server is told what modern clients share,
// unless the way of sharing says it itself.
func TestIsolation(t *testing.T) {
	for _, tc := range []struct {
		share, offer string
		stdio, key   bool
		want         string // empty means nothing
	}{
		{share: config.ShareSession, stdio: true, want: "share one process; --share call"},
		{share: config.ShareSession, stdio: true, key: true, want: "share one process per key; --share call"},
		{share: config.ShareSession, want: "share one connection; --share call"},
		{share: config.SharePrincipal, want: "--share call"},
		{share: config.ShareCall},
		{share: config.ShareAll},
		{share: config.ShareSession, offer: config.OfferLegacy},
	} {
		s := &config.Server{ServerSettings: config.ServerSettings{Share: gateway.Share(tc.share), Offer: gateway.Offer(tc.offer)}}
		if tc.stdio {
			s.Stdio = &stdio.Config{}
		}
		if got := isolation(s, tc.key); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// It is said after the addresses, which are what people look for first.
func TestRunSaysIsolation(t *testing.T) {
	var out bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	before := ""
	log := &trigger{text: "clients of 2026-07-28 have no sessions", f: func() {
		before = out.String()
		stop()
	}}
	if code := run(ctx, []string{"run", "--log-level", "debug", "--listen", "127.0.0.1:0", "http://127.0.0.1:1/mcp"}, &out, log); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(before, "/mcp (Streamable HTTP)") {
		t.Errorf("before the remark: %q, want the addresses", before)
	}
}
