package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// stateless makes a call of a client of 2026-07-28 at an instance and returns its answer.
func (f *fleet) stateless(base, server, tool string) gjson.Result {
	f.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":%q,"arguments":{}}}`, tool)
	r, err := http.NewRequestWithContext(f.t.Context(), "POST", base+"/"+server+"/mcp", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		r.Header.Set(name, value)
	}
	a, _ := f.only(r)
	return a
}

// session makes a call of a session at an instance and returns its answer.
func (f *fleet) session(base, server, id, body string) (gjson.Result, string) {
	f.t.Helper()
	l := &legacyClient{base: base + "/" + server, session: id}
	a, res := f.only(l.request(f.t.Context(), http.MethodPost, body))
	return a, res.Header.Get("Mcp-Session-Id")
}

// only sends a request, and returns the one answer to it.
func (f *fleet) only(r *http.Request) (gjson.Result, *http.Response) {
	f.t.Helper()
	res, body, err := insist(r)
	if err != nil {
		f.t.Fatal(err)
	}
	all := answers(body, "1")
	if len(all) != 1 {
		f.t.Fatalf("%d answers: %d %s", len(all), res.StatusCode, body)
	}
	return all[0], res
}

// TestClusterHomes plays clients of both eras through three instances, before servers
// that each tell which process they are: shared connections are one process over all
// instances, and when its home is killed, another one goes on (S-040).
func TestClusterHomes(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	fake := map[string]any{"command": fakeProgram(t)}
	f := startFleetOf(t, 3, bridgeProgram(t), map[string]any{
		"all": map[string]any{"stdio": fake, "share": "all"}, "mine": map[string]any{"stdio": fake, "share": "principal"}, "plain": map[string]any{"stdio": fake},
	})
	const pid = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid","arguments":{}}}`
	live := map[int]*process{}
	for i, p := range f.instances {
		live[i] = p
	}
	sessions := map[string]string{}
	key := func(server string, i int) string { return fmt.Sprint(server, i) }
	for _, server := range []string{"all", "mine"} {
		for i, p := range f.instances {
			_, sessions[key(server, i)] = f.session(p.base, server, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		}
	}
	seen := func(lost int) map[string]string { // so many calls at most
		t.Helper()
		pids := map[string]string{}
		note := func(what string, a gjson.Result) {
			t.Helper()
			if lost > 0 && a.Get("error.data.bridge").Str == "upstream_lost" {
				lost--
				return
			}
			text := a.Get("result.content.0.text").Str
			if before := pids[what]; text == "" || before != "" && before != text {
				t.Errorf("%s: the process %s, then %s", what, before, a.Raw)
			}
			pids[what] = text
		}
		for range 2 {
			for i, p := range live {
				for _, server := range []string{"all", "mine"} {
					a, _ := f.session(p.base, server, sessions[key(server, i)], pid)
					note("sessions at "+server, a)
				}
				for _, server := range []string{"all", "mine", "plain"} {
					note("stateless at "+server, f.stateless(p.base, server, "pid"))
				}
			}
		}
		if pids["sessions at all"] != pids["stateless at all"] {
			t.Errorf("share: all has processes for sessions and for clients without: %v", pids)
		}
		return pids
	}
	before := seen(0)
	f.instances[0].cmd.Process.Kill() // the home of all: it was asked first, by one of its sessions
	delete(live, 0)
	killed := time.Now()
	after := seen(len(live) * 5) // each has connections to it that may take a call yet
	t.Logf("shared connections went on after %v", time.Since(killed))
	if before["sessions at all"] == after["sessions at all"] {
		t.Error("the instance that was killed was not the home")
	}
}
