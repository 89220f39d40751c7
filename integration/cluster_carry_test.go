package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// kept waits until the store has of a session what it is asked for: records are written
// soon after they change.
func (f *fleet) kept(l *legacyClient, whole func(session.Record) bool) {
	f.t.Helper()
	client := f.store.Client()
	defer client.Close()
	s := store.New(client, store.Options{Prefix: "bridge", Owner: "test", Secrets: []string{clusterSecret}, Life: time.Hour})
	if h, ok := eventually(func() (session.Held, bool) {
		h, err := s.Find(f.t.Context(), session.Key(l.session))
		return h, err == nil && whole(h.Record)
	}); !ok {
		f.t.Fatalf("the store has %+v of the session", h.Record)
	}
}

// TestClusterCarry kills the owner of sessions with a remote server. Another instance goes
// on with the server's own sessions, whose state is as it was (S-033), also where the end
// of a connection is to be the session's (S-034): that ends with 404 where a child process
// was lost. The server is told of the end once, when the client says so.
func TestClusterCarry(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	remote := startRememberer(t)
	f := startFleetOf(t, 3, bridgeProgram(t), map[string]any{
		"remote": map[string]any{"http": map[string]any{"url": remote.URL}},
		"strict": map[string]any{"http": map[string]any{"url": remote.URL}, "restart": false},
		"child":  map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}, "restart": false},
	})
	owner := f.instances[0]
	soft, strict, child := f.begin(owner.base+"/remote"), f.begin(owner.base+"/strict"), f.begin(owner.base+"/child")
	counts := func(want string) {
		t.Helper()
		for name, l := range map[string]*legacyClient{"remote": soft, "strict": strict} {
			if fault := l.tries(`{"name":"count","arguments":{}}`, want); fault != "" {
				t.Errorf("%s: %s", name, fault)
			}
		}
	}
	counts("1")
	f.call(child, "echo", map[string]any{"message": "x"})
	for _, l := range []*legacyClient{soft, strict} {
		f.kept(l, func(r session.Record) bool { return len(r.Carry) == 1 })
	}
	owner.cmd.Process.Kill()
	<-owner.exited
	for _, p := range f.instances[1:] { // until then a call could be sent on a connection that ends under it
		f.seesOnly(p, 2)
	}
	for i, l := range []*legacyClient{soft, strict, child} {
		l.base = f.base + []string{"/remote", "/strict", "/child"}[i]
	}
	counts("2")
	counts("3")
	if res, body, err := insist(child.request(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)); err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("the session of a child that was lost = %v %s %v, want 404", res, body, err)
	}
	if began, ended := remote.sessions.Load(), remote.deleted.Load(); began != 2 || ended != 0 {
		t.Errorf("the server has begun %d sessions and was told of the end of %d", began, ended)
	}
	for _, l := range []*legacyClient{soft, strict} {
		if status := l.end(t); status != http.StatusNoContent {
			t.Errorf("DELETE = %d", status)
		}
	}
	if ended, ok := eventually(func() (int32, bool) { n := remote.deleted.Load(); return n, n == 2 }); !ok {
		t.Errorf("the server was told of the end of %d sessions, want 2", ended)
	}
}
