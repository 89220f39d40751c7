package placement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/cluster/queue/queuetest"
)

// process is an Adapter whose connections are child processes that answer everything.
type process struct {
	running atomic.Int64
	fails   error
	modern  bool                             // it speaks 2026-07-28 only
	hold    chan struct{}                    // calls wait until it is closed; nil: they do not
	held    atomic.Int64                     // how many came to wait
	says    func() (*jsonrpc.Message, error) // to calls; nil for their methods
}

func (p *process) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	if p.fails != nil {
		return nil, p.fails
	}
	p.running.Add(1)
	return &proc{a: p}, nil
}

type proc struct {
	a    *process
	once sync.Once
}

func (p *proc) Server() *bridge.Greeting {
	if p.a.modern {
		return &bridge.Greeting{Revision: "2026-07-28", Capabilities: []byte(`{"tools":{}}`), Result: []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`)}
	}
	return &bridge.Greeting{Revision: "2025-06-18", Capabilities: []byte(`{"tools":{}}`), Result: []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`)}
}

func (p *proc) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if p.a.hold != nil {
		p.a.held.Add(1)
		<-p.a.hold
	}
	if p.a.says != nil {
		return p.a.says()
	}
	return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":"`+r.Method+`"}]}`)), nil
}

func (*proc) Notify(context.Context, *bridge.Request) error { return nil }

func (p *proc) Close(context.Context) error {
	p.once.Do(func() { p.a.running.Add(-1) })
	return nil
}

// registry is the store as a worker reaches it, and the way to the instances that it lists.
type registry struct {
	*clustertest.View
	lost atomic.Bool // it cannot be asked
}

// newRegistry returns the store with instances that live until they leave.
func newRegistry(t *testing.T, live ...string) *registry {
	t.Helper()
	r := &registry{}
	r.View = clustertest.New().As("WORKER1", "", func(_ context.Context, _, _ string, do func() error) error {
		if r.lost.Load() {
			return session.ErrUnavailable
		}
		return do()
	})
	for _, id := range live {
		if _, err := r.Beat(t.Context(), cluster.Member{ID: id}, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *registry) Hello(ctx context.Context, to cluster.Member, _ cluster.Hello) (cluster.Hello, error) {
	if there, _ := r.Present(ctx, to.ID); !there {
		return cluster.Hello{}, errors.New("refused")
	}
	return cluster.Hello{ID: to.ID, State: cluster.Sure, Store: true}, nil
}

func (*registry) Disconnect(string) {}

// rig is a worker in a bubble, as its peer listener would use it.
type rig struct {
	*Workers
	t    *testing.T
	a    *process
	live *registry
}

// files is the only server that is placed at workers.
type files struct{ settings Local }

func (f *files) Placed() []string           { return []string{"files"} }
func (f *files) Local(string) (Local, bool) { return f.settings, true }

func bubble(t *testing.T, f func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, a: &process{}, live: newRegistry(t, "FRONT-A", "FRONT-B")}
		log := slog.New(slog.DiscardHandler)
		node := cluster.New(cluster.Options{Self: cluster.Member{ID: "WORKER1"}, Store: r.live, Registry: r.live, Peers: r.live, Lease: 6 * time.Second, Log: log})
		r.Workers = NewWorkers(WorkerOptions{
			Node: node, ID: "WORKER1", Queue: queuetest.NewMemory(), Runs: true, Slots: 3,
			Servers: &files{Local{Adapter: r.a, MaxProcesses: 2}}, Log: log, MaxMessage: 1 << 20, MaxBytes: 1 << 30,
		})
		node.Start("127.0.0.1:1")
		<-node.Joined()
		defer node.Close(t.Context())
		defer r.Close(t.Context())
		f(t, r)
	})
}

// post makes a request of a lane.
func (r *rig) post(ctx context.Context, s peer.SlotClaim, id string, body io.Reader) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequestWithContext(auth.WithPrincipal(ctx, ""), http.MethodPost, "/peer/v1/work", body)
	if body == nil {
		req.Method = http.MethodGet
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set(peer.GrantHeader, s.Grant)
	if id != "" {
		req.Header.Set("Mcp-Session-Id", id)
	}
	w := httptest.NewRecorder()
	r.ServeTunnel(w, req, s)
	return w
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// open has a front come for a request, and returns its lane and the id of the inner session.
func (r *rig) open(front string) (peer.SlotClaim, string) {
	r.t.Helper()
	grant, _, ok := r.slots.Reserve("files")
	if !ok {
		r.t.Fatal("no place")
	}
	s := peer.SlotClaim{Grant: grant, Front: front}
	if err := r.ClaimSlot(grant, front, 0); err != nil {
		r.t.Fatal(err)
	}
	w := r.post(r.t.Context(), s, "", strings.NewReader(initialize))
	id := w.Header().Get("Mcp-Session-Id")
	if w.Code != http.StatusOK || id == "" {
		r.t.Fatalf("initialize = %d %s", w.Code, w.Body)
	}
	return s, id
}

func (r *rig) runs(what string, want int64) {
	r.t.Helper()
	synctest.Wait()
	if n := r.a.running.Load(); n != want || r.Free() != 3-int(want) {
		r.t.Errorf("%s: %d processes run, and %d places are free, want %d", what, n, r.Free(), want)
	}
}

const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`

// A grant is good for 5 s, for who claims it, and once.
func TestTicket(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		grant, cancel, _ := r.slots.Reserve("files")
		cancel()
		if r.Free() != 3 || r.ClaimSlot(grant, "FRONT-A", 0) == nil {
			t.Error("a grant that was taken back is good")
		}
		late, _, _ := r.slots.Reserve("files")
		time.Sleep(grantLife + time.Second)
		if r.Free() != 3 || r.ClaimSlot(late, "FRONT-A", 0) == nil {
			t.Error("a grant is good after its time")
		}
		s, id := r.open("FRONT-A")
		r.runs("opened", 1)
		if err := r.ClaimSlot(s.Grant, "FRONT-B", 0); !errors.Is(err, peer.ErrElsewhere) {
			t.Errorf("claimed by another: %v", err)
		}
		if w := r.post(t.Context(), s, "", strings.NewReader(initialize)); w.Code == http.StatusOK && !bytes.Contains(w.Body.Bytes(), []byte(`"error"`)) {
			t.Errorf("used again: %d %s", w.Code, w.Body)
		}
		for name, other := range map[string]peer.SlotClaim{"another front": {Grant: s.Grant, Front: "FRONT-B"}, "no grant": {Front: "FRONT-A"}, "another grant": {Grant: "x", Front: "FRONT-A"}, "another epoch": {Grant: s.Grant, Front: "FRONT-A", Epoch: 1}} {
			if w := r.post(t.Context(), other, id, strings.NewReader(call)); w.Code != http.StatusNotFound {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		if w := r.post(t.Context(), s, id, strings.NewReader(call)); w.Code != http.StatusOK {
			t.Errorf("the front itself: %d %s", w.Code, w.Body)
		}
		r.runs("used", 1)
	})
}

// No process runs for longer without a front than linger (S-053): its front has gone, by a
// broken connection, or as one that was found dead while the connection hangs.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s, id := r.open("FRONT-A")
		time.Sleep(workerLinger - time.Second)
		r.runs("just before", 1)
		if w := r.post(t.Context(), s, id, strings.NewReader(call)); w.Code != http.StatusOK {
			t.Errorf("a call: %d %s", w.Code, w.Body)
		}
		time.Sleep(workerLinger - time.Second)
		r.runs("used meanwhile", 1)
		time.Sleep(2 * time.Second)
		r.runs("without a front", 0)
		if w := r.post(t.Context(), s, id, strings.NewReader(call)); w.Code != http.StatusNotFound {
			t.Errorf("after its end: %d %s", w.Code, w.Body)
		}
	})
	bubble(t, func(t *testing.T, r *rig) {
		s, id := r.open("FRONT-A")
		listening, hang := context.WithCancel(context.Background())
		defer hang()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.post(listening, s, id, nil)
		}()
		time.Sleep(10 * workerLinger)
		r.runs("as long as its front listens", 1)
		if err := r.live.Leave(t.Context(), "FRONT-A"); err != nil {
			t.Fatal(err)
		}
		died := time.Now()
		<-done // its stream was broken off
		if took := time.Since(died); took > 10*time.Second {
			t.Errorf("broken off after %v", took)
		}
		time.Sleep(workerLinger + time.Second)
		r.runs("its front is dead", 0)
	})
}

// The instance that takes a session over goes on with the process, and the one before is
// refused from then on, also for a call whose body comes slowly (S-012).
func TestClaimed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s, id := r.open("FRONT-A")
		time.Sleep(workerLinger / 2)
		body, write := io.Pipe()
		late := make(chan *httptest.ResponseRecorder)
		go func() { late <- r.post(t.Context(), s, id, body) }()
		_, _ = io.WriteString(write, call[:10])
		synctest.Wait()
		if err := r.ClaimSlot(s.Grant, "FRONT-B", 2); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(write, call[10:])
		_ = write.Close()
		if w := <-late; w.Code != http.StatusNotFound {
			t.Errorf("the rest of a call of the front before: %d %s", w.Code, w.Body)
		}
		now := peer.SlotClaim{Grant: s.Grant, Front: "FRONT-B", Epoch: 2}
		for range 3 {
			time.Sleep(workerLinger / 2)
			if w := r.post(t.Context(), now, id, strings.NewReader(call)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "tools/call") {
				t.Errorf("the next front: %d %s", w.Code, w.Body)
			}
		}
		if w := r.post(t.Context(), s, id, strings.NewReader(call)); w.Code != http.StatusNotFound {
			t.Errorf("the one before: %d %s", w.Code, w.Body)
		}
		for _, older := range []int64{0, 1, 2} {
			if err := r.ClaimSlot(s.Grant, "FRONT-A", older); err == nil {
				t.Errorf("epoch %d is not older than 2", older)
			}
		}
		r.runs("taken over", 1)
		time.Sleep(workerLinger + time.Second)
		r.runs("left by the next front too", 0)
	})
}

// A front that asks for a sign of life reaches the process, whatever that speaks: the
// worker's own answer would say nothing about it. A worker that stops closes the connections of fronts behind its answers.
func TestPing(t *testing.T) {
	for modern, want := range map[bool]string{false: `"ping"`, true: `"server/discover"`} {
		bubble(t, func(t *testing.T, r *rig) {
			r.a.modern = modern
			s, id := r.open("FRONT-A")
			w := r.post(t.Context(), s, id, strings.NewReader(`{"jsonrpc":"2.0","id":2,"method":"`+pingMethod+`"}`))
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("modern %v: %d %s, want %s", modern, w.Code, w.Body, want)
			}
			closes := func(what, want string) {
				t.Helper()
				w := r.post(t.Context(), s, id, strings.NewReader(`{"jsonrpc":"2.0","method":"notifications/x"}`))
				if got := w.Header().Get("Connection"); w.Code != http.StatusAccepted || got != want {
					t.Errorf("a worker that %s: %d, Connection: %q", what, w.Code, got)
				}
			}
			closes("works", "")
			var drained sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			drained.Go(func() { r.slots.tunnels.Drain(ctx) })
			synctest.Wait()
			closes("stops", "close")
			cancel()
			drained.Wait()
		})
	}
}

// What could not be started leaves no place taken, and its front learns why.
func TestFailed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.a.fails = &bridge.Error{Server: "files", Kind: bridge.ErrCredentials, Public: "it wants a key"}
		grant, _, _ := r.slots.Reserve("files")
		if err := r.ClaimSlot(grant, "FRONT-A", 0); err != nil {
			t.Fatal(err)
		}
		w := r.post(t.Context(), peer.SlotClaim{Grant: grant, Front: "FRONT-A"}, "", strings.NewReader(initialize))
		if !strings.Contains(w.Body.String(), "it wants a key") {
			t.Errorf("initialize = %d %s", w.Code, w.Body)
		}
		if err := r.SlotFailure(grant); !errors.Is(err, bridge.ErrCredentials) {
			t.Errorf("why: %v", err)
		}
		r.runs("failed", 0)
		time.Sleep(failuresKept + time.Second)
		if err := r.SlotFailure(grant); err != nil {
			t.Errorf("kept for ever: %v", err)
		}
	})
}

// A worker requests the places that it has, of each server as many as that may have, and
// none while it cannot start the server, or stops.
func TestPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		room := func(what, want string) {
			t.Helper()
			servers, free, _ := r.slots.Room()
			if got := fmt.Sprint(servers, free); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		room("at first", "[files] 3")
		r.open("FRONT-A")
		room("one runs", "[files] 2")
		r.open("FRONT-A")
		room("as many as the server may have", "[] 1")
		r.slots.Reserve("other")
		room("all places are taken", "[] 0")
		if _, _, ok := r.slots.Reserve("other"); ok {
			t.Error("one place too many")
		}
		broken := errors.New("there is no such program")
		r.slots.o.Servers = &files{Local{Adapter: r.a, MaxProcesses: 3, Check: func() error { return broken }}}
		time.Sleep(grantLife + time.Second)
		room("it cannot be started", "[] 1")
		broken = nil
		time.Sleep(checkEvery + time.Second)
		room("it can again", "[files] 1")
		r.o.Node.Drain(t.Context())
		room("it stops", "[] 0")
	})
}
