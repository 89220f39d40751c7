package access

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
)

// open is a bridge with every server, for every principal.
type open struct {
	Bridge
	c *config.Config
}

func (o *open) Config() *config.Config       { return o.c }
func (o *open) HasAddress(string) bool       { return true }
func (o *open) Allowed(string, string) error { return nil }
func (o *open) Accepted(context.Context)     {}

// ruled makes an Access of the servers one and two, for users of an issuer: its group eng may
// use everything, and guests the server one without its tool echo.
func ruled(t *testing.T, change func(*config.Config)) *Access {
	t.Helper()
	c := config.Default()
	for _, name := range []string{"one", "two"} {
		c.Servers = append(c.Servers, config.DefaultServer(name, ""))
	}
	c.OAuth = []config.OAuth{{Issuer: "https://idp.example.com", Scopes: []string{"mcp:use"}}}
	c.Access = []config.Access{
		{Name: "staff", Claims: map[string]config.Words{"groups": {"eng"}}},
		{Name: "guests", Users: config.Words{"guest-*"}, Servers: []string{"one"}, Tools: config.Choice{Deny: []string{"echo"}}},
	}
	change(&c)
	a, err := New(Options{Bridge: &open{c: &c}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What messages need, by what they are about. Where that cannot be told, they need all
// that it could be (I-053, I-055).
func TestNeeds(t *testing.T) {
	a := ruled(t, func(c *config.Config) {
		c.Servers[0].Scopes = config.Scopes{Tools: map[string]config.Words{"echo": {"one:echo"}, "s*": {"one:s"}, "steps": {"one:steps", "one:s"}}}
		c.Servers[1].Scopes = config.Scopes{All: config.Words{"two:use"}, Tools: map[string]config.Words{"log": {"two:log"}}, Prompts: map[string]config.Words{"*": {"two:prompts"}}, Resources: map[string]config.Words{"file:///secret/*": {"two:secret"}}}
		for _, name := range []string{"bare", "bare-two"} {
			one := config.DefaultServer(name, "")
			one.Prefix = ""
			one.Scopes.Tools = map[string]config.Words{"t*": {name}}
			c.Servers = append(c.Servers, one)
		}
	})
	const staff, guests = "staff/x#ann", "guests/x#guest-1"
	for _, tc := range []struct{ server, who, method, params, want string }{
		{"one", staff, "tools/call", `{"name":"echo"}`, "one:echo"},
		{"one", staff, "tools/call", `{"name":"echo","Name":"log"}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/call", `{"name":["echo"]}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/call", `{}`, "one:echo one:s one:steps"},
		{"one", staff, "tools/list", `{}`, ""},
		{"one", guests, "tools/call", `{"name":"echo"}`, ""},
		{"two", staff, "tools/list", `{}`, "two:use"},
		{"two", staff, "notifications/cancelled", `{}`, "two:use"},
		{"two", staff, "prompts/get", `{"name":"x"}`, "two:prompts two:use"},
		{"two", staff, "completion/complete", `{"ref":{"type":"ref/prompt","name":"x"}}`, "two:prompts two:use"},
		{"two", staff, "completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///secret/x"}}`, "two:secret two:use"},
		{"two", staff, "completion/complete", `{"ref":{"name":"x","uri":"file:///public/x"}}`, "two:prompts two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///public/x"}`, "two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"FILE:///public/../secret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///%73ecret/x"}`, "two:secret two:use"},
		{"two", staff, "resources/read", `{"uri":"file:///a","URI":"file:///b"}`, "two:secret two:use"},
		{"two", staff, "resources/subscribe", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"two", staff, "subscriptions/listen", `{"notifications":{"resourceSubscriptions":["file:///a","file:///secret/b"]}}`, "two:secret two:use"},
		{"two", staff, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, "two:use"},
		{"", staff, "tools/list", `{}`, ""},
		{"", staff, "tools/call", `{"name":"one__echo"}`, "one:echo"},
		{"", staff, "tools/call", `{"name":"two__x"}`, "bare bare-two two:use"}, // those without a prefix may have a tool of that name
		{"", staff, "tools/call", `{"name":"nobody"}`, ""},                      // it begins with the prefix of those that have none
		{"", staff, "tools/call", `{"name":"two"}`, "bare bare-two"},
		{"", staff, "tools/call", `{"name":"bare__two"}`, "bare"}, // of two of that name, one has its server's before it
		{"", staff, "tools/call", `{"name":"one__very_long_0123abcd"}`, "bare bare-two one:echo one:s one:steps"},
		{"", staff, "tools/call", `{"name":["x"]}`, "bare bare-two one:echo one:s one:steps two:log two:use"},
		{"", staff, "prompts/get", `{"name":"two__x"}`, "two:prompts two:use"},
		{"", staff, "resources/read", `{"uri":"file:///secret/x"}`, "two:secret two:use"},
		{"", guests, "resources/read", `{"uri":"file:///secret/x"}`, ""},
		{"", guests, "tools/call", `{"name":"two__log"}`, ""},
		{"", staff, "tasks/result", `{"taskId":"two:7"}`, "two:use"},
		{"", staff, "tasks/result", `{"taskId":"one:7"}`, ""},
		{"", staff, "tasks/result", `{"taskId":"7"}`, "two:use"}, // of a session that began when there was one server
		{"", staff, "subscriptions/listen", `{"notifications":{"taskIds":["one:7","two:7"]}}`, "two:use"},
		{"", staff, "subscriptions/listen", `{"notifications":{"taskIds":["one:7"]}}`, ""},
		{"none", staff, "tools/call", `{"name":"echo"}`, ""},
	} {
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+tc.method+`","params":`+tc.params+`}`)
		got, _ := a.Needs(tc.server, tc.who, []*jsonrpc.Message{m})
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%q: %s %s of %s needs %v, want %s", tc.server, tc.method, tc.params, tc.who, got, tc.want)
		}
	}
}

// A rule of a program that has no text for its key is for nobody.
func TestRulesOf(t *testing.T) {
	if n := len(rulesOf(&config.Config{Access: []config.Access{{Name: "ci"}}})); n > 0 {
		t.Errorf("%d rules for users", n)
	}
}
