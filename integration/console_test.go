package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/programtest"
)

var (
	shots    = flag.Bool("shots", false, "make the pictures of README.md and docs/console.md")
	shotsFor = flag.Float64("shots-minutes", 4, "how long clients call before the pictures are taken")
)

// The console in a real browser: each page and action, both eras on both sides, what
// servers ask, forms of every shape, light and dark, a narrow window, the keyboard
// alone, and what axe finds. console/browser.mjs has the steps (O-006, O-007, O-022, O-023, O-025). Unless the whole
// matrix is asked for, some of them are taken.
func TestConsole(t *testing.T) {
	t.Parallel()
	browser := programtest.Need(t, "chromium")
	programtest.Need(t, "curl")
	folder := t.TempDir()
	servers := fmt.Sprintf(`session_idle: 31m
reload: off
listen: 127.0.0.1:0
servers:
  legacy:
    stdio: { command: %[1]q, args: ["2025-11-25", stdio] }
  modern:
    stdio: { command: %[1]q, args: ["2026-07-28", stdio] }
  odd:
    stdio: { command: %[2]q, args: [%[3]q] }
  broken:
    stdio: { command: no-such-program }
`, eraServerProgram(t), programtest.Need(t, "node"), absolute(t, "console/server.mjs"))
	file := writeFile(t, folder, "bridge.yaml", servers)
	locked := writeFile(t, folder, "locked.yaml", servers+"console: payloads\naccess:\n  - { name: ops, token: correct-horse-battery-staple }\nadmin: [ops]\n")
	only, steps := `^(overview|client (2026-07-28, legacy|2025-11-25, modern) server: (a call|the server asks)|a form of every shape .*|calls|configuration|signing in and out|no fault, .*)$`, 10
	if whole {
		only, steps = "", 50
	}
	options := map[string]any{"file": file, "chromium": browser, "only": only, "key": "correct-horse-battery-staple", "failed": os.Getenv("BRIDGE_TEST_SHOTS")}
	for name, file := range map[string]string{"base": file, "locked": locked} {
		p := start(t, exec.Command(bridgeProgram(t), "serve", file))
		t.Cleanup(func() { p.stop(t) })
		options[name] = p.base
	}
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	out := string(runNode(t, "console/browser.mjs", string(text)))
	t.Log(out)
	if n := strings.Count("\n"+out, "\nok "); n < steps || strings.Contains("\n"+out, "\nnot ok ") || !strings.Contains(out, "ok no fault") {
		t.Errorf("%d steps went well, not all of them", n)
	}
}

// TestShots makes the pictures: six servers, one of which stops working, and clients that call
// their tools for some minutes.
func TestShots(t *testing.T) {
	if !*shots {
		t.Skip("-shots makes the pictures of README.md and docs/console.md")
	}
	browser := programtest.Need(t, "chromium")
	pets := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/7") && time.Now().UnixNano()%9 == 0 {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"message": "no pet has this id"}`)
			return
		}
		_, _ = io.WriteString(w, `[{"id": 7, "name": "Rex", "kind": "dog"}]`)
	}))
	t.Cleanup(pets.Close)
	var servers strings.Builder
	for _, name := range []string{"files", "search", "tickets", "memory", "time"} {
		until := ""
		if name == "tickets" {
			fails := time.Duration(*shotsFor * 0.7 * float64(time.Minute))
			until = fmt.Sprintf(", %q", fmt.Sprint(time.Now().Add(fails).UnixMilli()))
		}
		fmt.Fprintf(&servers, "  %s:\n    stdio: { command: %q, args: [%q, %s%s] }\n", name, programtest.Need(t, "node"), absolute(t, "console/demo.mjs"), name, until)
	}
	file := writeFile(t, t.TempDir(), "bridge.yaml", fmt.Sprintf(`listen: 127.0.0.1:0
servers:
%s  pets:
    rest:
      base_url: %s
      openapi:
        openapi: 3.1.0
        info: { title: Pets, version: "1.0" }
        paths:
          /pets: { get: { operationId: listPets, summary: Lists the pets of the shelter } }
          /pets/{id}: { get: { operationId: getPet, summary: Returns a pet, parameters: [{ name: id, in: path, required: true, schema: { type: integer } }] } }
`, servers.String(), pets.URL))
	p := start(t, exec.Command(bridgeProgram(t), "serve", file))
	t.Cleanup(func() { p.stop(t) })
	text, err := json.Marshal(map[string]any{"base": p.base, "chromium": browser, "pages": absolute(t, "../docs/console"), "pictures": absolute(t, "../docs/pictures"), "minutes": *shotsFor, "program": bridgeProgram(t)})
	if err != nil {
		t.Fatal(err)
	}
	out := string(runNode(t, "console/shots.mjs", string(text)))
	if n := strings.Count("\n"+out, "\nok "); n != 11 {
		t.Errorf("%d pictures were made, want 11:\n%s", n, out)
	}
}

func writeFile(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What the modules of the console say of their types holds, as tsc sees it.
func TestConsoleTypes(t *testing.T) {
	t.Parallel()
	if out := runNode(t, "node_modules/typescript/bin/tsc", "-p", "console/tsconfig.json", "--pretty", "false"); len(out) > 0 {
		t.Errorf("%s", out)
	}
}
