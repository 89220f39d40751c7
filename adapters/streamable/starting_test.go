package streamable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// The id of a session is good from the moment that its client has it, which is before the
// handshake with a slow server is over: what names it waits for that.
func TestStartingSession(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fails  error
		status int
	}{{"the handshake succeeds", nil, 200}, {"it fails", errors.New("no"), 404}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := make(chan struct{})
				s := &wiretest.Server{Before: func(ctx context.Context) error {
					select {
					case <-ready:
						return tc.fails
					case <-ctx.Done():
						return ctx.Err()
					}
				}}
				r := newRig(t, s, gateway.Options{}, Options{})
				begin := r.Do("POST", "/mcp", fmt.Sprintf(initialize, "2025-11-25"))
				wiretest.Advance(streamAfter)
				synctest.Wait()
				c := &client{rig: r, id: begin.Header("Mcp-Session-Id")}
				if c.id == "" {
					t.Fatalf("the answer to initialize has begun without a session id: %d", begin.Status())
				}
				get, ping := c.get(), c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				foreign := r.Do("GET", "/other/mcp", "", "Mcp-Session-Id", c.id)
				wiretest.Advance(3 * streamAfter)
				synctest.Wait()
				if get.Status() != 0 || ping.Status() != 0 || foreign.Status() != 404 {
					t.Errorf("before the handshake is over: GET %d, POST %d, under the address of another server %d", get.Status(), ping.Status(), foreign.Status())
				}
				close(ready)
				synctest.Wait()
				if get.Status() != tc.status || ping.Wait().Status() != tc.status {
					t.Errorf("afterwards: GET %d, POST %d, want %d", get.Status(), ping.Status(), tc.status)
				}
				if tc.fails != nil {
					return
				}
				c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).Wait()
				s.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				wiretest.Advance(streamAfter)
				synctest.Wait()
				if got := get.Take(); !strings.Contains(got, "list_changed") {
					t.Errorf("the stream has %q", got)
				}
				get.Leave()
			})
		})
	}
}
