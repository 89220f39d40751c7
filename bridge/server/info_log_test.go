package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/config"
)

// The log at level info names clients that come and go, and why a page cannot call. It has no line for each
// successful call, nor for each request of a flood.
func TestInfoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRigLog(t, slog.New(slog.NewTextHandler(&log, nil)), func(c *config.Config) { c.AllowedHosts = []string{"good.example.com"} }, "one")
		id := r.begin("/mcp")
		for range 10 {
			r.Do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id).Wait()
		}
		for range 100 {
			q := from("198.51.100.7:1234", "127.0.0.1:8808", "POST", "/mcp", "Origin", "https://evil.example.com")
			if a := r.answer(q); a.Code != 403 || !strings.Contains(a.Body.String(), "allowed_origins") || !strings.Contains(a.Body.String(), "--allow-origin") {
				t.Fatalf("a foreign page gets %d %s", a.Code, a.Body)
			}
		}
		r.Do("DELETE", "/mcp", "", "Mcp-Session-Id", id).Wait()
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		for i, want := range []string{
			`level=INFO msg="session began" server=one client="c 1" revision=2025-11-25`,
			`level=INFO msg="request refused" origin=https://evil.example.com from=198.51.100.7`,
			`level=INFO msg="session ended" server=one client="c 1" reason="session was ended by the client"`,
		} {
			if i >= len(lines) || len(lines) != 3 || !strings.Contains(lines[i], want) {
				t.Fatalf("the log is\n%s\nwant %s in line %d of 3", &log, want, i+1)
			}
		}
	})
}
