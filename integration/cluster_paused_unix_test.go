//go:build unix

package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// halt stops a process, and waits until it has stopped: it goes on for a while.
func halt(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &state, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !state.Stopped() {
			t.Fatalf("the process does not stop: %v, state %#x", err, state)
		}
		return
	}
}

// TestClusterPaused stops the process of an owner, and lets it go on
// when its session has a new owner: it serves nothing of it (S-012), and sends what it
// gets to the new one. The same holds of what it was the home of: a connection of share:
// all, and one of clients without sessions.
func TestClusterPaused(t *testing.T) {
	t.Parallel()
	fake := map[string]any{"command": fakeProgram(t)}
	f := newFleet(t, map[string]any{"fake": map[string]any{"stdio": fake}, "all": map[string]any{"stdio": fake, "share": "all"}, "plain": map[string]any{"stdio": fake}})
	f.server = "/fake"
	for range 3 {
		f.add()
	}
	for _, p := range f.instances {
		f.sees(p, 3)
	}
	owner, other := f.instances[0], f.instances[1]
	l := f.begin(owner.base)
	old := f.call(l, "pid", nil)
	shared := []*guest{f.guest("all", true), f.guest("plain", false)}
	for _, g := range shared {
		for i := range f.instances { // the first of them becomes the home
			g.at(t, i)
		}
	}
	halt(t, owner)
	l.base = other.base + f.server
	stopped := time.Now()
	pid := func() (string, bool) {
		_, body, err := l.post(t.Context(), `{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":"pid","arguments":{}}}`)
		all := answers(body, `"p"`)
		if err != nil || len(all) != 1 {
			return string(body), false
		}
		return all[0].Get("result.content.0.text").Str, all[0].Get("result").Exists()
	}
	now, ok := eventually(pid)
	if !ok || now == old {
		t.Fatalf("the session is not taken over: %s", now)
	}
	t.Logf("taken over after %v", time.Since(stopped))
	for _, g := range shared {
		g.moves(t, 1)
	}
	t.Logf("shared connections: after %v", time.Since(stopped))
	for range scaletest.Of(5, 50) { // they are served by the new ones meanwhile
		if got := f.call(l, "pid", nil); got != now {
			t.Fatalf("served by process %s, want %s", got, now)
		}
		for _, g := range shared {
			g.at(t, 1)
			g.at(t, 2)
		}
	}
	if err := owner.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.base = owner.base + f.server
	if got, ok := eventually(pid); !ok || got != now { // 503 until it has reached the store, which it waits half a second for
		t.Fatalf("the old owner, awake again, answers %q, want process %s", got, now)
	}
	for range scaletest.Of(5, 50) {
		for i, p := range f.instances {
			for _, g := range shared {
				g.at(t, i)
			}
			l.base = p.base + f.server
			if got := f.call(l, "pid", nil); got != now {
				t.Fatalf("served by process %s of the old owner, want %s", got, now)
			}
		}
	}
	if state := f.sees(owner, 3); gjson.Get(state, "cluster.lost_to_others").Int() != 3 { // the session, and both homes
		t.Errorf("the old owner says %s", gjson.Get(state, "cluster").Raw)
	}
}

// guest calls one server at each instance, over a connection that all of them share.
type guest struct {
	f        *fleet
	server   string
	sessions []string // one at each instance; none for a client without sessions
	process  string   // which answers now
	lost     int      // calls that ended with an error, since it has changed
}

func (f *fleet) guest(server string, sessions bool) *guest {
	f.t.Helper()
	g := &guest{f: f, server: server}
	for _, p := range f.instances {
		if sessions {
			_, id := f.session(p.base, server, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			g.sessions = append(g.sessions, id)
		}
	}
	return g
}

// pid returns the process that answers a call at an instance, or an error of the bridge.
func (g *guest) pid(i int) (process, fault string) {
	g.f.t.Helper()
	var a gjson.Result
	if base := g.f.instances[i].base; g.sessions == nil {
		a = g.f.stateless(base, g.server, "pid")
	} else {
		a, _ = g.f.session(base, g.server, g.sessions[i], `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid","arguments":{}}}`)
	}
	return a.Get("result.content.0.text").Str, a.Raw
}

// moves waits until another process answers at an instance.
func (g *guest) moves(t *testing.T, i int) {
	t.Helper()
	old := g.process
	now, ok := eventually(func() (string, bool) {
		now, fault := g.pid(i)
		if now == old {
			t.Fatalf("%s: still served by process %s, whose instance is stopped", g.server, old)
		}
		return now + fault, now != ""
	})
	if !ok {
		t.Fatalf("%s does not go on: %s", g.server, now)
	}
	g.process, _ = g.pid(i)
	g.lost = 0
}

// at makes a call at an instance: the process that has answered before answers. A connection that an
// instance had to the one before may take a call yet, which is lost.
func (g *guest) at(t *testing.T, i int) {
	t.Helper()
	now, fault := g.pid(i)
	switch {
	case now == "" && g.process != "" && g.lost < len(g.f.instances):
		g.lost++
	case now == "":
		t.Fatalf("%s at instance %d: %s", g.server, i, fault)
	case g.process == "":
		g.process = now
	case now != g.process:
		t.Fatalf("%s at instance %d: served by process %s, want %s", g.server, i, now, g.process)
	}
}
