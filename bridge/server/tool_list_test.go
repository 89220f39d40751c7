package server_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/config"
)

// An operator sees the tools of a server after a client listed them, however the server is reached. To look opens no
// connection and starts no process.
func TestAdminToolList(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Servers = failing(t)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	address, _ := serveAs(t, &c, slog.New(slog.DiscardHandler))
	read := func(path string, into any) {
		t.Helper()
		res, err := http.Get("http://" + address + "/ui/api/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(into); res.StatusCode != 200 || err != nil {
			t.Fatalf("%s: %d, %v", path, res.StatusCode, err)
		}
	}
	connections := func(name string) int {
		var state struct{ Server struct{ Connections int } }
		read("servers/"+name, &state)
		return state.Server.Connections
	}
	type list struct {
		Total int
		Tools []struct{ Name string }
	}
	for i := range c.Servers {
		name := c.Servers[i].Name
		var before, after list
		if read("servers/"+name+"/tools", &before); before.Tools != nil || connections(name) != 0 {
			t.Errorf("%s, before: %+v, %d connections", name, before, connections(name))
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/" + name + "/mcp", DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if read("servers/"+name+"/tools", &after); after.Total != 1 || len(after.Tools) != 1 || after.Tools[0].Name != "fail" {
			t.Errorf("%s: %+v", name, after)
		}
		_ = session.Close()
	}
}
