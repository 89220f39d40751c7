package cli

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
		announce(&out, &c, at, operators, tc.json, true)
		if got := out.String(); tc.want == "" && strings.Contains(got, "console") || !strings.Contains(got, tc.want) || !strings.Contains(got, "/mcp") {
			t.Errorf("%s: %q, want %q in it", tc.name, got, tc.want)
		}
	}
}

// The configuration to paste has a header for a key only where a rule has one: a client with
// a fixed header does not sign in.
func TestAnnounceHeaders(t *testing.T) {
	key, file, user := config.Access{Name: "ops", Token: "0123456789abcdef"}, config.Access{Name: "dev", TokenFile: "key"}, config.Access{Name: "staff", Users: config.Words{config.AnyUser}}
	signs := []config.OAuth{{Issuer: "https://idp.example.com"}}
	const own, leave = "Clients sign in by themselves", "Clients whose users sign in need no headers"
	for _, tc := range []struct {
		name   string
		access []config.Access
		oauth  []config.OAuth
		header bool
		want   string
	}{
		{"open", nil, nil, false, ""},
		{"a key", []config.Access{key}, nil, true, ""},
		{"a key in a file", []config.Access{file}, nil, true, ""},
		{"users", []config.Access{user}, signs, false, own},
		{"users and keys", []config.Access{user, file}, signs, true, leave},
	} {
		c := config.Default()
		c.Servers = []config.Server{config.DefaultServer("files", "")}
		c.Access, c.OAuth = tc.access, tc.oauth
		for _, asJSON := range []bool{false, true} {
			var out strings.Builder
			announce(&out, &c, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8808}, nil, asJSON, true)
			got := out.String()
			if strings.Contains(got, "Authorization") != (tc.header && !asJSON) || strings.Contains(got, "sign in") != (tc.want != "" && !asJSON) || !asJSON && !strings.Contains(got, tc.want) {
				t.Errorf("%s: %s, want headers: %t, %q", tc.name, got, tc.header, tc.want)
			}
		}
	}
}
