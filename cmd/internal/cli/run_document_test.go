package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// A document is a target like any other, and a dry run of it sends nothing.
func TestDocumentTarget(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	t.Setenv("PETS_KEY", "top-secret-key")
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/openapi.json", "/spec":
			if r.Header.Get("X-Pets") != "" {
				t.Error("the document is read with the header that is for the API")
			}
			fmt.Fprint(w, petsDocument) // YAML, whatever its name
			return
		case "/gone.json":
			http.NotFound(w, r)
			return
		case "/other.json":
			fmt.Fprint(w, `{"hello":"world"}`)
			return
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"target":%q,"pets":%q}`, r.URL.RequestURI(), r.Header.Get("X-Pets"))
	}))
	defer api.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>") }))
	defer page.Close()
	path := file(t, "pets", petsDocument) // no extension: its content tells
	base := []string{"--base-url", api.URL + "/v1"}
	for _, test := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts
		asked          int32
	}{
		{"tools", append([]string{"tools", path}, base...), 0, "getPet  read-only  Get a pet", "", 0},
		{"call", append([]string{"call", path, "getPet", "id=7", "-H", "X-Pets: ${PETS_KEY}"}, base...), 0, `/v1/pets/7`, "", 1},
		{"a secret that comes back", append([]string{"call", path, "getPet", "id=7", "-H", "X-Pets: ${PETS_KEY}"}, base...), 0, `"pets":"***"`, "", 1},
		{"dry run", append([]string{"call", path, "getPet", "id=7", "--dry-run"}, base...), 0, "GET " + api.URL + "/v1/pets/7\n", "", 0},
		{"at a URL", []string{"call", api.URL + "/openapi.json", "getPet", "id=8"}, 0, `/pets/8`, "", 1},
		{"at another URL", []string{"tools", api.URL + "/spec", "--base-url", api.URL}, 0, "getPet", "", 0},
		{"at a URL with nothing", []string{"tools", api.URL + "/gone.json?key=top-secret-key"}, exit.Server, "", api.URL + "/gone.json cannot be read: the server answered 404 Not Found", 0},
		{"a flag for an MCP server", []string{"tools", path, "--transport", "sse"}, exit.Usage, "", "--transport needs the URL of an MCP server", 0},
		{"a configuration", []string{"tools", file(t, "bridge.yaml", "servers: {}\n")}, exit.Usage, "", "is a configuration file: name one of its servers, as in 'mcp-bridge tools NAME -c ", 0},
		{"a web page at the URL of a document", []string{"tools", page.URL + "/api.json?key=SECRET"}, exit.Usage, "", "what is at " + page.URL + "/api.json is not an OpenAPI document: that has openapi, swagger or paths at its top", 0},
		{"no file", []string{"tools", "./none.yaml"}, exit.Usage, "", "./none.yaml: no such file or directory", 0},
		{"no URL", []string{"tools", "localhost:1/mcp"}, exit.Usage, "", "\"localhost:1/mcp\" is not a URL", 0},
		{"at a URL with something else", []string{"call", api.URL + "/swagger", "x", "--dry-run"}, exit.Usage, "", "--dry-run is for HTTP APIs", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked.Store(0)
			says(t, test.code, test.stdout, test.stderr, test.args...)
			if got := asked.Load(); got != test.asked {
				t.Errorf("the API was asked %d times, want %d", got, test.asked)
			}
		})
	}
}

// A document is served, as tools, and connect passes it on.
func TestRunDocument(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"target":%q,"pets":%q}`, r.URL.RequestURI(), r.Header.Get("X-Pets"))
	}))
	defer api.Close()
	path := file(t, "api.yaml", petsDocument)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k, name, url := serveURL(ctx, t, "run", "--listen", "127.0.0.1:0", path, "--base-url", api.URL+"/v2", "-H", "X-Pets: yes")
	if name != "api" {
		t.Errorf("the server is called %q, want api", name)
	}
	code, stdout, stderr := in(t, "call", url, "getPet", "id=3")
	if code != 0 || !strings.Contains(stdout, `"target":"/v2/pets/3"`) || !strings.Contains(stdout, `"pets":"yes"`) {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s", code, stdout, stderr)
	}
	stop()
	if code := <-k.ended; code != 0 || !strings.Contains(k.log.String(), "tools made") {
		t.Errorf("exit code %d, log\n%s", code, &k.log)
	}

	c := start(t.Context(), t, "connect", path, "--base-url", api.URL)
	c.ask(hello)
	if got := c.ask(strings.ReplaceAll(toolCall("getPet"), "{}", `{"id":4}`)); !strings.Contains(got, `/pets/4`) {
		t.Errorf("connect: %s", got)
	}
	if code, _, stderr := c.leave(); code != 0 {
		t.Errorf("connect: exit code %d, stderr\n%s", code, stderr)
	}
}

// A program may have the name of a document.
func TestProgramNamedLikeDocument(t *testing.T) {
	path := file(t, "api.yaml", "hello: world\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := noProgram(path, ""); err != nil {
		t.Error(err)
	}
}
