package integration

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestClusterReplay kills the owner of a session amid a call whose stream its client reads.
// The client goes on at another instance: it gets what it has missed, none of it twice,
// one error for the call (S-031, S-032), and then the end.
func TestClusterReplay(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	remote := startRememberer(t)
	f := startFleetOf(t, 3, bridgeProgram(t), map[string]any{"remote": map[string]any{"http": map[string]any{"url": remote.URL}}})
	l := f.begin(f.instances[0].base + "/remote")
	res := l.open(t, http.MethodPost, "", `{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"sleep","arguments":{"message":"x","ms":20000},"_meta":{"progressToken":"p"}}}`)
	in := bufio.NewReader(res.Body)
	first := eventID(t, in)
	eventID(t, in)
	third := eventID(t, in) // by now the second is copied: they are 2 s apart
	f.instances[0].cmd.Process.Kill()
	res.Body.Close()
	l.base = f.instances[1].base + "/remote"
	again := l.open(t, http.MethodGet, first, "")
	body, err := io.ReadAll(again.Body)
	again.Body.Close()
	if err != nil || again.StatusCode != http.StatusOK {
		t.Fatalf("Last-Event-ID at another instance = %v, %v", again, err)
	}
	seen := map[string]int{}
	last := ""
	for line := range strings.Lines(string(body)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			seen[id]++
			last = id
		}
	}
	got := answers(body, `"long"`)
	if len(got) != 1 || got[0].Get("error.data.bridge").Str != "upstream_lost" || !strings.HasSuffix(strings.TrimSpace(string(body)), got[0].Raw) {
		t.Errorf("%d answers, want one upstream_lost at the end: %s", len(got), body)
	}
	stream, after, _ := replay.ParseID(first)
	if second := replay.ID(stream, after+1); seen[second] != 1 || seen[first] != 0 || seen[third] > 1 {
		t.Errorf("behind %s came %v: %s", first, seen, body)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("the event %s came %d times", id, n)
		}
	}
	// Once more, at the third instance: the same, and behind the last nothing.
	l.base = f.instances[2].base + "/remote"
	again = l.open(t, http.MethodGet, first, "")
	if more, err := io.ReadAll(again.Body); err != nil || len(answers(more, `"long"`)) != 1 {
		t.Errorf("once more = %v %s, %v", again, more, err)
	}
	again.Body.Close()
	again = l.open(t, http.MethodGet, last, "")
	if more, _ := io.ReadAll(again.Body); again.StatusCode != http.StatusBadRequest {
		t.Errorf("behind the end = %d %s, want 400", again.StatusCode, more)
	}
	again.Body.Close()
	if fault := l.tries(`{"name":"echo","arguments":{"message":"on"}}`, "on"); fault != "" {
		t.Errorf("the session does not go on: %s", fault)
	}
}

// open makes a request whose response is read as it comes.
func (l *legacyClient) open(t *testing.T, method, last, body string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, l.base+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", l.session)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// eventID reads to the end of an event, and returns its id.
func eventID(t *testing.T, in *bufio.Reader) (id string) {
	t.Helper()
	for began := time.Now(); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			id = at
		}
		if line == "\n" && id != "" {
			return id
		}
	}
}
