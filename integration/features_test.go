package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// upstreams are the servers behind the bridge.
var upstreams = []struct {
	name    string
	command func(t *testing.T) []string
}{
	{"go", func(t *testing.T) []string { return []string{everythingProgram(t), "stdio", "-page-size", "4"} }},
	{"npm", func(t *testing.T) []string {
		return []string{node(t), modulePath(t, "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"}
	}},
}

// clients run the feature script, each by its own implementation of the
// protocol.
var clients = []struct {
	name string
	run  func(t *testing.T, where target, flavour string)
}{
	{"go-client", func(t *testing.T, where target, flavour string) { runScript(t, where, loadFlavour(t, flavour)) }},
	{"ts-client", runTypeScript},
}

// TestFeatures plays the feature script by every client over every downstream
// transport through one bridge to each server, as many at once as go test
// allows.
func TestFeatures(t *testing.T) {
	for _, upstream := range upstreams {
		t.Run(upstream.name, func(t *testing.T) {
			t.Parallel()
			b := startBridge(t, nil, upstream.command(t)...)
			t.Run("via", func(t *testing.T) { // returns when all below have finished
				for _, client := range clients {
					for _, where := range []target{
						{transport: "streamable", url: b.base + "/mcp"},
						{transport: "sse", url: b.base + "/sse"},
					} {
						t.Run(client.name+"/"+where.transport, func(t *testing.T) {
							t.Parallel()
							client.run(t, where, upstream.name)
						})
					}
				}
			})
			b.childless(t)
		})
	}
}

// TestFeaturesDirect plays the same script without a bridge: what fails here
// is the fault of the script, of a client or of a server.
func TestFeaturesDirect(t *testing.T) {
	for _, upstream := range upstreams {
		for _, client := range clients {
			t.Run(upstream.name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				client.run(t, target{transport: "stdio", command: upstream.command(t)}, upstream.name)
			})
		}
	}
}

// runTypeScript runs client.mjs and makes a subtest of each check it reports.
func runTypeScript(t *testing.T, where target, flavour string) {
	args := []string{"client.mjs", where.transport, flavour, where.url}
	if where.transport == "stdio" {
		args = append([]string{"client.mjs", "stdio", flavour, "--"}, where.command...)
	}
	out := runNode(t, 3*time.Minute, args...)
	ended := false
	for line := range strings.Lines(string(out)) {
		var check struct {
			Name    string
			OK      bool
			Skipped bool
			MS      int
			Detail  string
		}
		if err := json.Unmarshal([]byte(line), &check); err != nil {
			t.Errorf("client.mjs wrote %q: %v", line, err)
			continue
		}
		if check.Name == "end" {
			ended = true
			continue
		}
		t.Run(check.Name, func(t *testing.T) {
			if check.Skipped {
				t.Skip("the server has no such feature")
			}
			if !check.OK {
				t.Error(check.Detail)
			}
			t.Log(fmt.Sprint(check.MS, " ms"))
		})
	}
	if !ended {
		t.Errorf("client.mjs did not come to its end; it wrote\n%s", out)
	}
}
