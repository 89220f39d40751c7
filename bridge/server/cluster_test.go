package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
)

// instanceOf returns the configuration of an instance in front of the echo server.
func instanceOf(tb testing.TB, store *redistest.Server) *config.Config {
	tb.Helper()
	c := config.Default()
	c.Servers = []config.Server{child(tb, "b")}
	c.Cluster.Redis, c.Cluster.Secret = "redis://"+store.Address, strings.Repeat("secret of the test ", 3)
	c.Cluster.Listen, c.Cluster.Lease = "127.0.0.1:0", 9*time.Second // a beat of a starved process takes seconds
	return &c
}

// lines is a log that is looked at.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// until waits for something that another goroutine does.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for !is() {
		time.Sleep(10 * time.Millisecond)
	}
}

// readyz returns what an instance says of itself.
func readyz(tb testing.TB, address string) gjson.Result {
	tb.Helper()
	res, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return gjson.ParseBytes(text).Get("cluster")
}

// asks makes a request to an instance.
func asks(tb testing.TB, address, method, body string, headers ...string) (*http.Response, string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, "http://"+address+"/mcp", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res, string(text)
}

// Two bridges in one program are two instances (S-004). A call says in the access log
// which instance has made it, and which one has sent it on, whatever clients say in
// headers of the bridge's own (S-081).
func TestClusterEmbedded(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	const alice, bob = "the key of alice 1", "the key of bob 12345"
	said, dir := &lines{}, t.TempDir()
	start := func(name string, change func(*config.Config)) (string, func()) {
		c := instanceOf(t, store)
		c.AccessLog.To = filepath.Join(dir, name)
		c.Access = []config.Access{{Name: "alice", Token: strings.ReplaceAll(alice, " ", "-")}, {Name: "bob", Token: strings.ReplaceAll(bob, " ", "-")}}
		c.PublicStatus = true
		if change != nil {
			change(c)
		}
		return serveAs(t, c, slog.New(slog.NewTextHandler(said, nil)))
	}
	a, stopA := start("a", nil)
	b, stopB := start("b", func(c *config.Config) { c.Servers = append(c.Servers, child(t, "more")) })
	key := func(key string) string { return "Bearer " + strings.ReplaceAll(key, " ", "-") }
	for _, at := range []string{a, b} {
		until(t, "two members", func() bool { return readyz(t, at).Get("members.#").Int() == 2 })
	}
	if ms := readyz(t, a).Get("store_ms"); ms.Float() <= 0 {
		t.Errorf("store_ms = %q", ms.Raw)
	}
	res, text := asks(t, a, "POST", handshake, "Authorization", key(alice))
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != http.StatusOK || id == "" {
		t.Fatalf("initialize = %v %s", res.Status, text)
	}
	for i, at := range []string{a, b} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"b__echo","arguments":{"message":"m"}}}`, i)
		headers := []string{"Authorization", key(alice), "Mcp-Session-Id", id, "Bridge-Front", "FORGED", "Bridge-Principal", "Ym9i", "Bridge-Hops", "1"}
		if res, text := asks(t, at, "POST", body, headers...); res.StatusCode != http.StatusOK || gjson.Get(text, "result").Raw == "" {
			t.Errorf("call %d = %v %s", i, res.Status, text)
		}
		// (S-026): the session of another caller does not exist, at no instance.
		if res, text := asks(t, at, "POST", body, "Authorization", key(bob), "Mcp-Session-Id", id); res.StatusCode != http.StatusNotFound {
			t.Errorf("the same with another key = %v %s", res.Status, text)
		}
		if res, text := asks(t, at, "DELETE", "", "Authorization", key(bob), "Mcp-Session-Id", id, "Bridge-Principal", "YWxpY2U"); res.StatusCode != http.StatusNotFound {
			t.Errorf("DELETE with another key = %v %s", res.Status, text)
		}
	}
	for _, want := range []string{"policy=allkeys-lru", "an instance has other servers"} {
		until(t, want, func() bool { return strings.Contains(said.String(), want) })
	}
	tagA, tagB := readyz(t, a).Get("instance").Str, readyz(t, b).Get("instance").Str
	stopB()
	stopA()
	var calls []string
	for _, name := range []string{"a", "b"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var l struct{ Method, Instance, Front, Principal string }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if l.Method == "tools/call" {
				calls = append(calls, fmt.Sprint(name, " ", l.Instance, " ", l.Front, " ", l.Principal))
			}
		}
	}
	if want := []string{"a " + tagA + "  alice", "a " + tagA + " " + tagB + " alice"}; fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("the access logs have %q, want %q", calls, want)
	}
}

// An instance does not start where another one answers in its place; an instance with
// another secret is told of.
func TestClusterMistakes(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	said := &lines{}
	log := slog.New(slog.NewTextHandler(said, nil))
	a, _ := serveAs(t, instanceOf(t, store), log)
	until(t, "one member", func() bool { return readyz(t, a).Get("members.#").Int() == 1 })
	c := instanceOf(t, store)
	c.Listen = "127.0.0.1:0"
	c.Cluster.Advertise = readyz(t, a).Get("members.0.address").Str
	second := server.New(c, log)
	l, err := second.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "where another instance answers ("+readyz(t, a).Get("instance").Str+")") {
		t.Errorf("Serve = %v", err)
	}
	c = instanceOf(t, store)
	c.Cluster.Secret = "another secret of 32 characters or more"
	b, _ := serveAs(t, c, log)
	until(t, "a word about the secret", func() bool { return strings.Contains(said.String(), "has another secret") })
	if n := readyz(t, b).Get("members.#").Int(); n > 1 {
		t.Errorf("one with another secret sees %d members", n)
	}
}
