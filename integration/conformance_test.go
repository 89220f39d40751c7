package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// conformanceRevisions are those that the suite knows, with the number of
// scenarios that exist for each, so that none drops out unnoticed.
var conformanceRevisions = []struct {
	revision  string
	scenarios int
}{
	{"2025-03-26", 1},
	{"2025-06-18", 27},
	{legacy, 33},
	{modern, 40},
}

// The ways in which the Go SDK's server for the suite can be served.
var conformanceUpstreams = []string{"stdio", "http-stateless", "http-sessions"}

// TestConformance runs the protocol's own conformance suite through the bridge
// against the server that the Go SDK has for it, over each transport that the
// server offers. It is strict: a scenario passes only if no check of it
// failed, warned or was skipped. conformance-expected.json has what does not
// pass without a bridge either, and nothing else. Unless the whole matrix is
// asked for, one revision is played over one transport.
func TestConformance(t *testing.T) {
	t.Parallel()
	requireNode22(t, node(t))
	expected := loadExpected(t)
	for _, upstream := range conformanceUpstreams {
		for _, test := range conformanceRevisions {
			if !whole && (upstream != "stdio" || test.revision != modern) {
				continue
			}
			t.Run(upstream+"/"+test.revision, func(t *testing.T) {
				t.Parallel()
				var url string
				if upstream == "stdio" {
					url = startBridge(t, nil, conformanceProgram(t)).base + "/mcp"
				} else {
					url = serveFile(t, configure(t, map[string]any{"http": map[string]any{"url": startConformance(t, upstream)}})).base + "/mcp"
				}
				runConformance(t, url, test.revision, test.scenarios, failing(expected.Bridge, upstream, test.revision))
			})
		}
	}
}

// TestConformanceDirect runs the suite without a bridge: what fails here is
// not the bridge's fault, and all else is.
func TestConformanceDirect(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	requireNode22(t, node(t))
	expected := loadExpected(t)
	for _, upstream := range conformanceUpstreams {
		for _, test := range conformanceRevisions {
			bridged := failing(expected.Bridge, upstream, test.revision)
			if upstream == "stdio" { // which the suite does not speak
				if len(bridged) > 0 {
					t.Errorf("stdio, %s: nothing may fail: %v", test.revision, bridged)
				}
				continue
			}
			t.Run(upstream+"/"+test.revision, func(t *testing.T) {
				t.Parallel()
				direct := failing(expected.Direct, upstream, test.revision)
				for scenario := range bridged {
					if _, ok := direct[scenario]; !ok {
						t.Errorf("%s is expected to fail with a bridge, but not without one", scenario)
					}
				}
				runConformance(t, startConformance(t, upstream), test.revision, test.scenarios, direct)
			})
		}
	}
}

// runConformance runs the suite's scenarios of a revision against a server.
func runConformance(t *testing.T, url, revision string, want int, failing map[string]string) {
	t.Helper()
	results := t.TempDir()
	// The exit code says less than the results: a warning leaves it at 0.
	log := runNode(t, modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "server",
		"--url", url, "--suite", "all", "--spec-version", revision, "--output-dir", results)
	ran, passed := scenarios(t, results, serverRun, failing, nil)
	t.Logf("%d of %d scenarios passed at %s", passed, ran, revision)
	if ran != want {
		t.Errorf("%d scenarios ran, want %d; the runner wrote\n%s", ran, want, log)
	}
}

// startConformance starts the Go SDK's server for the suite over HTTP and
// returns its address.
func startConformance(t *testing.T, upstream string) string {
	t.Helper()
	address := porttest.Address(t)
	cmd := exec.Command(conformanceProgram(t), "-http", address, fmt.Sprint("-stateless=", upstream == "http-stateless"))
	output := &tail{}
	cmd.Stdout, cmd.Stderr = lineWriter{output}, lineWriter{output}
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = left()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, ok := eventually(func() (struct{}, bool) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return struct{}{}, err == nil
	}); !ok {
		t.Fatalf("%v does not listen\n%s", cmd, output)
	}
	return "http://" + address + "/mcp"
}

// TestConformanceClient runs the suite's scenarios for clients with the referee
// as the bridge's upstream and the client that the Go SDK has for it in front.
// Unless the whole matrix is asked for, one revision is played: the other than TestConformance has then.
func TestConformanceClient(t *testing.T) {
	t.Parallel()
	requireNode22(t, node(t))
	expected := loadExpected(t)
	command := strings.Join([]string{behindProgram(t), bridgeProgram(t), conformanceClientProgram(t)}, " ")
	for _, test := range []struct {
		revision  string
		scenarios []string // those that are not about authorization
	}{
		{legacy, []string{"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "json-schema-2020-12-preservation"}},
		{modern, []string{
			"tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers", "http-custom-headers",
			"http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
		}},
	} {
		if !whole && test.revision != legacy {
			continue
		}
		t.Run(test.revision, func(t *testing.T) {
			t.Parallel()
			results := t.TempDir()
			for _, scenario := range test.scenarios {
				runNode(t, modulePath(t, "@modelcontextprotocol/conformance/dist/index.js"), "client",
					"--scenario", scenario, "--command", command, "--timeout", fmt.Sprint(left().Milliseconds()), "--spec-version", test.revision, "--output-dir", results)
			}
			if ran, _ := scenarios(t, results, clientRun, nil, expected.skipped(test.revision)); ran != len(test.scenarios) {
				t.Errorf("%d scenarios ran, want %d", ran, len(test.scenarios))
			}
		})
	}
}

// expectations is what does not pass, and why.
type expectations struct {
	Direct, Bridge []expectedFailures
	Skipped        []struct {
		Reason, Revision, Scenario, Check string
		Descriptions                      []string
	}
}

// expectedFailures are scenarios that fail for one reason.
type expectedFailures struct {
	Upstream, Reason     string
	Revisions, Scenarios []string
}

func loadExpected(t *testing.T) (e expectations) {
	t.Helper()
	text, err := os.ReadFile("conformance-expected.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	for _, group := range slices.Concat(e.Direct, e.Bridge) {
		if group.Reason == "" {
			t.Errorf("conformance-expected.json has no reason for %v", group.Scenarios)
		}
	}
	return e
}

// failing returns why each scenario fails that is expected to, of those for
// one way to serve and one revision.
func failing(groups []expectedFailures, upstream, revision string) map[string]string {
	found := map[string]string{}
	for _, group := range groups {
		if group.Upstream != upstream || !slices.Contains(group.Revisions, revision) {
			continue
		}
		for _, scenario := range group.Scenarios {
			found[scenario] = group.Reason
		}
	}
	return found
}

// skipped reports whether a check of a client is skipped without a bridge too.
func (e expectations) skipped(revision string) func(scenario string, c check) bool {
	return func(scenario string, c check) bool {
		for _, s := range e.Skipped {
			if s.Revision == revision && s.Scenario == scenario && s.Check == c.ID && slices.Contains(s.Descriptions, c.Description) {
				return true
			}
		}
		return false
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

// scenarios makes a subtest of each scenario with results in dir. One that is
// expected to fail must do so: what has come to pass stays that way. skipped
// tells which checks may be skipped; nil is none.
func scenarios(t *testing.T, dir string, stamp *regexp.Regexp, failing map[string]string, skipped func(string, check) bool) (ran, passed int) {
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
		t.Run(m[1], func(t *testing.T) {
			faults := judge(t, filepath.Join(dir, entry.Name(), "checks.json"), func(c check) bool {
				return skipped != nil && skipped(m[1], c)
			})
			reason, expected := failing[m[1]]
			switch {
			case expected && len(faults) == 0:
				t.Errorf("passes, but conformance-expected.json says that it does not (%s): take it out there", reason)
			case expected:
				t.Logf("fails as expected: %s", reason)
			case len(faults) > 0:
				t.Error(strings.Join(faults, "\n"))
			}
			if len(faults) == 0 {
				passed++
			}
		})
	}
	return ran, passed
}

// judge returns what is wrong in a scenario's results.
func judge(t *testing.T, path string, skipped func(check) bool) (faults []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var checks []check
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatal(err)
	}
	if len(checks) == 0 {
		return []string{"the scenario has checked nothing"}
	}
	for _, c := range checks {
		switch {
		case c.Status == "SKIPPED" && skipped(c):
		case skipped(c):
			faults = append(faults, fmt.Sprintf("%s is not skipped any more: take it out of conformance-expected.json", c.ID))
		case c.Status == "SUCCESS", c.Status == "INFO":
		default:
			faults = append(faults, fmt.Sprintf("%s: %s: %s\n%s\n%s", c.Status, c.ID, c.Description, c.ErrorMessage, c.Details))
		}
	}
	return faults
}

// requireNode22 ends the test if the suite's runner would not start.
func requireNode22(t *testing.T, path string) {
	t.Helper()
	out := runNode(t, "-p", "process.versions.node.split('.')[0] >= 22")
	if string(out) != "true\n" {
		programtest.Missing(t, "node22", fmt.Errorf("%s is older than version 22", path))
	}
}
