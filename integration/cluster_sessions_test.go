package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// terse is a remote server with sessions that answers at once, and counts what it executes.
type terse struct {
	*httptest.Server
	ran sync.Map // *atomic.Int32 by the tag of a call
}

func startTerse(t testing.TB) *terse {
	m := &terse{}
	var sessions atomic.Int32
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		q := gjson.ParseBytes(body)
		if err != nil || !q.Get("id").Exists() {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := "{}"
		switch q.Get("method").Str {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("terse-", sessions.Add(1)))
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"terse","version":"1"}}`
		case "tools/call":
			tag := q.Get("params.arguments.tag").Str
			n, _ := m.ran.LoadOrStore(tag, new(atomic.Int32))
			n.(*atomic.Int32).Add(1)
			result = fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, tag)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.Get("id").Raw, result)
	}))
	t.Cleanup(m.Close)
	return m
}

// many calls f with each number below n, so many at once.
func many(n, atOnce int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// TestClusterSessions has 10,000 sessions at one of three instances, and kills that one. All of them are asked for at once at the other two:
// each call succeeds, is executed once, and gets the answer of its own session (S-020,
// S-021, S-026, S-030). It says what a session takes in Redis, and how long all of that lasts.
func TestClusterSessions(t *testing.T) {
	t.Parallel()
	scaletest.Large(t)
	const sessions, atOnce = 10_000, 256
	server := startTerse(t)
	f := newFleet(t, map[string]any{"terse": map[string]any{"http": map[string]any{"url": server.URL}, "max_children": 2 * sessions}})
	f.program = plainBridgeProgram(t)
	f.settings = map[string]any{"max_sessions": 2 * sessions, "max_children": 2 * sessions}
	for range 3 {
		f.add()
	}
	for _, p := range f.instances {
		f.sees(p, 3)
	}
	redis := f.store.Client()
	defer redis.Close()
	info := func(section, name string) int64 {
		t.Helper()
		text, err := redis.Info(t.Context(), section).Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
				return gjson.Parse(value).Int()
			}
		}
		t.Fatalf("Redis does not say %s", name)
		return 0
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}
	t.Cleanup(client.CloseIdleConnections)
	post := func(base, id, body string) (int, http.Header, []byte, error) {
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "POST", base+"/mcp", strings.NewReader(body))
		if err != nil {
			return 0, nil, nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if id != "" {
			r.Header.Set("Mcp-Session-Id", id)
		}
		res, err := client.Do(r)
		if err != nil {
			return 0, nil, nil, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return res.StatusCode, res.Header, text, err
	}
	call := func(base, id, tag string) {
		status, _, text, err := post(base, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"x","arguments":{"tag":%q}}}`, tag, tag))
		if all := answers(text, fmt.Sprintf("%q", tag)); err != nil || len(all) != 1 || all[0].Get("result.content.0.text").Str != tag {
			t.Errorf("%s: %d %v %s", tag, status, err, bytes.TrimSpace(text))
		}
	}
	owner, others := f.instances[0], f.instances[1:]
	memory, commands := info("memory", "used_memory"), info("stats", "total_commands_processed")
	ids := make([]string, sessions)
	begun := time.Now()
	many(sessions, atOnce, func(i int) {
		_, header, text, err := post(owner.base, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"one of many","version":"1"}}}`)
		if ids[i] = header.Get("Mcp-Session-Id"); err != nil || ids[i] == "" {
			t.Errorf("initialize %d: %v %s", i, err, text)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d sessions begun in %v", sessions, time.Since(begun))
	begun = time.Now()
	many(sessions, atOnce, func(i int) { call(others[i%2].base, ids[i], fmt.Sprint("before ", i)) })
	t.Logf("a call of each by way of another instance in %v", time.Since(begun))
	if t.Failed() {
		t.FailNow()
	}
	for _, i := range []int{0, sessions / 2, sessions - 1} { // what is carried over is written soon after it is known
		f.kept(&legacyClient{session: ids[i]}, func(r session.Record) bool { return len(r.Carry) == 1 })
	}
	t.Logf("Redis: %d bytes and %.1f commands for each session", (info("memory", "used_memory")-memory)/sessions, float64(info("stats", "total_commands_processed")-commands)/sessions)
	_ = owner.cmd.Process.Kill()
	<-owner.exited
	begun = time.Now()
	many(sessions, atOnce, func(i int) { call(others[i%2].base, ids[i], fmt.Sprint("after ", i)) })
	took := time.Since(begun)
	t.Logf("all answered %v after the owner was killed, the lease of %v in it", took, lease)
	for _, p := range others {
		state := f.sees(p, 1)
		t.Logf("%s has taken over %d sessions", gjson.Get(state, "cluster.instance"), gjson.Get(state, "cluster.taken_over").Int())
	}
	for i := range sessions {
		for _, when := range []string{"before ", "after "} {
			n, _ := server.ran.Load(fmt.Sprint(when, i))
			if n == nil || n.(*atomic.Int32).Load() != 1 {
				t.Errorf("%s%d: not executed once", when, i)
			}
		}
	}
}
