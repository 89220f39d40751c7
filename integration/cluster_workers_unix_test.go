//go:build unix

package integration

import (
	"bufio"
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// linger is how long a worker keeps the process of an instance that has gone.
const linger = 30 * time.Second

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

// TestWorkerRounds kills a worker, an instance that owns a session, the instance that a
// client is connected to, or stops a worker for a while, again and again amid calls with
// progress and questions: each has one answer or a broken connection, and none is executed
// twice, as the processes themselves note (S-020, S-021, S-051). The session goes on: with
// another process when it has lost its worker, and with the same one when only its owner
// has died.
func TestWorkerRounds(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	for part := range scaletest.Of(1, 2) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			l := &ledger{file: filepath.Join(t.TempDir(), "ledger")}
			f := newFleet(t, map[string]any{"counter": atWorkers(map[string]any{"stdio": map[string]any{"command": fakeProgram(t), "args": []string{"-ledger", l.file}}})})
			f.role, f.lease = "front", linger/3 // another front takes a session over before the worker gives it up
			for range 3 {
				f.add()
			}
			staff := []*process{f.worker(), f.worker()}
			for round := range scaletest.Of(4, 24) {
				staff = f.workerRound(l, staff, []string{"worker", "owner", "front", "stopped worker"}[round%4], round)
			}
		})
	}
}

func (f *fleet) workerRound(l *ledger, staff []*process, victim string, round int) []*process {
	t, p := f.t, f.instances
	for _, i := range p {
		f.sees(i, len(p)+len(staff))
	}
	what := fmt.Sprint("round ", round, ": ", victim)
	mine := f.begin(p[0].base)
	f.kept(mine, func(r session.Record) bool { return len(r.Carry) == 1 })
	at := p[1]
	mine.base = p[2].base
	before, its := f.call(mine, "pid", nil), f.busy(p[0])
	ear := listens(t, mine.session, p[2].base)
	calls := f.crowd(l, 4, mine.session, at.base, p[2].base)
	calls.goesOn(t, what, 4)
	time.Sleep(time.Duration(mathrand.IntN(40)) * time.Millisecond) // any moment of a call is as good
	want := "another"
	switch victim {
	case "worker":
		its.cmd.Process.Kill()
		<-its.exited
		calls.goesOn(t, what, 4)
		calls.end(t, l, lost)
		staff = append(slices.DeleteFunc(slices.Clone(staff), func(p *process) bool { return p == its }), f.worker())
	case "stopped worker":
		halt(t, its)
		calls.goesOn(t, what, 4)
		if err := its.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		calls.goesOn(t, what, 4)
		calls.end(t, l, lost)
		for _, i := range p {
			f.sees(i, len(p)+len(staff))
		}
	case "owner":
		p[0].cmd.Process.Kill()
		<-p[0].exited
		killed := time.Now()
		calls.goesOn(t, what, 4)
		if want = "the same"; time.Since(killed) > linger/2 { // on a busy machine the worker may have given it up
			want = "any"
		}
		calls.end(t, l, lost)
		f.instances = slices.Delete(p, 0, 1)
		f.add()
	case "front":
		at.cmd.Process.Kill()
		calls.all.Wait() // all their connections break
		calls.end(t, l, lost, broken)
		<-at.exited
		f.instances, want = slices.Delete(p, 1, 2), "the same"
		f.add()
	}
	ear()
	mine.base = f.instances[len(f.instances)-1].base
	if after := f.call(mine, "pid", nil); want != "any" && (after == before) != (want == "the same") {
		t.Errorf("%s: the process %s before, and %s after, want %s", what, before, after, want)
	}
	if status := mine.end(t); status != http.StatusNoContent {
		t.Errorf("%s: DELETE = %d", what, status)
	}
	return staff
}

// listens answers the questions of a session that come on its own stream: a child process
// does not say which call it asks about.
func listens(t *testing.T, session, base string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	once := func() {
		r, err := http.NewRequestWithContext(ctx, "GET", base+"/mcp", nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Mcp-Session-Id", session)
		res, err := rawHTTP.Do(r)
		if err != nil {
			return // it is tried again
		}
		defer res.Body.Close()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			m := gjson.Parse(strings.TrimPrefix(lines.Text(), "data: "))
			if m.Get("method").Str == "elicitation/create" {
				wg.Go(func() {
					answered(ctx, &legacyClient{base: base, session: session}, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"said":%q}}}`, m.Get("id").Raw, "yes "+m.Get("params.message").Str))
				})
			}
		}
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			once()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
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
