package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestConformance runs the protocol's own conformance suite through the bridge
// against the server that the Go SDK has for it, on stdio. It is strict: a
// scenario passes only if no check of it failed, warned or was skipped.
func TestConformance(t *testing.T) {
	runtime := node(t)
	server := conformanceProgram(t)
	for _, test := range []struct {
		revision  string
		scenarios int // that exist for it, so that none drops out unnoticed
	}{
		{"2025-03-26", 1},
		{"2025-06-18", 27},
		{"2025-11-25", 33},
	} {
		t.Run(test.revision, func(t *testing.T) {
			t.Parallel()
			requireNode22(t, runtime)
			b := startBridge(t, nil, server)
			results := t.TempDir()
			// The exit code says less than the results: a warning leaves it at 0.
			log := runNode(t, 3*time.Minute, modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "server",
				"--url", b.base+"/mcp", "--suite", "all", "--spec-version", test.revision, "--output-dir", results)
			ran, passed := scenarios(t, results, serverRun)
			t.Logf("%d of %d scenarios passed at %s", passed, ran, test.revision)
			if ran != test.scenarios {
				t.Errorf("%d scenarios ran, want %d; the runner wrote\n%s", ran, test.scenarios, log)
			}
		})
	}
}

// TestConformanceClient runs the suite's scenarios for clients with the referee
// as the bridge's upstream and the client that the Go SDK has for it in front.
func TestConformanceClient(t *testing.T) {
	runtime := node(t)
	command := strings.Join([]string{behindProgram(t), bridgeProgram(t), conformanceClientProgram(t)}, " ")
	requireNode22(t, runtime)
	results := t.TempDir()
	all := []string{"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "json-schema-2020-12-preservation"}
	for _, scenario := range all { // those of 2025-11-25 that are not about authorization
		runNode(t, 2*time.Minute, modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "client",
			"--scenario", scenario, "--command", command, "--spec-version", "2025-11-25", "--output-dir", results)
	}
	if ran, _ := scenarios(t, results, clientRun); ran != len(all) {
		t.Errorf("%d scenarios ran, want %d", ran, len(all))
	}
}

// A check is one line of a scenario's checks.json.
type check struct {
	ID, Status, Description, ErrorMessage string
	Details                               json.RawMessage
}

// What the runner calls the folder of a scenario's results.
var (
	serverRun = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)
	clientRun = regexp.MustCompile(`^(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)
)

// scenarios makes a subtest of each scenario with results in dir.
func scenarios(t *testing.T, dir string, stamp *regexp.Regexp) (ran, passed int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		m := stamp.FindStringSubmatch(entry.Name())
		if m == nil {
			t.Errorf("results in %s: not the name of a scenario", entry.Name())
			continue
		}
		ran++
		if t.Run(m[1], func(t *testing.T) { judge(t, filepath.Join(dir, entry.Name(), "checks.json")) }) {
			passed++
		}
	}
	return ran, passed
}

func judge(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var checks []check
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatal(err)
	}
	if len(checks) == 0 {
		t.Error("the scenario has checked nothing")
	}
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS", "INFO":
		default:
			t.Errorf("%s: %s: %s\n%s\n%s", c.Status, c.ID, c.Description, c.ErrorMessage, c.Details)
		}
	}
}

// requireNode22 ends the test if the suite's runner would not start.
func requireNode22(t *testing.T, path string) {
	t.Helper()
	out := runNode(t, time.Minute, "-p", "process.versions.node.split('.')[0] >= 22")
	if string(out) != "true\n" {
		missing(t, "node22", path+" is older than version 22")
	}
}
