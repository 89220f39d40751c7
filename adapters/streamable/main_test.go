package streamable

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a bridge to one server and the site that publishes it.
type rig struct {
	*wiretest.Site
	t testing.TB
	g gateway.Gateway
	d *Downstream
	s *wiretest.Server
}

// newRig publishes two servers that are the same: fake at /mcp and other at
// /other/mcp.
func newRig(t testing.TB, s *wiretest.Server, bo gateway.Options, o Options) *rig {
	r := publish(t, s, bo, o)
	r.s = s
	return r
}

func publish(t testing.TB, a bridge.Adapter, bo gateway.Options, o Options) *rig {
	var bounds limits.Options // of the first, if there are any
	if len(bo.Servers) > 0 {
		bounds = bo.Servers[0].Limits
	}
	off := breaker.Options{Off: true} // servers fail here as often as it takes
	bo.Servers = []gateway.ServerOptions{{Name: "fake", Adapter: a, ServerSettings: gateway.ServerSettings{Limits: bounds, Breaker: off}}, {Name: "other", Adapter: a, ServerSettings: gateway.ServerSettings{Breaker: off}}}
	bo.Log = slog.New(slog.DiscardHandler)
	o.Log = bo.Log
	r := &rig{t: t, g: gateway.New(bo)}
	r.d = New(r.g, o)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, q *http.Request) { r.d.Serve("fake", w, q) })
	mux.HandleFunc("/other/mcp", func(w http.ResponseWriter, q *http.Request) { r.d.Serve("other", w, q) })
	r.Site = wiretest.NewSite(t, mux)
	t.Cleanup(func() {
		r.g.Close(context.Background())
		r.d.Close()
		r.d.mu.RLock()
		defer r.d.mu.RUnlock()
		if n := len(r.d.peers); n > 0 {
			t.Errorf("%d peers are left", n)
		}
		if n := len(r.d.listening); n > 0 {
			t.Errorf("%d subscriptions are left", n)
		}
		if !r.g.Room("").Reserve(int(512<<20)) && bo.MaxBytes == 0 {
			t.Error("bytes are reserved still")
		}
	})
	return r
}

// run runs f in a bubble.
func run(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, &wiretest.Server{}, gateway.Options{}, Options{})) })
}

// client is one session.
type client struct {
	*rig
	id string
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`

// begin starts a session of that revision.
func (r *rig) begin(revision string) *client {
	r.t.Helper()
	a := r.Do("POST", "/mcp", fmt.Sprintf(initialize, revision)).Wait()
	c := &client{rig: r, id: a.Header("Mcp-Session-Id")}
	if a.Status() != 200 || c.id == "" {
		r.t.Fatalf("initialize = %d %s", a.Status(), a.Body())
	}
	if a := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).Wait(); a.Status() != 202 || a.Body() != "" {
		r.t.Fatalf("initialized = %d %q, want 202 and nothing", a.Status(), a.Body())
	}
	return c
}

func (c *client) post(body string, header ...string) *wiretest.Reply {
	return c.Do("POST", "/mcp", body, append([]string{"Mcp-Session-Id", c.id}, header...)...)
}

func (c *client) get(header ...string) *wiretest.Reply {
	return c.Do("GET", "/mcp", "", append([]string{"Mcp-Session-Id", c.id}, header...)...)
}

// call starts a call of a tool.
func (c *client) call(id, tool, args string) *wiretest.Reply {
	return c.post(call(id, tool, args))
}

func call(id, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"tok"}}}`, id, tool, args)
}

// TestDialogues plays what clients and bridge say to each other.
func TestDialogues(t *testing.T) {
	wiretest.Play(t, "testdata/*.txtar", func(t *testing.T, s *wiretest.Server) *wiretest.Site {
		return newRig(t, s, gateway.Options{}, Options{}).Site
	})
}

// TestLegacyDialogues plays them where legacy revisions only are offered.
func TestLegacyDialogues(t *testing.T) {
	wiretest.Play(t, "testdata/legacy/*.txtar", func(t *testing.T, s *wiretest.Server) *wiretest.Site {
		return newRig(t, s, gateway.Options{Offer: gateway.OfferLegacy}, Options{}).Site
	})
}
