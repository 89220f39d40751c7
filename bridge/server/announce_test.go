package server_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// What comes by a webhook at one instance counts at all of them, also at those that start
// later, and when the store has been emptied meanwhile (S-043).
func TestClusterHooks(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	const key = "a-secret-of-the-hook"
	start := func() string {
		c := instanceOf(t, store)
		flows := config.DefaultServer("flows", "")
		flows.Rest = &rest.Config{BaseURL: "http://localhost:1", Catalog: rest.Catalog{Webhook: true, Secret: key}}
		c.Servers = []config.Server{flows}
		at, _ := serveAs(t, c, slog.New(slog.DiscardHandler))
		return at
	}
	post := func(at, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+at+"/hooks/flows", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	tools := func(at string) string {
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + at + "/flows/mcp"}, nil)
		if err != nil {
			return ""
		}
		defer s.Close()
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			return ""
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		return strings.Join(names, " ")
	}
	a, b := start(), start()
	for _, at := range []string{a, b} {
		until(t, "both are members", func() bool { return readyz(t, at).Get("members.#").Int() == 2 })
	}
	if status := post(a, `{"no":"list"}`); status != 422 {
		t.Errorf("what is no catalogue: %d", status)
	}
	if status := post(a, `[{"name":"calc","request":"POST /calc"}]`); status != 200 {
		t.Fatalf("a webhook: %d", status)
	}
	until(t, "the tool is at the other instance", func() bool { return tools(b) == "calc" })
	c := start()
	until(t, "the tool is at one that starts later", func() bool { return tools(c) == "calc" })
	redis := store.Client()
	defer redis.Close()
	if text := redis.HGet(t.Context(), "bridge:{m}:hook:flows", "b").Val(); text == "" || strings.Contains(text, "calc") {
		t.Errorf("the store has %q", text)
	}
	if err := redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	d := start()
	until(t, "the tool is at one that starts after the store was emptied", func() bool { return tools(d) == "calc" })
	if status := post(d, `[{"name":"sum","request":"POST /sum"}]`); status != 200 {
		t.Fatalf("a webhook: %d", status)
	}
	for _, at := range []string{a, b, c} {
		until(t, "the later one counts", func() bool { return tools(at) == "sum" })
	}
	store.Kill()
	if status := post(b, `[{"name":"lost","request":"POST /lost"}]`); status != 503 {
		t.Errorf("a webhook without the store: %d", status)
	}
}
