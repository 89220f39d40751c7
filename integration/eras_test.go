package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// modern is the revision without a handshake.
const modern = "2026-07-28"

// revisions are all that there are, in the order of time.
var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", legacy, modern}

// transportsOf are those that a revision has.
func transportsOf(revision string) []string {
	switch revision {
	case "2024-11-05":
		return []string{"stdio", "sse"}
	case modern:
		return []string{"stdio", "streamable"}
	}
	return transports
}

// An eraServer is a server that speaks exactly one revision, by one SDK.
type eraServer struct {
	sdk      string
	revision string
	command  func(t *testing.T, revision, transport string) []string
}

// eraServers are two for each revision, independent of each other.
func eraServers() []eraServer {
	var all []eraServer
	script := func(name string) func(*testing.T, string, string) []string {
		return func(t *testing.T, revision, transport string) []string {
			return []string{node(t), absolute(t, "eras/"+name), revision, transport}
		}
	}
	for _, revision := range revisions {
		ts := eraServer{"ts1", revision, script("server1.mjs")}
		if revision == modern {
			ts = eraServer{"ts2", revision, script("server2.mjs")}
		}
		native := eraServer{"go", revision, func(t *testing.T, revision, transport string) []string {
			return []string{eraServerProgram(t), revision, transport}
		}}
		all = append(all, ts, native)
	}
	return all
}

// An eraCell is a client of one revision, by one SDK, and where it connects
// to. client.mjs in eras reads it.
type eraCell struct {
	SDK       string   `json:"sdk"`               // ts1, ts2 or go
	Program   string   `json:"program,omitempty"` // the client by the Go SDK
	Client    string   `json:"client"`
	Server    string   `json:"server"`
	By        string   `json:"by"`       // the SDK of the server
	Upstream  string   `json:"upstream"` // the transport of the server
	Script    string   `json:"script"`   // script.mjs unless it is said
	Transport string   `json:"transport"`
	URL       string   `json:"url,omitempty"`
	Command   []string `json:"command,omitempty"`
}

func (e eraCell) String() string { return fmt.Sprintf("%s/%s/%s", e.Client, e.Transport, e.SDK) }

// clientSDKs are those that have clients of a revision.
func clientSDKs(revision string) []string {
	if revision == modern {
		return []string{"ts2", "go"}
	}
	return []string{"ts1", "ts2", "go"}
}

// An outcome is what a client of one revision gets of one feature of a server
// of another: script.mjs in eras has the words for it.
type outcome struct{ check, client, server string }

// outcomes is what the cells have shown.
type outcomes struct {
	mu     sync.Mutex // guards what follows
	checks []string   // in the order of the script
	of     map[outcome]string
}

// note records an outcome. All cells of two revisions must have the same.
func (o *outcomes) note(t *testing.T, k outcome, is string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was, ok := o.of[k]; ok && was != is {
		t.Errorf("%s: %s here and %s elsewhere", k.check, is, was)
	}
	o.of[k] = is
}

// TestEras plays the script of the era matrix for every pairing of a client's
// and a server's revision, over every pair of transports that they have. There
// is one bridge for each server and upstream transport. What each cell carries
// is in docs/eras.md, which the whole matrix compares. Otherwise each
// revision is played once on each side, in one pair with another one: SDKs and transports take turns.
func TestEras(t *testing.T) {
	t.Parallel()
	seen := &outcomes{of: map[outcome]string{}}
	t.Run("cells", func(t *testing.T) { // returns when all have finished
		for i, server := range eraServers() {
			for j, upstream := range transportsOf(server.revision) {
				cells := cellsOf(i, j, server, upstream)
				if len(cells) == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s-%s/%s", server.revision, server.sdk, upstream), func(t *testing.T) {
					t.Parallel()
					file := configure(t, server.kind(t, upstream))
					p := start(t, exec.Command(bridgeProgram(t), "serve", "-c", file))
					t.Cleanup(func() { p.stop(t) })
					for n := range cells {
						switch cell := &cells[n]; cell.Transport {
						case "stdio":
							cell.Command = []string{bridgeProgram(t), "connect", "-c", file}
						case "sse":
							cell.URL = p.base + "/sse"
						case "streamable":
							cell.URL = p.base + "/mcp"
						}
					}
					playCells(t, cells, seen)
				})
			}
		}
	})
	if t.Failed() || !whole {
		return // a table of what does not work would be no use
	}
	table := seen.table()
	t.Log("\n" + table)
	documented(t, "../docs/eras.md", table)
}

// cellsOf are the cells to play with the i-th server over the j-th of its
// transports: with the whole matrix all clients over all of their transports,
// otherwise those whose turn it is.
func cellsOf(i, j int, server eraServer, upstream string) (cells []eraCell) {
	revision := i / 2 // eraServers has two servers for each
	for c, client := range revisions {
		downstreams := transportsOf(client)
		for k, downstream := range downstreams {
			if !whole && (i%2 != revision%2 || c != partnerOf(revision) || j != i%len(transportsOf(server.revision)) || k != (2*c+revision)%len(downstreams)) {
				continue
			}
			sdks := clientSDKs(client)
			if client != modern || !whole { // in turns: there are many
				n := (i + j + k) % len(sdks)
				sdks = sdks[n : n+1]
			}
			for _, sdk := range sdks {
				cells = append(cells, eraCell{
					SDK: sdk, Client: client, Server: server.revision, By: server.sdk, Upstream: upstream, Transport: downstream,
				})
			}
		}
	}
	return cells
}

// partnerOf is the client whose turn it is with a server, by their places in revisions: the next revision, and of the newest
// one the oldest, so that both eras meet on both sides.
func partnerOf(server int) (client int) { return (server + 1) % len(revisions) }

// start starts a server on HTTP and returns its address.
func (e eraServer) start(t *testing.T, transport string) string {
	t.Helper()
	command := e.command(t, e.revision, transport)
	p := start(t, exec.Command(command[0], command[1:]...))
	if transport == "sse" {
		return p.base + "/sse"
	}
	return p.base + "/mcp"
}

// kind starts the server, unless the bridge is to start it, and returns how
// the bridge reaches it.
func (e eraServer) kind(t *testing.T, upstream string) map[string]any {
	t.Helper()
	switch upstream {
	case "stdio":
		command := e.command(t, e.revision, "stdio")
		return map[string]any{"stdio": map[string]any{"command": command[0], "args": command[1:]}}
	case "sse":
		return map[string]any{"sse": map[string]any{"url": e.start(t, "sse")}}
	}
	return map[string]any{"http": map[string]any{"url": e.start(t, "streamable")}}
}

// playCells runs the script for the cells, one after another, and makes a
// subtest of each.
func playCells(t *testing.T, cells []eraCell, seen *outcomes) {
	t.Helper()
	for i := range cells {
		cells[i].Script = cmp.Or(cells[i].Script, "script.mjs")
		if cells[i].SDK == "go" {
			cells[i].Program = eraClientProgram(t)
		}
	}
	text, err := json.Marshal(cells)
	if err != nil {
		t.Fatal(err)
	}
	out := runNode(t, "eras/client.mjs", string(text))
	type line struct {
		Cell           int
		Check, Outcome string
		OK, End        bool
		MS             int
		Detail, Stray  string
	}
	lines := map[int][]line{}
	for text := range strings.Lines(string(out)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Errorf("client.mjs wrote %q: %v", text, err)
		}
		if l.Stray != "" {
			t.Errorf("an error that nothing waited for: %s", l.Stray)
			continue
		}
		lines[l.Cell] = append(lines[l.Cell], l)
	}
	for i, cell := range cells {
		t.Run(cell.String(), func(t *testing.T) {
			ended, spent := false, 0
			for _, l := range lines[i] {
				switch {
				case l.End:
					ended = true
				case !l.OK:
					t.Errorf("%s (%s): %s", l.Check, l.Outcome, l.Detail)
				default:
					seen.add(l.Check)
					seen.note(t, outcome{l.Check, cell.Client, cell.Server}, l.Outcome)
				}
				spent += l.MS
			}
			if !ended {
				t.Error("the script did not come to its end")
			}
			t.Log(fmt.Sprint(spent, " ms"))
		})
	}
}
