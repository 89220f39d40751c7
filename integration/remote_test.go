package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// hostOf makes the handler of a server with one tool of that name, which says
// who it is.
func hostOf(name string) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// at serves a handler on an address of its own, or on the one given.
func at(t *testing.T, address string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// say calls a tool and returns its text.
func (p *peer) say(t *testing.T, tool string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := p.session.CallTool(ctx, &mcp.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	return r.Content[0].(*mcp.TextContent).Text, nil
}

func (p *peer) listTools(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var names []string
	for tool, err := range p.session.Tools(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// TestManyServers puts 500 servers behind one address, of which 20 are dead,
// each in one of four ways. All others are there, and a dead one joins when it
// comes to life.
func TestManyServers(t *testing.T) {
	scaletest.Large(t)
	const dead, servers = 20, 500
	mux := http.NewServeMux()
	for i := range servers {
		mux.Handle(fmt.Sprintf("/%d", i), hostOf(fmt.Sprint("host", i)))
	}
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "out of order", http.StatusBadGateway) })
	hosts := at(t, "127.0.0.1:0", mux)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	later := porttest.Address(t)
	named := map[string]any{}
	for i := range servers {
		kind := map[string]any{"http": map[string]any{"url": fmt.Sprintf("%s/%d", hosts.URL, i)}}
		if i < dead {
			kind = []map[string]any{
				{"http": map[string]any{"url": "http://" + later + "/mcp"}},
				{"http": map[string]any{"url": "http://" + silent.Addr().String() + "/mcp"}},
				{"http": map[string]any{"url": hosts.URL + "/broken"}},
				{"stdio": map[string]any{"command": fakeProgram(t) + "-that-is-not-there"}},
			}[i%4]
		}
		named[fmt.Sprintf("s%03d", i)] = kind
	}
	b := serveFile(t, configureNamed(t, map[string]any{"servers": named}))
	p := newPeer("many", true).connect(t, target{transport: "streamable", url: b.base + "/mcp"}, legacy)
	defer p.close(t)
	if n := len(p.listTools(t)); n != servers-dead {
		t.Errorf("%d tools are listed, want %d", n, servers-dead)
	}
	if got, err := p.say(t, fmt.Sprintf("s%03d__who", servers-1)); got != fmt.Sprint("host", servers-1) {
		t.Errorf("the last server says %q, %v", got, err)
	}
	if _, err := p.say(t, "s003__who"); err == nil || !strings.Contains(err.Error(), "s003") {
		t.Errorf("a dead server: %v, want an error that names it", err)
	}
	var ready struct {
		Ready   bool
		Servers []struct{ Name, State, Reason string }
	}
	r, err := http.Get(b.base + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, s := range ready.Servers {
		states[s.State]++
	}
	if !ready.Ready || states["ready"] != servers-dead || states["failing"]+states["starting"] != dead {
		t.Errorf("/readyz: ready %t, %v", ready.Ready, states)
	}
	from := p.mark()
	at(t, later, hostOf("late"))
	isChange := func(m message) bool { return m.method == "notifications/tools/list_changed" }
	for { // five servers are at that address, and each announces itself
		p.next(t, from, "the news of a server that is back", isChange)
		if n := len(p.listTools(t)); n == servers-dead+dead/4 {
			break
		}
		from++
	}
	if got, err := p.say(t, "s000__who"); got != "late" {
		t.Errorf("a server that came late says %q, %v", got, err)
	}
}

// TestRemoteRestarts ends a remote server between and during calls and starts
// another one in its place, which knows nothing of the sessions: clients go on,
// and each call has one outcome.
func TestRemoteRestarts(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{}, 16)
	release := make(chan struct{})
	host := func(name string) http.Handler {
		s := mcp.NewServer(&mcp.Implementation{Name: "host", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			hung <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return &mcp.CallToolResult{}, nil, nil
		})
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	}
	first := at(t, porttest.Address(t), host("first")) // where others take its place
	b := serveFile(t, configure(t, map[string]any{"http": map[string]any{"url": first.URL}}))
	var peers []*peer
	for _, where := range []target{{transport: "streamable", url: b.base + "/mcp"}, {transport: "sse", url: b.base + "/sse"}} {
		for range 4 {
			p := newPeer("restarts", true).connect(t, where, legacy)
			defer p.close(t)
			peers = append(peers, p)
		}
	}
	each := func(f func(p *peer)) {
		var all sync.WaitGroup
		for _, p := range peers {
			all.Go(func() { f(p) })
		}
		all.Wait()
	}
	want := func(name string) {
		t.Helper()
		each(func(p *peer) {
			got, err := p.say(t, "who")
			if err != nil && strings.Contains(err.Error(), "unknown") {
				// It was sent over a connection of whose end the bridge had not heard yet:
				// it may have arrived, so that only the client may repeat it.
				got, err = p.say(t, "who")
			}
			if got != name {
				t.Errorf("got %q, %v, want %q", got, err, name)
			}
		})
	}
	want("first")
	address := first.Listener.Addr().String()
	replace := func(s *httptest.Server, name string) *httptest.Server {
		s.Listener.Close()
		s.CloseClientConnections()
		return at(t, address, host(name))
	}
	second := replace(first, "second") // between calls
	want("second")
	var ended sync.WaitGroup
	for _, p := range peers {
		ended.Go(func() {
			if got, err := p.say(t, "hang"); err == nil {
				t.Errorf("a call that was cut off was answered %q", got)
			} else if !strings.Contains(err.Error(), "unknown") {
				t.Errorf("a call that was cut off: %v, want an error that says that its outcome is unknown", err)
			}
		})
	}
	for range peers {
		<-hung
	}
	replace(second, "third") // during calls
	close(release)
	ended.Wait()
	want("third")
}

// TestColdStart has a server that says nothing until the bridge has logged that it is
// slow, as package runners do that have to download first: the client waits, and gets
// one answer.
func TestColdStart(t *testing.T) {
	t.Parallel()
	fetched := filepath.Join(t.TempDir(), "fetched")
	p := startBridge(t, nil, "sh", "-c", `echo "fetching packages"; until [ -e "$1" ]; do sleep 0.1; done; exec "$0"`, fakeProgram(t), fetched)
	var fetching sync.WaitGroup
	fetching.Go(func() {
		eventually(func() (struct{}, bool) {
			return struct{}{}, strings.Contains(p.output.String(), "the server is still starting")
		})
		if err := os.WriteFile(fetched, nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	defer fetching.Wait()
	ctx := t.Context()
	r, err := openRaw(ctx, p.base)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.must(t, "echo", map[string]any{"message": "warm"}); got != "warm" {
		t.Errorf("echo = %q", got)
	}
	if err := r.end(ctx); err != nil {
		t.Error(err)
	}
}
