package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestModernClientLegacyServer has a client that speaks 2026-07-28 only, by
// the TypeScript SDK 2.x, use the tools of the npm reference server that ask
// their client. That server is legacy: without a bridge they cannot meet.
func TestModernClientLegacyServer(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "lines")
	command := []string{node(t), absolute(t, "eras/record.mjs"), record, node(t), modulePath(t, "@modelcontextprotocol/server-everything/dist/index.js"), "stdio"}
	file := configure(t, map[string]any{"stdio": map[string]any{"command": command[0], "args": command[1:]}})
	p := serveFile(t, file)
	cell := eraCell{SDK: "ts2", Client: modern, Server: legacy, By: "ts1", Upstream: "stdio", Script: "npm.mjs"}
	for _, where := range []target{
		{transport: "stdio", direct: true, command: command},
		{transport: "streamable", url: p.base + "/mcp"},
		{transport: "stdio", command: connectTo(t, file)},
	} {
		cell := cell
		cell.Transport, cell.URL, cell.Command = where.transport, where.url, where.command
		name := "bridge/" + where.transport
		if where.transport == "stdio" && !whole {
			continue
		}
		if where.direct { // by a client that can: what fails here is the fault of the script or of the server
			cell.SDK, cell.Client, cell.Direct, name = "ts1", legacy, true, "direct"
		}
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(record); err != nil {
				t.Fatal(err)
			}
			playCells(t, []eraCell{cell}, &outcomes{of: map[outcome]string{}})
			calls := map[string]int{}
			for _, line := range recorded(t, record) {
				if line.Method == "tools/call" {
					calls[line.Params.Name]++
				}
			}
			same(t, "calls that the server got", calls, map[string]int{
				"trigger-elicitation-request": 1, "trigger-sampling-request": 1, "get-roots-list": 1,
			})
		})
	}
}

// TestLegacyClientModernServer is the mirror image: a client by the TypeScript
// SDK 1.x, and a server by 2.x that speaks 2026-07-28 only. Unless the whole matrix is
// asked for, one client connects over HTTP to a server on stdio.
func TestLegacyClientModernServer(t *testing.T) {
	t.Parallel()
	all := eraServers()
	server := all[slices.IndexFunc(all, func(e eraServer) bool { return e.sdk == "ts2" })]
	for _, upstream := range transportsOf(server.revision) {
		if !whole && upstream != "stdio" {
			continue
		}
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			file := configure(t, server.kind(t, upstream))
			p := serveFile(t, file)
			cell := eraCell{SDK: "ts1", Client: legacy, Server: modern, By: server.sdk, Upstream: upstream, Transport: "stdio", Command: connectTo(t, file)}
			other := cell
			other.Transport, other.URL, other.Command = "streamable", p.base+"/mcp", nil
			cells := []eraCell{cell, other}
			if !whole {
				cells = cells[1:]
			}
			playCells(t, cells, &outcomes{of: map[outcome]string{}})
		})
	}
}

// A recordedLine is what matters of a line that a server was sent.
type recordedLine struct {
	Method string
	Params struct{ Name string }
}

func recorded(t *testing.T, file string) []recordedLine {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []recordedLine
	for text := range strings.Lines(string(text)) {
		var line recordedLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(fmt.Errorf("%q: %w", text, err))
		}
		lines = append(lines, line)
	}
	return lines
}

// TestTogetherEras offers a legacy server and a modern one as one, to clients of
// both eras: each uses both, and no tool runs twice.
func TestTogetherEras(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	all := eraServers()
	one := func(revision, sdk string) eraServer {
		return all[slices.IndexFunc(all, func(e eraServer) bool { return e.revision == revision && e.sdk == sdk })]
	}
	for _, upstream := range []string{"stdio", "streamable"} {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			file := configureNamed(t, map[string]any{"servers": map[string]any{
				"old": one("2025-06-18", "ts1").kind(t, upstream),
				"new": one(modern, "ts2").kind(t, upstream),
			}})
			p := serveFile(t, file)
			var cells []eraCell
			for _, client := range []struct{ sdk, revision string }{{"ts2", modern}, {"go", modern}, {"ts1", legacy}, {"ts1", "2025-06-18"}} {
				cell := eraCell{SDK: client.sdk, Client: client.revision, Server: modern, By: "ts2", Upstream: upstream, Script: "together.mjs"}
				cell.Transport, cell.URL = "streamable", p.base+"/mcp"
				cells = append(cells, cell)
				cell.Transport, cell.URL, cell.Command = "stdio", "", connectTo(t, file)
				cells = append(cells, cell)
			}
			playCells(t, cells, &outcomes{of: map[outcome]string{}})
		})
	}
}
