package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// A server, and the bridge itself, are drained and take calls again, for who may have it so.
func TestDrainCommand(t *testing.T) {
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	t.Setenv("DEV_KEY", "a-key-of-a-developer")
	const text = "listen: 127.0.0.1:%d\nconsole: on\naccess:\n  - { name: ops, token: \"${OPS_KEY}\" }\n  - { name: dev, token: \"${DEV_KEY}\" }\nadmin: [ops]\nservers:\n  one: { stdio: { command: cat } }\n  two: { stdio: { command: cat } }\n"
	config := file(t, "bridge.yaml", fmt.Sprintf(text, porttest.Reserve(t)))
	at := "http://" + served(t, config)
	for _, tc := range []struct {
		args           string
		code           int
		stdout, stderr string
		top            string // of which the first line has that afterwards
	}{
		{"drain one --token-env OPS_KEY -c " + config, 0, "one gets no new calls; 0 active calls, 0 parked until the client answers\n", "", "one     drained"},
		{"resume one --token-env OPS_KEY -c " + config, 0, "one gets calls again\n", "", ""},
		{"drain " + at + " two --for 1h --wait 1m --token-env OPS_KEY", 0, "two gets no new calls", "", "two     drained"},
		{"resume " + at + " two --token-env OPS_KEY", 0, "two gets calls again\n", "", ""},
		{"drain " + at + " --token-env OPS_KEY", 0, "the bridge is drained: /readyz answers 503\n", "", "The bridge is draining: "},
		{"resume " + at + " --token-env OPS_KEY", 0, "the bridge is not drained any more\n", "", ""},
		{"drain " + at + " one", 1, "", "--token-env", ""},
		{"drain " + at + " one --token-env DEV_KEY", 1, "", "admin", ""},
		{"drain " + at + " three --token-env OPS_KEY", 1, "", `no server "three"`, ""},
		{"drain " + at + " one --for 1ms --token-env OPS_KEY", 1, "", "for must be a time from 1s to 24h", ""},
		{"drain " + at + " one --for -1s --token-env OPS_KEY", exit.Usage, "", "--for must be longer than 0", ""},
		{"drain " + at + " one --wait 0s --token-env OPS_KEY", exit.Usage, "", "--wait must be longer than 0", ""},
		{"drain " + at + " --wait 1s --token-env OPS_KEY", exit.Usage, "", "--wait needs the name of a server", ""},
		{"drain " + at + " " + at, exit.Usage, "", "two URLs", ""},
		{"drain http://127.0.0.1:1 one", exit.Server, "", "nothing listens at 127.0.0.1:1: is the bridge running?", ""},
	} {
		code, stdout, stderr := in(t, strings.Fields(tc.args)...)
		if code != tc.code || !strings.HasPrefix(stdout, tc.stdout) || (stdout == "") != (tc.stdout == "") || !strings.Contains(stderr, tc.stderr) || (stderr == "") != (tc.stderr == "") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", tc.args, code, stdout, stderr)
		}
		_, top, _ := in(t, "top", at, "--once", "--token-env", "OPS_KEY")
		if is := strings.Contains(top, "drain"); tc.top != "" && !strings.Contains(top, tc.top) || tc.top == "" && is {
			t.Errorf("%s: then top shows\n%s", tc.args, top)
		}
	}
}

// Calls that go on are waited for, and after the time that is given the exit code says that
// there are some still.
func TestDrainWait(t *testing.T) {
	for _, never := range []bool{false, true} {
		var asked atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls := 0
			if n := asked.Add(1); never || n < 4 {
				calls = 1
			}
			fmt.Fprintf(w, `{"server":{"calls":%d,"parked_calls":%[1]d}}`, calls)
		}))
		wait, want, code := "1m", "0 active calls, 0 parked", 0
		if never {
			wait, want, code = "10ms", "1 active call, 1 parked", exit.Timeout
		}
		got, stdout, stderr := in(t, "drain", s.URL, "one", "--wait", wait)
		if got != code || !strings.Contains(stdout, want) || (stderr != "") != never || !never && asked.Load() != 4 {
			t.Errorf("exit code %d after %d answers: %s%s", got, asked.Load(), stdout, stderr)
		}
		s.Close()
	}
}
