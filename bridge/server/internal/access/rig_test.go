package access

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
)

const (
	here     = "http://127.0.0.1:8808" // the address of the bridge, as clients write it
	loopback = "127.0.0.1:8808"        // the local address of a connection from this machine
	public   = "192.0.2.1:8808"        // the local address of a connection from elsewhere
	peer     = "198.51.100.7:1234"
	proxy    = "10.0.0.1:1234"

	aliceKey = "alice-0123456789abcdef"
	bobKey   = "bob-0123456789abcdef"
	wrongKey = "guess-0123456789abcdef"
)

// quiet is a log that nobody reads.
var quiet = slog.New(slog.DiscardHandler)

// asIs changes no setting.
func asIs(*config.Config) {}

// open is a bridge with the servers of its configuration, each for the principals that the rules allow.
type open struct {
	Bridge
	c *config.Config
}

func (o *open) Config() *config.Config   { return o.c }
func (o *open) KeysChanged(string, bool) {}
func (o *open) Accepted(context.Context) {}

func (o *open) Servers() (names []string) {
	for i := range o.c.Servers {
		names = append(names, o.c.Servers[i].Name)
	}
	return names
}

func (o *open) HasAddress(name string) bool { return slices.Contains(o.Servers(), name) }

func (o *open) Allowed(server, principal string) error {
	if g, ruled := filter.NewGrants(o.c.Grants()).Of(principal); ruled && !g.Covers(server) {
		return errors.New("not allowed")
	}
	return nil
}

func (o *open) Resolve(_, _ string, _ gateway.ToolsMode, m *jsonrpc.Message) *jsonrpc.Message {
	return m
}

// ruled makes an Access of the servers one and two, for users of an issuer: its group eng may
// use everything, and guests the server one without its tool echo.
func ruled(t *testing.T, change func(*config.Config)) *Access { return ruledLog(t, quiet, change) }

// ruledLog is ruled with a log that the test reads.
func ruledLog(t *testing.T, log *slog.Logger, change func(*config.Config)) *Access {
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
	a, err := New(Options{Bridge: &open{c: &c}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// keyed has the keys of alice and bob, and no issuer.
func keyed(c *config.Config) {
	c.OAuth = nil
	c.Access = []config.Access{{Name: "alice", Token: aliceKey}, {Name: "bob", Token: bobKey, Servers: []string{"one"}}}
}

// identified runs f in a bubble, with an issuer and an Access for its users and for the keys of alice and bob.
func identified(t *testing.T, log *slog.Logger, change func(*config.Config), f func(t *testing.T, a *Access, i *authtest.Issuer)) {
	synctest.Test(t, func(t *testing.T) {
		i := authtest.New(t, "https://idp.example.com")
		a := ruledLog(t, log, func(c *config.Config) {
			c.OAuth[0].Transport = i
			c.Access = append(c.Access, config.Access{Name: "alice", Token: aliceKey}, config.Access{Name: "bob", Token: bobKey})
			change(c)
		})
		a.Start()
		defer a.Stop()
		f(t, a, i)
	})
}

// as are the headers that show a key or a token.
func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

// eng makes the token of a member of the group eng.
func eng(i *authtest.Issuer, sub, audience string, more ...authtest.Claims) []string {
	return as(i.Token(audience, append([]authtest.Claims{{"sub": sub, "groups": "eng"}}, more...)...))
}

// from makes a request that comes from a peer to the address at.
func from(peer, at, method, path string, header ...string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	host, _, _ := net.SplitHostPort(at)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(host), Port: 8808})))
	r.RemoteAddr, r.Host = peer, loopback
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// admit shows what a request has, and returns the answer: 200 if the caller is admitted.
func admit(a *Access, r *http.Request, endpoint string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	a.Admit(w, r, r.URL.Path, TargetOf("", endpoint))
	return w
}

// unread is a body that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a request without a key was read")
	return 0, io.EOF
}
