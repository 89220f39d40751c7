package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// Clients of the stateless era are served under every URL at which there is Streamable HTTP, and their subscriptions end
// with the server, each with its result (R-094, R-145, C4).
func TestModernClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := config.Default(), &wiretest.Modern{}
		c.Servers = append(c.Servers, config.DefaultServer("one", ""))
		s := build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
			return backend{Adapter: m, transport: func() string { return "stdio" }}
		})
		site := wiretest.NewSiteFrom(t, s.http)
		ask := func(path, method, params string) *wiretest.Reply {
			return site.Do("POST", path, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, method, params),
				"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method)
		}
		var open []*wiretest.Reply
		for _, path := range []string{"/mcp", "/one/mcp", "/sse", "/one/sse"} {
			if r := ask(path, "server/discover", "").Wait(); r.Status() != 200 || !strings.Contains(r.Body(), `"supportedVersions":["2026-07-28","2025-11-25"`) || r.Header("Mcp-Session-Id") != "" {
				t.Errorf("discover at %s = %d %s", path, r.Status(), r.Body())
			}
			if r := ask(path, "ping", "").Wait(); r.Status() != 404 || !strings.Contains(r.Body(), `"id":7,"error":{"code":-32601`) {
				t.Errorf("ping at %s = %d %s", path, r.Status(), r.Body())
			}
			open = append(open, ask(path, "subscriptions/listen", `"notifications":{},`))
		}
		synctest.Wait()
		began := time.Now()
		s.Close(context.Background())
		for _, r := range open {
			e := r.Wait().Events()
			if len(e) != 2 || !strings.Contains(e[0].Data, "acknowledged") || !strings.Contains(e[1].Data, `"id":7,"result"`) || r.Err() != nil {
				t.Errorf("a subscription = %+v, %v", e, r.Err())
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
	})
}
