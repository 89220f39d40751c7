package stateless_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/stateless"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Requests to a modern server pass unchanged but for the client's handle, and results get what each must have.
func TestRelay(t *testing.T) {
	const discover = `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	for _, tc := range []struct{ name, method, params, answer, want string }{
		{"call", "tools/call", `{"name":"x"}`, `"result":{"resultType":"complete","content":[]}`, `"result":{"resultType":"complete","content":[]}`},
		{"without a kind", "tools/call", `{"name":"x"}`, `"result":{"content":[]}`, `"result":{"resultType":"complete","content":[]}`},
		{"with a handle of the bridge", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":"l"}}`, `"result":{}`, `"result":{"resultType":"complete"}`},
		{"invalid handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":5}}`, "", `dev.mcp-bridge/lane must be a string`},
		{"empty handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge/lane":""}}`, "", `"code":-32602`},
		{"endless handle", "tools/call", `{"name":"x","_meta":{"dev.mcp-bridge\/lane":"` + strings.Repeat("x", 257) + `"}}`, "", `"code":-32602`},
		{"contradiction", "tools/call", `{"name":"contradiction"}`, "", `"message":"contradiction"`},
		{"legacy error code", "resources/read", `{"uri":"a:b"}`, `"error":{"code":-32002,"message":"no"}`, `"code":-32602,"message":"no","data":{"uri":"a:b"}`},
		{"discover", "server/discover", `{}`, `"result":{"supportedVersions":["x"],"capabilities":{"tools":{}}}`, discover},
		{"discover that lacks fields", "server/discover", `{}`, `"result":{"supportedVersions":["x"]}`, `"cacheScope":"private","ttlMs":0,"capabilities":{},"resultType":"complete"`},
		{"discover fails", "server/discover", `{}`, `"error":{"code":-32601,"message":"no"}`, discover},
		{"state of the server, without principals", "tools/call", `{"name":"x","requestState":"s"}`, `"result":{"resultType":"input_required","requestState":"t"}`, `"requestState":"t"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, era.LatestModern, `{"tools":{}}`, stateless.Options{})
				s.serve = func(r *bridge.Request) *jsonrpc.Message {
					if want := "dev.mcp-bridge/lane"; strings.Contains(string(r.Whole()), want) {
						t.Errorf("the server got %s", r.Whole())
					}
					r.Back.Notify(bridgetest.Notification(t, "notifications/vendor", `{}`))
					r.Back.Notify(bridgetest.Notification(t, "notifications/message", `{"level":"error","data":"not wanted"}`))
					r.Back.Gone(nil)
					return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`)
				}
				v := s.ask("", `{}`, tc.method, tc.params)
				bridgetest.Contains(t, v.answer(), tc.want)
				if tc.answer != "" {
					same(t, "the client got", strings.Join(v.Got(), "\n"), "notifications/vendor {}")
					same(t, "the cache heard", strings.Join(s.heard, "\n"), "notifications/vendor\nnotifications/message")
				}
				if g := s.pool.Server(); g != nil || s.pool.Notify(t.Context(), nil) != nil {
					t.Error("a pool has a greeting")
				}
				s.end()
			})
		})
	}
}
