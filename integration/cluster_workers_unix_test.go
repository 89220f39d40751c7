//go:build unix

package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// busy returns the worker that a front has connections to.
func (f *fleet) busy(front *process) *process {
	f.t.Helper()
	state, ok := eventually(func() (string, bool) {
		state := f.sees(front, 1)
		return state, len(gjson.Get(state, "cluster.workers.connections").Map()) == 1
	})
	if !ok {
		f.t.Fatalf("the front has connections to other than one worker: %s", state)
	}
	for tag := range gjson.Get(state, "cluster.workers.connections").Map() {
		return f.tags[tag]
	}
	return nil
}

// TestClusterWorkers plays clients of all transports and both eras through two fronts behind
// nginx, before servers whose processes are at two workers: calls, progress, logs,
// questions and cancellations come through (S-050). No front starts a process (S-054). When the worker of a session is
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
					client.run(t, where, flavourOf(references[0], "stdio", ""))
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

// TestWorkersExample starts a front and a worker of the example, as it says.
func TestWorkersExample(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	text, err := os.ReadFile("../examples/workers/bridge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const gorun = "command: go\n      args: [run, ./examples/everything, stdio]"
	if !strings.Contains(string(text), gorun) {
		t.Fatalf("the example does not say %q", gorun)
	}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	built := strings.Replace(string(text), gorun, "command: "+everythingProgram(t)+"\n      args: [stdio]", 1) // go would compile for minutes where it has not yet
	if err := os.WriteFile(file, []byte(built), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bridgeProgram(t), "check", "-c", "../examples/workers/bridge.yaml").CombinedOutput(); err != nil {
		t.Fatalf("check: %v\n%s", err, out)
	}
	f := newFleet(t, nil)
	as := func(role string) *process {
		cmd := exec.Command(bridgeProgram(t), "serve", "--listen", "127.0.0.1:0", "-c", file)
		cmd.Env = append(os.Environ(), "ROLE="+role, "PEER_PORT=0", "REDIS_URL=redis://"+f.store.Address)
		p := start(t, cmd)
		f.tags[gjson.Get(f.sees(p, 1), "cluster.instance").Str] = p
		return p
	}
	front, worker := as("front"), as("worker")
	f.sees(front, 2)
	l := f.begin(front.base)
	if got := f.call(l, "echo", map[string]any{"message": "hello"}); !strings.Contains(got, "hello") {
		t.Errorf("echo = %q", got)
	}
	if f.busy(front) != worker {
		t.Error("the process is not at the worker")
	}
}
