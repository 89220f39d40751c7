//go:build unix

package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// atWorkers are a server's settings with its processes at workers.
func atWorkers(s map[string]any) map[string]any {
	s["place"] = "workers"
	return s
}

// staff starts fronts behind nginx, and workers.
func staff(t *testing.T, fronts, workers int, servers map[string]any) (f *fleet, w []*process) {
	t.Helper()
	f = newFleet(t, servers)
	f.role, f.example = "front", "workers"
	f.balance(fronts)
	for range workers {
		w = append(w, f.worker())
	}
	return f, w
}

// worker starts one more worker, and waits until all fronts see it.
func (f *fleet) worker() *process {
	f.t.Helper()
	front := f.role
	f.role = "worker"
	p := f.add()
	f.instances = f.instances[:len(f.instances)-1] // clients do not use it
	f.role = front
	tag := gjson.Get(f.sees(p, len(f.instances)+1), "cluster.instance").Str
	for _, p := range f.instances {
		if state, ok := eventually(func() (string, bool) {
			state := f.sees(p, 1)
			return state, gjson.Get(state, `cluster.members.#(instance="`+tag+`").free`).Int() > 0
		}); !ok {
			f.t.Fatalf("no front sees the worker: %s", state)
		}
	}
	return p
}

// TestClusterWorkers plays clients of all transports and both eras through two fronts behind
// nginx, before servers whose processes are at two workers: calls, progress, logs,
// questions and cancellations come through, whichever front gets a request (S-001, S-025, S-050). No front starts a process (S-054). When the worker of a session is
// killed, another one goes on with it (S-051).
func TestClusterWorkers(t *testing.T) {
	t.Parallel()
	fake := map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}}
	f, workers := staff(t, 2, 2, map[string]any{
		"everything": atWorkers(kindOf(t, references[0], "stdio")), "fake": atWorkers(fake),
		"shared": atWorkers(map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}, "share": "all"}),
		"once":   atWorkers(map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}, "share": "call"}),
	})
	f.server = "/fake"
	t.Run("features", func(t *testing.T) {
		scaletest.Large(t)
		for _, client := range clients {
			for _, where := range []target{{transport: "streamable", url: f.base + "/everything/mcp"}, {transport: "sse", url: f.base + "/everything/sse"}} {
				t.Run(client.name+"/"+where.transport, func(t *testing.T) {
					t.Parallel()
					client.run(t, where, flavourOf(references[0], "stdio"))
				})
			}
		}
	})
	l := f.begin(f.base)
	before := f.call(l, "pid", nil)
	for range 6 {
		same(t, "the process of a session", f.call(l, "pid", nil), before)
	}
	t.Run("no session", func(t *testing.T) {
		for _, server := range []string{"fake", "shared", "once"} {
			pids := map[string]bool{}
			for i := range 6 {
				a := f.stateless(f.instances[i%2].base, server, "pid")
				pids[a.Get("result.content.0.text").Str] = true
			}
			if want := map[string]int{"once": 6}[server]; len(pids) != max(want, 1) || pids[""] {
				t.Errorf("%s: the processes %v", server, pids)
			}
		}
	})
	// (S-054): whoever has run here, no process of it was a front's.
	for i, p := range f.instances {
		for _, was := range p.family.ever() {
			t.Errorf("front %d has started %s", i, was)
		}
	}
	var its *process
	for _, p := range workers {
		if slices.ContainsFunc(p.family.look(), func(name string) bool { return strings.HasPrefix(name, before+" ") }) {
			its = p
		}
		res, err := http.Post(p.base+"/fake/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a worker answers a client with %d", res.StatusCode)
		}
	}
	if its == nil {
		t.Fatalf("no worker has started the process %s", before)
	}
	its.cmd.Process.Kill()
	<-its.exited
	its.allGone(t)
	if after, ok := eventually(func() (string, bool) { // a call that is sent before the end is noticed is lost
		a, _ := f.session(f.base, "fake", l.session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid","arguments":{}}}`)
		pid := a.Get("result.content.0.text").Str
		return a.Raw, pid != "" && pid != before
	}); !ok {
		t.Errorf("the session does not go on: %s", after)
	}
}
