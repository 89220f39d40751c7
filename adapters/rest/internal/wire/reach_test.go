package wire

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
)

// refuser is a client whose server is at an address that Config.Refuses; it sends nothing.
type refuser struct{ asked int }

func (r *refuser) Do(*http.Request) (*http.Response, error) {
	r.asked++
	return nil, fmt.Errorf("dial tcp: %w", remote.ErrRefused)
}

// Addresses of servers from a document at a URL are checked when they are dialled, even that of the
// document's own server. Those that the operator names are not. A refused address is not tried
// again.
func TestGuarded(t *testing.T) {
	srv := newRecorder(t, nil)
	for _, test := range []struct {
		name    string
		o       Options
		guarded bool
	}{
		{"a document in a file", Options{Document: &openapi.Document{Location: "/api.yaml", Servers: []openapi.Server{{URL: srv.URL}}}}, false},
		{"on the internet", Options{Document: &openapi.Document{Location: "http://example.com/x", Servers: []openapi.Server{{URL: "http://example.com/v1", Remote: true, Public: true}}}}, true},
		{"its own server", Options{Document: &openapi.Document{Location: srv.URL + "/x", Servers: []openapi.Server{{URL: srv.URL, Remote: true}}}}, true},
		{"another server", Options{Document: &openapi.Document{Location: "http://localhost:1/x", Servers: []openapi.Server{{URL: srv.URL, Remote: true}}}}, true},
		{"trusted", Options{Document: &openapi.Document{Location: "http://localhost:1/x", Servers: []openapi.Server{{URL: srv.URL, Remote: true}}}, Trusted: []string{srv.URL}}, false},
		{"base_url", Options{Document: &openapi.Document{Location: "http://localhost:1/x", Servers: []openapi.Server{{URL: "http://other", Remote: true}}}, BaseURL: srv.URL}, false},
	} {
		s := newSource(t, test.o)
		guard := &refuser{}
		s.clients[clientKey{guard: noLinkLocal}], s.clients[clientKey{guard: publicOnly}] = guard, guard
		got := said(call(t, s, &Call{Tool: tool("GET", "/x")}))
		if want := "GET /x got no answer: the API could not be reached: it is at an address that a document at a URL may not name; the operator of the bridge can allow it with base_url or trusted"; test.guarded && (got != want || guard.asked != 1) || !test.guarded && got != "200 OK" {
			t.Errorf("%s: %d attempts: %s", test.name, guard.asked, got)
		}
	}
}

// A proxy gets no link-local address, however it is written.
func TestBlocked(t *testing.T) {
	for address, want := range map[string]bool{
		"https://169.254.169.254/":            true,
		"https://169.254.169.254./":           true,
		"https://2852039166/":                 true,
		"https://0xa9.0xfe.0xa9.0xfe/":        true,
		"https://[fe80::1%25eth0]/":           true,
		"https://[::ffff:169.254.169.254]/":   true,
		"https://１６９.２５４.１６９.２５４/":            true,
		"https://169。254。169。254/":            true,
		"https://１６９。254.169｡２５４/":            true,
		"https://api.example.com/":            false,
		"https://bücher.example/":             false,
		"https://10.0.0.1/":                   false,
		"https://my_service.internal.example": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := Blocked(u); got != want {
			t.Errorf("Blocked(%s) = %v, want %v", address, got, want)
		}
	}
}
