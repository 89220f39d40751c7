package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/cluster/queue/queuetest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// loop is the way of an instance to itself as a worker.
type loop struct {
	w    *Workers
	site *wiretest.Site
	told atomic.Int64
	mute atomic.Int64 // so many times the worker cannot be asked
}

func (l *loop) Grant(_ context.Context, m cluster.Member, offer, grant string) error {
	l.told.Add(1)
	return l.w.AcceptGrant(offer, queue.Grant{Worker: m.ID, Key: grant})
}

func (l *loop) ClaimSlot(_ context.Context, m cluster.Member, grant string, epoch int64) error {
	if l.mute.Add(-1) >= 0 {
		return errors.New("it cannot be reached")
	}
	return l.w.ClaimSlot(grant, m.ID, epoch)
}

func (l *loop) SlotFailure(_ context.Context, _ cluster.Member, _, grant string) error {
	return l.w.SlotFailure(grant)
}

func (l *loop) AskLeave(ctx context.Context, m cluster.Member, _ string) (left bool) {
	return l.w.Leave(ctx, m.ID) == nil
}

func (l *loop) WorkerTunnel(cluster.Member) remote.Config {
	return remote.Config{URL: "http://127.0.0.1", Dial: func(context.Context, string, string) (net.Conn, error) { return l.site.Dial(), nil }}
}

// itself starts an instance, in a bubble, that is a worker for itself. first may answer a request.
func itself(t *testing.T, p *process, first func(http.ResponseWriter) bool) *loop {
	l := &loop{}
	live, log := newRegistry(t), slog.New(slog.DiscardHandler)
	node := cluster.New(cluster.Options{Self: cluster.Member{ID: "WORKER1"}, Store: live, Registry: live, Peers: live, Lease: time.Minute, Log: log})
	l.w = NewWorkers(WorkerOptions{
		Node: node, ID: "WORKER1", Peers: l, Queue: queuetest.NewMemory(), Runs: true, Slots: 3,
		Servers: &files{Local{Adapter: p, MaxProcesses: 3}}, Log: log, MaxMessage: 1 << 20, MaxBytes: 1 << 30,
	})
	l.site = wiretest.NewSite(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !first(rw) {
			epoch, _ := strconv.ParseInt(r.Header.Get("Bridge-Epoch"), 10, 64)
			l.w.ServeTunnel(rw, r.WithContext(auth.WithPrincipal(r.Context(), "")), peer.SlotClaim{Grant: r.Header.Get(peer.GrantHeader), Front: "WORKER1", Epoch: epoch})
		}
	}))
	node.Start("127.0.0.1:1")
	<-node.Joined()
	l.w.Begin()
	t.Cleanup(func() {
		l.w.Close(context.Background())
		node.Close(context.Background())
	})
	return l
}

var caller = &bridge.Caller{Revision: "2025-06-18", Capabilities: []byte("{}"), Params: []byte(`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)}

// open opens a connection at the worker.
func (l *loop) open(t *testing.T) bridge.Upstream {
	t.Helper()
	up, err := l.w.Adapter(WorkerServer{Name: "files", Queue: 10, Wait: 30 * time.Second, Handshake: 30 * time.Second}).Open(t.Context(), caller, bridge.Nobody{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close(context.Background()) })
	return up
}

// Who takes a session over gets its process also if the worker cannot be asked at once, and
// an opening is offered again then.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{}
		l := itself(t, p, func(http.ResponseWriter) bool { return false })
		for mute, refuses := range map[int64]bool{1: false, 3: true} { // a front takes nothing from whom it has not reached twice, for a moment
			l.told.Store(0)
			l.mute.Store(mute)
			_ = l.open(t).Close(t.Context())
			if n := l.told.Load(); n <= mute || (n > mute+1) != refuses {
				t.Errorf("%d grants were given by a worker that cannot be asked %d times", n, mute)
			}
		}
		up := l.open(t)
		carry := up.(bridge.Resumable).ResumeData()
		up.(bridge.Resumable).Detach()
		_ = up.Close(context.Background())
		l.mute.Store(2)
		adapter := l.w.Adapter(WorkerServer{Name: "files", Queue: 10, Wait: 30 * time.Second, Handshake: 30 * time.Second}).(bridge.Resumer)
		next, err := adapter.Resume(t.Context(), caller, bridge.Nobody{}, carry, 1<<epochBits)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close(context.Background())
		if m, err := next.Call(t.Context(), &bridge.Request{Message: jsonrpc.NewRequest("tools/call", []byte(`{"name":"x"}`)), From: caller}); err != nil || m.Error != nil {
			t.Errorf("a call: %v, %v", m, err)
		}
		if n := p.running.Load(); n != 1 {
			t.Errorf("%d processes run", n)
		}
	})
}

// A worker that stops tells those who have connections to it, refuses their calls in a way that says that nothing
// was done, and waits until they have left: so long nothing is lost (S-051). A connection that many share takes more calls at
// once than a client's session may have.
func TestWorkerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{hold: make(chan struct{})}
		l := itself(t, p, func(http.ResponseWriter) bool { return false })
		rest := &gone{lost: make(chan error, 2)} // the refusal of a call says so, too
		up, err := l.w.Adapter(WorkerServer{Name: "files", Queue: 10, Wait: time.Hour, Handshake: time.Hour}).Open(t.Context(), caller, rest)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() error {
			m, err := up.Call(t.Context(), &bridge.Request{Message: jsonrpc.NewRequest("tools/call", []byte(`{"name":"x"}`)), From: caller})
			if err == nil && m.Error != nil {
				err = fmt.Errorf("%s", m.Error)
			}
			m.Release()
			return err
		}
		const many = 200
		slow, drained := make(chan error, many), make(chan struct{})
		for range many {
			go func() { slow <- ask() }()
		}
		synctest.Wait()
		if held := p.held.Load(); held != many {
			t.Fatalf("%d calls wait at the process, want %d", held, many)
		}
		go func() {
			defer close(drained)
			l.w.Drain(context.Background())
		}()
		<-l.w.slots.tunnels.Stopping().Done()
		later := make(chan error, 20)
		for range cap(later) {
			go func() { later <- ask() }()
		}
		close(p.hold)
		for range many {
			if err := <-slow; err != nil {
				t.Errorf("a call that was in flight: %v", err)
			}
		}
		if err := <-rest.lost; !errors.Is(err, bridge.ErrLost) {
			t.Errorf("the connection is lost: %v", err)
		}
		if err := ask(); !errors.Is(err, bridge.ErrUnsent) {
			t.Errorf("a call after that: %v", err)
		}
		select {
		case <-drained:
			t.Error("the worker did not wait until it was left")
		default:
		}
		_ = up.Close(context.Background())
		for range cap(later) {
			if err := <-later; err != nil && !errors.Is(err, bridge.ErrUnsent) {
				t.Errorf("a call that came when the worker stopped: %v", err)
			}
		}
		<-drained
	})
}

// A worker that cannot look who lives leaves a request to others: nobody has said that it is
// over.
func TestUnknownFront(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		if err := r.grant(t.Context(), queue.Taken{Request: queue.Request{ID: "1", Front: "DEAD"}, Server: "files"}, "grant"); !errors.Is(err, queue.ErrOver) {
			t.Errorf("a front that does not live: %v", err)
		}
		r.live.lost.Store(true)
		if err := r.grant(t.Context(), queue.Taken{Request: queue.Request{ID: "1", Front: "NEW"}, Server: "files"}, "grant"); !errors.Is(err, queue.ErrUnreached) {
			t.Errorf("a front that nothing is known of: %v", err)
		}
	})
}

// A process that fails at a worker counts as one that fails here. What it answers is its
// answer, also if it is an instance of the bridge whose server has failed.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{}
		up := itself(t, p, func(http.ResponseWriter) bool { return false }).open(t)
		ask := func() (*jsonrpc.Message, error) {
			return up.Call(t.Context(), &bridge.Request{Message: jsonrpc.NewRequest("tools/call", []byte(`{"name":"x"}`)), From: caller})
		}
		for _, k := range []error{bridge.ErrLost, bridge.ErrInvalid, bridge.ErrTimeout, bridge.ErrTooLarge} {
			p.says = func() (*jsonrpc.Message, error) {
				return nil, &bridge.Error{Server: "files", Kind: k, Public: "it did so"}
			}
			e, ok := errors.AsType[*bridge.Error](func() error { _, err := ask(); return err }())
			if !ok || e.Kind != k || e.Public != "it did so" || e.Server != "files" {
				t.Errorf("a process that fails (%v) = %+v", k, e)
			}
		}
		for _, word := range []string{"upstream_lost", "upstream_timeout"} {
			p.says = func() (*jsonrpc.Message, error) {
				return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "its own server", []byte(`{"bridge":"`+word+`"}`)), nil
			}
			if m, err := ask(); err != nil || !strings.Contains(string(m.Error), word) {
				t.Errorf("a process that answers %s: %v, %v", word, m, err)
			}
		}
	})
}

// An opening that a worker cannot finish is offered again: it has ended, it stops, or it has no room for a process. None of
// that is a failure of the server (S-051). When there is no time for another worker, the error says that the one has ended,
// and not what the queue would say. A process has its time for the handshake, however long the opening may wait for a
// worker, and when little is left of that time.
func TestHandshakes(t *testing.T) {
	const wait = 3 * time.Second
	for _, c := range []struct {
		name            string
		first           func(*process, http.ResponseWriter) bool // what answers the first request
		wait, handshake time.Duration
		want            string // the error
		told            int64
	}{
		{name: "ended", first: func(*process, http.ResponseWriter) bool { panic(http.ErrAbortHandler) }, wait: 30 * time.Second, handshake: 30 * time.Second, told: 2},
		{name: "stops", first: func(_ *process, w http.ResponseWriter) bool { w.WriteHeader(http.StatusNotFound); return true }, wait: 30 * time.Second, handshake: 30 * time.Second, told: 2},
		{name: "no room", first: func(p *process, _ http.ResponseWriter) bool { p.fails = syscall.EAGAIN; return false }, wait: 30 * time.Second, handshake: 30 * time.Second, told: 2},
		{name: "ended, and no time is left", first: func(*process, http.ResponseWriter) bool {
			<-time.After(wait) // the time to wait for a worker is over then, not that for the handshake
			panic(http.ErrAbortHandler)
		}, wait: wait, handshake: time.Hour, want: "is gone or unreachable", told: 1},
		{name: "says nothing", first: func(*process, http.ResponseWriter) bool { time.Sleep(time.Minute); return true }, wait: time.Hour, handshake: 300 * time.Millisecond, want: "handshake within", told: 1},
		{name: "little is left", first: func(*process, http.ResponseWriter) bool { return false }, wait: 24 * time.Hour, handshake: time.Hour, told: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &process{}
				var requests atomic.Int64
				l := itself(t, p, func(rw http.ResponseWriter) bool {
					if requests.Add(1) == 1 {
						return c.first(p, rw)
					}
					p.fails = nil
					return false
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				up, err := l.w.Adapter(WorkerServer{Name: "files", Queue: 10, Wait: c.wait, Handshake: c.handshake}).Open(ctx, caller, bridge.Nobody{})
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.told == 1 && c.wait == wait && !errors.Is(err, bridge.ErrNoWorker) {
					t.Errorf("an opening: %v, want %s", err, c.want)
				}
				if err == nil {
					_ = up.Close(context.Background())
				}
				if n := l.told.Load(); n != c.told {
					t.Errorf("%d grants were given, want %d", n, c.told)
				}
				time.Sleep(2 * time.Minute) // a worker that says nothing has ended then
			})
		})
	}
}

// A worker that has failed to start a server some times in a row takes no requests of it for
// a moment: others may do better.
func TestRests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		takes := func(what string, want bool) {
			t.Helper()
			if servers, _, _ := r.slots.Room(); (len(servers) > 0) != want {
				t.Errorf("%s: requests of %v are taken", what, servers)
			}
		}
		fail := func(err error) {
			r.a.fails = err
			grant, _, _ := r.slots.Reserve("files")
			if err := r.ClaimSlot(grant, "FRONT-A", 0); err != nil {
				t.Fatal(err)
			}
			r.post(t.Context(), peer.SlotClaim{Grant: grant, Front: "FRONT-A"}, "", strings.NewReader(initialize))
		}
		broken := &bridge.Error{Server: "files", Kind: bridge.ErrLost, Public: "it died"}
		fail(broken)
		fail(broken)
		takes("two failures", true)
		fail(broken)
		takes("three failures", false)
		time.Sleep(restFor)
		takes("after a rest", true)
		grant, cancel, _ := r.slots.Reserve("files")
		takes("one is tried", false)
		if cancel(); grant == "" {
			t.Error("no place")
		}
		fail(broken)
		takes("one more", false)
		time.Sleep(restFor)
		takes("a rest is longer than the one before", false)
		time.Sleep(restFor)
		takes("after that", true)
		for range 5 {
			fail(broken)
		}
		time.Sleep(longRest)
		takes("the longest rest", true)
		r.a.fails = nil
		r.open("FRONT-A")
		fail(broken)
		takes("a failure after a good start", true)
		fail(syscall.EAGAIN)
		takes("no room at all", false)
	})
}
