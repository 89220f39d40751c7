package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// top and sessions show what is under way, to who may see it: by a URL and by the file, with
// a key and without (O-041).
func TestTop(t *testing.T) {
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	t.Setenv("DEV_KEY", "a-key-of-a-developer")
	t.Setenv("WRONG_KEY", "a-key-of-nobody-at-all")
	const plain = "listen: 127.0.0.1:%d\nservers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	const keyed = "listen: 127.0.0.1:%d\naccess:\n  - { name: ops, token: \"${OPS_KEY}\" }\n  - { name: dev, token: \"${DEV_KEY}\" }\nadmin: [ops]\nservers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	open := file(t, "bridge.yaml", fmt.Sprintf(plain, porttest.Reserve(t)))
	closed := file(t, "bridge.yaml", fmt.Sprintf(keyed, porttest.Reserve(t)))
	apart := file(t, "bridge.yaml", "console_listen: "+fmt.Sprint(porttest.Reserve(t))+"\n"+fmt.Sprintf(plain, porttest.Reserve(t)))
	a, b, c := served(t, open), served(t, closed), served(t, apart)
	for _, at := range []struct{ address, key string }{{a, ""}, {b, "a-key-of-the-operators"}} { // a call that fails
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+at.address+"/one/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if at.key != "" {
			r.Header.Set("X-API-Key", at.key)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body) // until it has failed
		res.Body.Close()
	}
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stdout []string
		stderr string
	}{
		{"by a URL", []string{"top", "http://" + a, "--once"}, 0, []string{"SERVER", "one", "last failures:", "initialize", "unavailable"}, ""},
		{"by the file", []string{"top", "--once", "-c", open}, 0, []string{"The server is failing: one\n0 sessions, 0 active calls"}, ""},
		{"at an address of its own, by the file", []string{"top", "--once", "-c", apart}, 0, []string{"SERVER", "one"}, ""},
		{"at an address of its own, which is not the clients'", []string{"top", "--once", "http://" + c}, 1, nil, "console_listen"},
		{"not to be drained there", []string{"drain", "http://" + c}, 1, nil, "console_listen"},
		{"to be drained by the file", []string{"drain", "-c", apart}, 0, []string{"the bridge is drained"}, ""},
		{"the state is at the clients' address, too", []string{"status", "-c", apart}, 1, []string{"drained"}, ""},
		{"as JSON", []string{"top", "http://" + a, "--once", "--json"}, 0, []string{`{"at":"`, `"status":{`, `"failures":[{`}, ""},
		{"with a key", []string{"top", "--once", "-c", closed, "--token-env", "OPS_KEY"}, 0, []string{"last failures:", "ops"}, ""},
		{"without a key", []string{"top", "--once", "-c", closed}, 1, nil, "--token-env"},
		{"with a wrong key", []string{"top", "--once", "-c", closed, "--token-env", "WRONG_KEY"}, 1, nil, "--token-env"},
		{"with a key that may not", []string{"top", "--once", "-c", closed, "--token-env", "DEV_KEY"}, 1, nil, "console: on"},
		{"too often", []string{"top", "http://" + a, "--every", "1ms"}, exit.Usage, nil, "at least 100ms"},
		{"of nobody", []string{"top", "http://127.0.0.1:1", "--once"}, exit.Server, nil, "nothing listens at 127.0.0.1:1"},
		{"both", []string{"sessions", "http://" + a, "-c", open}, exit.Usage, nil, "--config"},
		{"no variable", []string{"sessions", "http://" + a, "--token-env", "NO_KEY"}, exit.Usage, nil, "not set"},
		{"sessions", []string{"sessions", "http://" + a}, 0, []string{"no sessions"}, ""},
		{"sessions as JSON", []string{"sessions", "http://" + b, "--token-env", "OPS_KEY", "--json"}, 0, []string{`"total": 0`}, ""},
	} {
		contains(t, says(t, tc.code, "*", tc.stderr, tc.args...), tc.stdout...)
	}
}

// topFixture is what a bridge with three servers answers.
var topFixture = map[string]string{
	"status": `{"ready":true,"bridge":{"sessions":2,"calls":1,"connections":3},"process":{"memory_bytes":65011712},"servers":[
		{"name":"files","state":"ready","calls":1,"queued":2,"p50_ms":8.2,"p95_ms":41.6,"rss_bytes":63963136,"cpu_ms":92340},
		{"name":"notes","state":"idle","drained":{"by":"ops"}},
		{"name":"tickets","state":"failing","reason":"it is \u202eaway","circuit_breaker":"open"}]}`,
	"calls": `{"under_way":[{"server":"files","method":"tools/call","name":"read_file","principal":"dev","session":"1f0c9a7e","began":"2026-01-01T00:00:00Z"}],
		"failures":[{"server":"tickets","method":"tools/call","took_ms":12.4,"outcome":"lost","error":"gone"}]}`,
	"series": `{"step":5000,"to":1,"points":180,"total":{"calls":[90,0,0,0,0,0,45]},"servers":[{"server":"files","calls":[3,0,0,0,0,0,0,0,0,0,0,0,0,15,30],"errors":[2,1],"tool_errors":[4,3]},{"server":"notes"}],"marks":[]}`,
}

// fixedView is a view of answers.
func fixedView(t *testing.T, answers map[string]string) *topView {
	t.Helper()
	v := &topView{At: time.Date(2026, 1, 1, 0, 1, 30, 0, time.UTC)}
	for name, into := range map[string]any{"status": &v.state, "calls": &v.calls, "series": &v.series} {
		if text := answers[name]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	return v
}

// TestTopText reads the view: failing servers come first. A bridge without series has no columns for calls.
func TestTopText(t *testing.T) {
	got := fixedView(t, topFixture).text(screen{})
	contains(t, got,
		"1 of 3 servers failing: tickets\n2 sessions, 1 active call, 3 connections, 1.5 calls/s, 62 MiB\n\nSERVER ",
		"\ntickets  circuit open  0.0 ", "\nnotes    drained  ", "\nfiles    ready         1.5      3       7         ·············▁█  1       2       8 ms  42 ms  0 ", "61 MiB", "1m32.3s",
		"\ntickets: it is \\u202eaway\n", "tools/call read_file", "1m30s", "1f0c9a7e", "12 ms", "lost", "gone",
	)
	if strings.Index(got, "\ntickets") > strings.Index(got, "\nfiles") {
		t.Errorf("the failing server is not the first in\n%s", got)
	}
	got = fixedView(t, map[string]string{"status": topFixture["status"]}).text(screen{})
	for _, not := range []string{"CALLS/S", "calls/s", "FAILED", "15 MIN", "active calls:"} {
		if strings.Contains(got, not) {
			t.Errorf("without series and calls, %q is in\n%s", not, got)
		}
	}
}

// The keys of top sort the servers, turn their order around, and are explained.
func TestTopKeys(t *testing.T) {
	v := fixedView(t, topFixture)
	for _, tc := range []struct {
		key   byte
		names []string // in their order
		want  string
	}{
		{' ', []string{"tickets", "notes", "files"}, "STATE   "},
		{'s', []string{"files", "tickets", "notes"}, "CALLS/S↓"},
		{'s', []string{"files", "tickets", "notes"}, "FAILED↓"},
		{'s', []string{"files", "tickets", "notes"}, "TOOL ERR↓"},
		{'r', []string{"tickets", "notes", "files"}, "TOOL ERR↑"},
		{'?', []string{"tickets", "notes", "files"}, "r turns the order around"},
		{'s', []string{"files", "tickets", "notes"}, "P95↓"},
		{'s', []string{"files", "tickets", "notes"}, "MEMORY↓"},
		{'s', []string{"tickets", "notes", "files"}, "STATE   "},
		{'?', []string{"tickets", "notes", "files"}, "62 MiB\n\nSERVER"},
	} {
		v.by = v.by.press(tc.key)
		got := v.text(screen{})
		at := []int{strings.Index(got, "\n"+tc.names[0]+" "), strings.Index(got, "\n"+tc.names[1]+" "), strings.Index(got, "\n"+tc.names[2]+" ")}
		if !slices.IsSorted(at) || at[0] < 0 || !strings.Contains(got, tc.want) {
			t.Errorf("after %q, %v and %q are wanted, in this order, in\n%s", tc.key, tc.names, tc.want, got)
		}
	}
}

// Numbers that no bridge sends do no harm.
func TestTopNumbers(t *testing.T) {
	for _, series := range []string{
		`{"step":0.0000001,"servers":[{"server":"files","calls":[1,2]}]}`,
		`{"step":1e308,"servers":[{"server":"files","calls":[1,2]}]}`,
		`{"step":-5,"servers":[{"server":"files","calls":[1,2]}]}`,
		`{"step":5000,"servers":[{"server":"files","calls":[-3,-9,7]}]}`,
		`{"step":60000,"servers":[{"server":"files","calls":[-3,-9,7]}]}`,
		`{"step":5000,"total":{"calls":[1e308,1e308]},"servers":[{"server":"files","calls":[1e308,1e308]}]}`,
	} {
		if got := fixedView(t, map[string]string{"status": topFixture["status"], "series": series}).text(screen{}); !strings.Contains(got, "\nfiles ") {
			t.Errorf("%s: the server is not in\n%s", series, got)
		}
	}
}

// While a bridge restarts, top says so and shows the last state. It ends when the bridge refuses it.
func TestTopAgain(t *testing.T) {
	statuses := []int{200, 502, 200, 401}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		if name == "status" {
			status := statuses[0]
			if statuses = statuses[1:]; status != 200 {
				w.WriteHeader(status)
				return
			}
		}
		io.WriteString(w, topFixture[name])
	}))
	defer s.Close()
	stdout := says(t, exit.Failure, "*", "--token-env", "top", s.URL, "--every", "100ms")
	if strings.Count(stdout, "servers failing: tickets") != 2 || strings.Count(stdout, "\nfiles ") != 3 || !strings.Contains(stdout, "\n"+s.URL+" answers with status 502\n2 sessions") {
		t.Errorf("top shows\n%s", stdout)
	}
}

// Nothing that a bridge answers controls the terminal.
func TestTopControls(t *testing.T) {
	const evil = `"\u001b]0;x\u0007"`
	v := fixedView(t, map[string]string{
		"status": `{"ready":true,"servers":[{"name":` + evil + `,"state":` + evil + `,"transport":` + evil + `,"revision":` + evil + `},{"name":"b","state":"ready","forced":{"breaker":` + evil + `}}]}`,
		"calls":  `{"under_way":[{"server":` + evil + `,"session":` + evil + `}],"failures":[{"outcome":` + evil + `}]}`,
	})
	for _, got := range []string{v.text(screen{}), v.state.status(v.At, screen{})} {
		if strings.ContainsAny(got, "\x1b\a") || !strings.Contains(got, "␛]0;x␇") {
			t.Errorf("control characters are in\n%q", got)
		}
	}
}

// top fits into its terminal, in both directions, and keeps what matters.
func TestTopFits(t *testing.T) {
	v := fixedView(t, topFixture)
	for i := range 40 {
		name := fmt.Sprintf("a-server-with-quite-a-long-name-%d", i)
		v.state.Servers = append([]status.Server{{Name: name, State: "ready", Transport: "stdio", Revision: "2025-11-25"}}, v.state.Servers...)
		v.calls.Active = append(v.calls.Active, topCall{Server: name, Method: "tools/call", Name: strings.Repeat("long", 30), Principal: "dev", Session: "1f0c9a7e"})
		v.calls.Failures = append(v.calls.Failures, topCall{Server: name, Method: "tools/call", Error: strings.Repeat("long ", 30), Outcome: "unavailable"})
	}
	ansi := regexp.MustCompile("\x1b\\[[0-9]*m")
	for _, size := range [][2]int{{80, 24}, {40, 12}, {200, 30}, {20, 6}} {
		on := screen{width: size[0], rows: size[1] - 1, color: true}
		got := v.text(on)
		lines := strings.SplitAfter(strings.TrimSuffix(ansi.ReplaceAllString(got, ""), "\n"), "\n")
		if len(lines) > on.rows {
			t.Errorf("%v: %d lines\n%s", size, len(lines), got)
		}
		for _, line := range lines {
			if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > on.width {
				t.Errorf("%v: a line of %d columns: %s", size, n, line)
			}
		}
		wants := []string{"\x1b[33m1 of 43 ", "\nand "}
		if size[0] >= 80 {
			wants = append(wants, "failing: tickets", "tickets ", "\x1b[31mcircuit open\x1b[0m", "\x1b[33mdrained\x1b[0m", "\x1b[32mready\x1b[0m", "\nactive calls:\n", "\nlast failures:\n")
		}
		contains(t, got, wants...)
	}
}

// The sentence of the state has the words of the console.
func TestSentence(t *testing.T) {
	one, two, three := status.Server{Name: "one", State: "ready"}, status.Server{Name: "two", State: "idle"}, status.Server{Name: "three", State: failing}
	drained, open, half := status.Server{Name: "drained", State: "idle", Drained: &status.Drain{}}, status.Server{Name: "open", State: failing, Breaker: "open"}, status.Server{Name: "half", State: "ready", Breaker: "half-open"}
	for _, test := range []struct {
		state status.Bridge
		want  string
		color string
	}{
		{status.Bridge{Ready: true, Servers: []status.Server{one}}, "The server is working", green},
		{status.Bridge{Ready: true, Servers: []status.Server{one, two}}, "All 2 servers working", green},
		{status.Bridge{Ready: true, Servers: []status.Server{one, three, open}}, "2 of 3 servers failing: three, open", yellow},
		{status.Bridge{Reason: "no server works", Servers: []status.Server{three, open}}, "All 2 servers failing: three, open", red},
		{status.Bridge{Ready: true, Servers: []status.Server{three}}, "The server is failing: three", red},
		{status.Bridge{Reason: "this instance cannot reach the store", Servers: []status.Server{one}}, "Not ready: this instance cannot reach the store", red},
		{status.Bridge{Ready: true, Servers: []status.Server{one, half, drained}}, "1 of 3 servers refused by the circuit breaker: half", yellow},
		{status.Bridge{Ready: true, Servers: []status.Server{one, drained}}, "1 of 2 servers drained: drained", yellow},
		{status.Bridge{Drained: &status.Drain{}, Reason: "drained by an operator", Servers: []status.Server{three}}, "The bridge is draining: drained by an operator", yellow},
		{status.Bridge{Ready: true}, "No servers", yellow},
	} {
		if got, color := (&bridgeState{Bridge: test.state}).sentence(); got != test.want || color != test.color {
			t.Errorf("%+v: %q in color %s, want %q in %s", test.state, got, color, test.want, test.color)
		}
	}
}

// status fits into the width of its terminal.
func TestStatusFits(t *testing.T) {
	v := fixedView(t, topFixture)
	v.state.Servers[0].LastError = strings.Repeat("a long error ", 20)
	for _, width := range []int{80, 40, 20} {
		got := v.state.status(v.At, screen{width: width})
		for line := range strings.Lines(got) {
			if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d columns on %d: %s", n, width, line)
			}
		}
		if !strings.Contains(got, "circuit open") && width > 20 {
			t.Errorf("the state is not in\n%s", got)
		}
	}
}
