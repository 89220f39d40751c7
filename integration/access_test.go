package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// bearer shows a key with the requests of a client.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// TestAccess lets two callers, one of each era, use what each may, until the key
// of one is taken away.
func TestAccess(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	const alice, bob = "alice-0123456789abcdef", "bob-0123456789abcdef"
	key := filepath.Join(t.TempDir(), "bob.key")
	if err := os.WriteFile(key, []byte(bob+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serveFile(t, configureNamed(t, map[string]any{
		"access": []map[string]any{
			{"name": "alice", "token": alice},
			{"name": "bob", "token_file": key, "servers": []string{"local"}, "tools": map[string]any{"deny": []string{"echo"}}},
		},
		"servers": map[string]any{"local": kindOf(t, references[0], "stdio"), "other": kindOf(t, references[0], "stdio")},
	}))
	join := func(path, key, revision string) (*mcp.ClientSession, error) {
		client := mcp.NewClient(&mcp.Implementation{Name: "access", Version: "1"}, nil)
		s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.base + path, HTTPClient: &http.Client{Transport: bearer{key}}}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err == nil {
			t.Cleanup(func() { _ = s.Close() }) // that of bob cannot say goodbye any more
		}
		return s, err
	}
	tools := func(s *mcp.ClientSession) (names []string) {
		t.Helper()
		for tool, err := range s.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		return names
	}
	echo := &mcp.CallToolParams{Name: "local__echo", Arguments: map[string]any{"message": "hello"}}

	a, err := join("/mcp", alice, "")
	if err != nil {
		t.Fatal(err)
	}
	includes(t, "alice's tools", tools(a), "local__echo", "other__echo")
	if _, err := a.CallTool(t.Context(), echo); err != nil {
		t.Errorf("alice: %v", err)
	}
	o, err := join("/mcp", bob, legacy)
	if err != nil {
		t.Fatal(err)
	}
	if names := tools(o); len(names) == 0 || slices.Contains(names, "local__echo") || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "other") }) {
		t.Errorf("bob's tools: %q", names)
	}
	if _, err := o.CallTool(t.Context(), echo); err == nil || !strings.Contains(err.Error(), "Unknown tool: local__echo") {
		t.Errorf("bob calls echo: %v", err)
	}
	if _, err := join("/other/mcp", bob, legacy); err == nil {
		t.Error("bob uses a server that he may not")
	}
	if _, err := join("/mcp", "wrong-0123456789abcdef", legacy); err == nil {
		t.Error("somebody uses a wrong key")
	}

	const fresh = "fresh-0123456789abcdef"
	if err := os.WriteFile(key, []byte(fresh+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err, ok := eventually(func() (error, bool) { err := o.Ping(t.Context(), nil); return err, err != nil }); !ok || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("bob's session, with the key that was taken away: %v", err)
	}
	if _, err := join("/local/mcp", fresh, legacy); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if _, err := a.CallTool(t.Context(), echo); err != nil {
		t.Errorf("alice, who is not concerned: %v", err)
	}
	for _, secret := range []string{alice, bob, fresh} {
		if strings.Contains(p.output.String(), secret) {
			t.Errorf("the output of the bridge has a key:\n%s", p.output)
		}
	}
}
