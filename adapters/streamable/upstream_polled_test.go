package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// A server whose clients poll learns of each cancelled call, even of a call that is cancelled just as its stream is
// resumed (D0.3).
func TestUpstreamPolledCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int32
		site := wiretest.NewSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var t told
			_ = json.Unmarshal(body, &t)
			switch {
			case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
				w.WriteHeader(http.StatusMethodNotAllowed)
			case t.Method == "initialize":
				plainly(w, string(t.ID), strings.ReplaceAll(agreed, "%q", `"2025-11-25"`))
			case t.Method == "notifications/cancelled":
				cancelled.Add(1)
				w.WriteHeader(http.StatusAccepted)
			case r.Method == http.MethodPost && t.ID == nil, r.Method == http.MethodDelete:
				w.WriteHeader(http.StatusAccepted)
			default: // a call, or the stream of one: ask again
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "id: 1\ndata:\n\n")
			}
		}))
		dial := func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }
		u, err := NewUpstream("fake", remote.Config{URL: "http://fake/mcp", Proxy: "none", Dial: dial}, conn.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(u.Close)
		up := adaptertest.Open(t, u, &adaptertest.Client{})
		const calls = 200
		for range calls {
			ctx, stop := context.WithTimeout(t.Context(), 3*defaultRetry)
			adaptertest.Call(ctx, t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			stop()
			time.Sleep(time.Second)
		}
		if n := cancelled.Load(); n != calls {
			t.Errorf("the server was told of %d of %d cancelled calls", n, calls)
		}
	})
}
