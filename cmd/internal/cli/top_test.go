package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
)

// top and sessions show what is under way, to who may see it: by a URL and by the file, with
// a key and without (O-041).
func TestTop(t *testing.T) {
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	t.Setenv("DEV_KEY", "a-key-of-a-developer")
	t.Setenv("WRONG_KEY", "a-key-of-nobody-at-all")
	const plain = "listen: 127.0.0.1:%d\nservers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	const keyed = "listen: 127.0.0.1:%d\naccess:\n  - { name: ops, token: \"${OPS_KEY}\" }\n  - { name: dev, token: \"${DEV_KEY}\" }\nadmin: [ops]\nservers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	open := file(t, "bridge.yaml", fmt.Sprintf(plain, freePort(t)))
	closed := file(t, "bridge.yaml", fmt.Sprintf(keyed, freePort(t)))
	apart := file(t, "bridge.yaml", "console_listen: "+fmt.Sprint(freePort(t))+"\n"+fmt.Sprintf(plain, freePort(t)))
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
		{"by the file", []string{"top", "--once", "-c", open}, 0, []string{"not ready: no server works; 0 sessions"}, ""},
		{"at an address of its own, by the file", []string{"top", "--once", "-c", apart}, 0, []string{"SERVER", "one"}, ""},
		{"at an address of its own, which is not the clients'", []string{"top", "--once", "http://" + c}, 1, nil, "console_listen"},
		{"not to be drained there", []string{"drain", "http://" + c}, 1, nil, "console_listen"},
		{"to be drained by the file", []string{"drain", "-c", apart}, 0, []string{"the bridge is drained"}, ""},
		{"the state is at the clients' address, too", []string{"status", "-c", apart}, 1, []string{"drained"}, ""},
		{"with a key", []string{"top", "--once", "-c", closed, "--token-env", "OPS_KEY"}, 0, []string{"last failures:", "ops"}, ""},
		{"without a key", []string{"top", "--once", "-c", closed}, 1, nil, "--token-env"},
		{"with a wrong key", []string{"top", "--once", "-c", closed, "--token-env", "WRONG_KEY"}, 1, nil, "--token-env"},
		{"with a key that may not", []string{"top", "--once", "-c", closed, "--token-env", "DEV_KEY"}, 1, nil, "console: on"},
		{"too often", []string{"top", "http://" + a, "--every", "1ms"}, exit.Usage, nil, "at least 100ms"},
		{"of nobody", []string{"top", "http://127.0.0.1:1", "--once"}, exit.Server, nil, "does not answer"},
		{"both", []string{"sessions", "http://" + a, "-c", open}, exit.Usage, nil, "--config"},
		{"no variable", []string{"sessions", "http://" + a, "--token-env", "NO_KEY"}, exit.Usage, nil, "not set"},
		{"sessions", []string{"sessions", "http://" + a}, 0, []string{"no sessions"}, ""},
		{"sessions as JSON", []string{"sessions", "http://" + b, "--token-env", "OPS_KEY", "--json"}, 0, []string{`"total": 0`}, ""},
	} {
		code, stdout, stderr := in(t, tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.stderr) || (stderr == "") != (tc.stderr == "") {
			t.Errorf("%s: code %d, stdout %q, stderr %q", tc.name, code, stdout, stderr)
		}
		for _, want := range tc.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: %q is not in\n%s", tc.name, want, stdout)
			}
		}
	}
}

// What top shows of calls.
func TestTopText(t *testing.T) {
	var s topState
	var c topCalls
	for text, into := range map[string]any{
		`{"ready":false,"reason":"no server works","bridge":{"sessions":2,"calls":1,"connections":3},"process":{"memory_bytes":65011712,"calls_total":9},"servers":[{"name":"one","state":"failing","reason":"it is \u202eaway","circuit_breaker":"open","p50_ms":8.2,"p95_ms":41.6,"rss_bytes":63963136,"cpu_ms":92340,"drained":{"by":"ops"}}]}`: &s,
		`{"under_way":[{"server":"one","method":"tools/call","name":"x","principal":"dev","session":"1f0c9a7e","began":"2026-01-01T00:00:00Z"}],"failures":[{"server":"one","method":"tools/call","took_ms":12.4,"outcome":"lost","error":"gone"}]}`:                                                                                               &c,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	got := s.text(&c, c.Under[0].Began.Add(90e9), ", 1.5 calls/s", 0)
	for _, want := range []string{"not ready: no server works; 2 sessions, 1 call, 3 connections, 1.5 calls/s, 62 MiB", `it is \u202eaway`, "open", "1m30s", "1f0c9a7e", "12 ms", "lost", "8 ms", "42 ms", "61 MiB", "1m32.3s", "failing, drained"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
