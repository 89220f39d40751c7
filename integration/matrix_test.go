package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/programtest"
)

// A reference is one of the two reference servers.
type reference struct {
	name    string
	command func(t *testing.T, transport string) []string // which listens at the environment's PORT, if at all
}

var references = []reference{
	{"go", func(t *testing.T, transport string) []string {
		return []string{everythingProgram(t), transport, "-page-size", "4"}
	}},
	{"npm", func(t *testing.T, transport string) []string {
		return []string{node(t), modulePath(t, "@modelcontextprotocol/server-everything/dist/index.js"), transport}
	}},
}

// Both servers name their transports like this.
var transportNames = map[string]string{"stdio": "stdio", "sse": "sse", "streamable": "streamableHttp"}

// clients run the feature script. Clients by the Go SDK are in TestEras.
var clients = []struct {
	name string
	run  func(t *testing.T, where target, flavour string)
}{
	{"ts-client", runTypeScript},
}

var transports = []string{"stdio", "sse", "streamable"}

// TestMatrix plays the feature script for every pairing of a downstream and an
// upstream transport, by each client, in front of each server, as many at once
// as go test allows. There is one bridge for each server and upstream
// transport; over stdio there is one for each client. Unless the whole matrix
// is asked for, each transport is played once on each side, and servers take turns.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for i, server := range references {
		for j, upstream := range transports {
			if !whole && j%2 != i {
				continue
			}
			t.Run(server.name+"/"+upstream, func(t *testing.T) {
				t.Parallel()
				kind := kindOf(t, server, upstream)
				if upstream == "stdio" { // the connection of the clients without sessions goes when it is not used
					kind["idle_stop"] = "10s"
				}
				file := configure(t, kind)
				p := serveFile(t, file)
				t.Run("via", func(t *testing.T) { // returns when all have finished
					playAll(t, p.base, connectTo(t, file), flavourOf(server, upstream), (j+1)%len(transports))
				})
				if upstream == "stdio" {
					p.childless(t)
				}
			})
		}
	}
	// A server of the same program has no wire of its own: the program that
	// embeds the bridge is the bridge.
	t.Run("go/in-process", func(t *testing.T) {
		t.Parallel()
		p := start(t, exec.Command(everythingProgram(t), "bridged", "-page-size", "4", "-port", "0"))
		t.Cleanup(func() { p.stop(t) })
		t.Run("via", func(t *testing.T) {
			playAll(t, p.base, []string{everythingProgram(t), "bridged-stdio", "-page-size", "4"}, "go", 0)
		})
	})
}

// flavourOf returns what to expect of a server on a transport. That of the Go SDK answers a method that it does not know with
// status 400 over HTTP, which says nothing more to a bridge.
func flavourOf(server reference, transport string) string {
	if server.name == "go" && transport != "stdio" {
		return "go-http"
	}
	return server.name
}

// playAll plays the script over each downstream transport: of the bridge at
// base, and of the command that is one on stdio. Unless the whole matrix is asked for, it plays one transport, by its
// place.
func playAll(t *testing.T, base string, command []string, flavour string, one int) {
	for _, client := range clients {
		for j, where := range []target{
			{transport: "streamable", url: base + "/mcp"},
			{transport: "sse", url: base + "/sse"},
			{transport: "stdio", command: command},
		} {
			if !whole && j != one {
				continue
			}
			t.Run(client.name+"/"+where.transport, func(t *testing.T) {
				t.Parallel()
				client.run(t, where, flavour)
			})
		}
	}
}

// kindOf starts a reference server, unless the bridge is to start it, and
// returns how the bridge reaches it.
func kindOf(t *testing.T, server reference, upstream string) map[string]any {
	t.Helper()
	switch upstream {
	case "stdio":
		command := server.command(t, "stdio")
		return map[string]any{"stdio": map[string]any{"command": command[0], "args": command[1:]}}
	case "sse":
		return map[string]any{"sse": map[string]any{"url": startReference(t, server, "sse")}}
	}
	return map[string]any{"http": map[string]any{"url": startReference(t, server, "streamable")}}
}

// startReference starts a server on HTTP and returns its address.
func startReference(t *testing.T, server reference, transport string) string {
	t.Helper()
	command := server.command(t, transportNames[transport])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", porttest.Reserve(t))) // that of npm takes no 0
	return start(t, cmd).base + map[string]string{"sse": "/sse", "streamable": "/mcp"}[transport]
}

// lineWriter keeps what is written to it.
type lineWriter struct{ to *tail }

func (l lineWriter) Write(b []byte) (int, error) {
	l.to.add(string(b))
	return len(b), nil
}

// configure writes a configuration with one server, or with the servers given
// by name, and returns its path.
func configure(t *testing.T, servers ...map[string]any) string {
	t.Helper()
	named := map[string]any{}
	for i, s := range servers {
		named[fmt.Sprint("s", i+1)] = s
	}
	return configureNamed(t, map[string]any{"servers": named})
}

func configureNamed(t *testing.T, c map[string]any) string {
	t.Helper()
	c["listen"] = "127.0.0.1:0"
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bridge.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serveFile runs "mcp-bridge serve" and stops it in good order when the test ends.
func serveFile(t *testing.T, file string) *process {
	t.Helper()
	p := start(t, exec.Command(bridgeProgram(t), "serve", "-c", file))
	t.Cleanup(func() { p.stop(t) })
	return p
}

// connectTo is the command of a stdio server for all that a file has.
func connectTo(t *testing.T, file string) []string {
	t.Helper()
	return []string{bridgeProgram(t), "connect", "-c", file}
}

// TestNginx plays the script through nginx as Debian has it, with its default
// buffering, in front of the bridge.
func TestNginx(t *testing.T) {
	t.Parallel()
	p := serveFile(t, configure(t, kindOf(t, references[0], "streamable")))
	base := startNginx(t, `
daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events {}
http {
	access_log off; client_max_body_size 20m; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen %[2]s;
		location / { proxy_pass `+p.base+`; proxy_http_version 1.1; proxy_set_header Connection ""; }
	}
}`)
	for _, client := range clients {
		for j, where := range []target{{transport: "streamable", url: base + "/mcp"}, {transport: "sse", url: base + "/sse"}} {
			if !whole && j != 1 {
				continue
			}
			t.Run(client.name+"/"+where.transport, func(t *testing.T) { client.run(t, where, flavourOf(references[0], "streamable")) })
		}
	}
}

// startNginx starts nginx and returns its address. The configuration has %[1]s for a folder of its own, and %[2]s for the
// address where it listens.
func startNginx(t *testing.T, conf string) (base string) {
	t.Helper()
	program := programtest.Need(t, "nginx")
	dir, address := t.TempDir(), porttest.Address(t)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(conf, dir, address)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", file)
	cmd.WaitDelay = left()
	output := &tail{}
	cmd.Stdout, cmd.Stderr = lineWriter{output}, lineWriter{output}
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("output of nginx:\n%s", output)
		}
	})
	base = "http://" + address
	if _, ok := eventually(func() (int, bool) {
		r, err := http.Get(base + "/readyz")
		if err != nil {
			return 0, false
		}
		r.Body.Close()
		return r.StatusCode, r.StatusCode == http.StatusOK
	}); !ok {
		t.Fatalf("nginx does not serve\n%s", output)
	}
	return base
}

// runTypeScript runs client.mjs and makes a subtest of each check it reports.
func runTypeScript(t *testing.T, where target, flavour string) {
	args := []string{"client.mjs", where.transport, flavour, where.url}
	if where.transport == "stdio" {
		args = append([]string{"client.mjs", "stdio", flavour, "--"}, where.command...)
	}
	out := runNode(t, args...)
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
			switch {
			case check.Skipped:
				t.Log("the server has no such feature")
			case !check.OK:
				t.Error(check.Detail)
			}
			t.Log(fmt.Sprint(check.MS, " ms"))
		})
	}
	if !ended {
		t.Errorf("client.mjs did not come to its end; it wrote\n%s", out)
	}
}
