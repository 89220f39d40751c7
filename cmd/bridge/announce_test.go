package main

import (
	"net"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
)

// At its start, the bridge says where the console is, if there is one (O-014).
func TestAnnounceConsole(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*config.Config)
		at     string
		json   bool
		want   string // empty: nothing
	}{
		{"on this machine", nil, "127.0.0.1:8808", false, "console: http://127.0.0.1:8808/ui\n"},
		{"below a path, over TLS", func(c *config.Config) { c.BasePath, c.TLS.CertFile = "/tools", "a" }, "[::1]:9000", false, "console: https://[::1]:9000/tools/ui\n"},
		{"switched off", func(c *config.Config) { c.Console = config.ConsoleOff }, "127.0.0.1:8808", false, ""},
		{"with keys", func(c *config.Config) { c.Access = []config.Access{{Name: "ops"}} }, "127.0.0.1:8808", false, ""},
		{"with keys, switched on, on every network", func(c *config.Config) {
			c.Listen, c.Console, c.Access = "0.0.0.0:8808", config.ConsoleOn, []config.Access{{Name: "ops"}}
		}, "0.0.0.0:8808", false, "console: http://127.0.0.1:8808/ui\n"},
		{"for programs", nil, "127.0.0.1:8808", true, ""},
		{"at an address of its own", func(c *config.Config) {
			c.Listen, c.ConsoleListen = "0.0.0.0:8808", "127.0.0.1:8809"
		}, "0.0.0.0:8808", false, "console: http://127.0.0.1:8809/ui\n"},
		{"at an address of its own, for programs", func(c *config.Config) { c.ConsoleListen = "127.0.0.1:8809" }, "127.0.0.1:8808", true, `"console_listen":"127.0.0.1:8809"`},
		{"at an address of its own, switched off", func(c *config.Config) {
			c.Console, c.ConsoleListen = config.ConsoleOff, "127.0.0.1:8809"
		}, "127.0.0.1:8808", false, ""},
	} {
		c := config.Default()
		c.Servers = []config.Server{config.DefaultServer("files", "")}
		if tc.change != nil {
			tc.change(&c)
		}
		at, err := net.ResolveTCPAddr("tcp", tc.at)
		if err != nil {
			t.Fatal(err)
		}
		var operators net.Addr
		if c.ConsoleListen != "" {
			if operators, err = net.ResolveTCPAddr("tcp", c.ConsoleListen); err != nil {
				t.Fatal(err)
			}
		}
		var out strings.Builder
		announce(&out, &c, at, operators, tc.json)
		if got := out.String(); tc.want == "" && strings.Contains(got, "console") || !strings.Contains(got, tc.want) || !strings.Contains(got, "/mcp") {
			t.Errorf("%s: %q, want %q in it", tc.name, got, tc.want)
		}
	}
}
