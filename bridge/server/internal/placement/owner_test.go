package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 6 * time.Second

// world is a store in memory, and the instances that use it.
type world struct {
	t       *testing.T
	records *clustertest.Store

	mu    sync.Mutex // guards the rest
	nodes map[string]*cluster.Node
	away  map[string]bool // reaches nobody, as a process that is stopped
	late  string          // the store still gives this instance no answer
	store error           // not nil while the store is away
	homes map[string]*Owners
	old   atomic.Bool // instances are of a version that does not leave others
}

// instance is one of them.
type instance struct {
	*Owners
	w     *world
	id    string
	calls func(m cluster.Member) error // to another instance
	asked atomic.Int64                 // times that this one has asked another whether it is the owner
	told  atomic.Bool                  // others answer that; otherwise they say no

	mu     sync.Mutex        // guards the rest
	left   []string          // owners that this one is not any more
	unused map[string]func() // closes what nobody uses, by what left says
}

func in(t *testing.T, f func(t *testing.T, i, b *instance)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, records: clustertest.New(), nodes: map[string]*cluster.Node{}, away: map[string]bool{}, homes: map[string]*Owners{}}
		i, b := w.start("a"), w.start("b")
		time.Sleep(2 * lease)
		f(t, i, b)
	})
}

func (w *world) start(id string) *instance {
	i := &instance{w: w, id: id}
	store := w.records.As(id, "", i.way)
	n := cluster.New(cluster.Options{
		Self: cluster.Member{ID: id}, Store: store, Registry: store, Peers: i, Lease: lease, Life: time.Hour, MaxSessions: 100, Log: slog.New(slog.DiscardHandler),
		Lost: func(key string) { i.Lost(key) },
	})
	i.Owners = NewOwners(OwnerOptions{Node: n, Peers: i, Lease: lease, Drain: time.Minute, Log: slog.New(slog.DiscardHandler), MaxMessage: 1 << 20, MaxBytes: 1 << 20, Gateway: i})
	w.mu.Lock()
	w.nodes[id], w.homes[id] = n, i.Owners
	w.mu.Unlock()
	n.Start(id + ":1")
	w.t.Cleanup(func() {
		i.CloseTunnels(context.Background())
		i.Close()
		n.Close(context.Background())
	})
	return i
}

// pause has an instance stand still until the others have taken its place.
func (w *world) pause(i *instance, until func()) {
	w.set(i, true)
	time.Sleep(2 * lease)
	until()
	w.set(i, false)
}

func (w *world) set(i *instance, away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away[i.id] = away
}

// answers sets whether the store answers.
func (w *world) answers(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store = err
}

// back has the store answer all but one instance.
func (w *world) back(late string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store, w.late = nil, late
}

// way is the way of an instance to the store.
func (i *instance) way(_ context.Context, _, _ string, do func() error) error {
	i.w.mu.Lock()
	err := i.w.store
	if i.w.away[i.id] || i.w.late == i.id {
		err = session.ErrUnavailable
	}
	i.w.mu.Unlock()
	if err != nil {
		return err
	}
	return do()
}

// Hello implements cluster.Peers.
func (i *instance) Hello(_ context.Context, to cluster.Member, h cluster.Hello) (cluster.Hello, error) {
	i.w.mu.Lock()
	n, deaf := i.w.nodes[to.ID], i.w.away[to.ID] || i.w.away[i.id]
	i.w.mu.Unlock()
	if n == nil || deaf {
		return cluster.Hello{}, errors.New("refused")
	}
	return n.Answer(h), nil
}

// Disconnect implements cluster.Peers.
func (*instance) Disconnect(string) {}

// AskOwner implements Peers.
func (i *instance) AskOwner(ctx context.Context, m cluster.Member, server, affinity string) error {
	i.asked.Add(1)
	i.w.mu.Lock()
	o := i.w.homes[m.ID]
	i.w.mu.Unlock()
	if i.told.Load() && o.Owns(ctx, server, affinity) {
		return nil
	}
	return peer.ErrElsewhere
}

// AskLeave implements Peers.
func (i *instance) AskLeave(ctx context.Context, m cluster.Member, _ string) (left bool) {
	i.w.mu.Lock()
	o := i.w.homes[m.ID]
	i.w.mu.Unlock()
	return !i.w.old.Load() && o.Leave(ctx, i.id) == nil
}

// Call implements Peers.
func (i *instance) Call(_ context.Context, m cluster.Member, _, _ string, r *bridge.Request) (*jsonrpc.Message, error) {
	if i.calls != nil {
		if err := i.calls(m); err != nil {
			return nil, err
		}
	}
	return jsonrpc.NewResult(nil, []byte(`"at `+m.ID+`"`)), nil
}

// OwnerTunnel implements Peers.
func (*instance) OwnerTunnel(cluster.Member) remote.Config { return remote.Config{} }

// Join implements Gateway.
func (*instance) Join(string, bridge.Caller, bridge.Client) (gateway.Joined, []bridge.Forward, error) {
	return nil, nil, bridge.ErrUnknownServer
}

// CallPool implements Gateway. A subscription lasts; what else there is, is sent.
func (i *instance) CallPool(ctx context.Context, _ string, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == era.Listen {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if err := r.From.Handover.Confirm(ctx); err != nil { // as a lane asks
		return nil, err
	}
	return jsonrpc.NewResult(nil, []byte(`"here"`)), nil
}

// Release implements Gateway.
func (i *instance) Release(_, key string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = append(i.left, key)
	if f := i.unused[key]; f != nil {
		delete(i.unused, key)
		go f()
	}
}

func (i *instance) has(key string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.left {
		if l == key {
			return true
		}
	}
	return false
}

// local makes calls over what the instance has.
type local struct{ i *instance }

func (l local) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	return l.i.CallPool(ctx, "files", r)
}

func request(t *testing.T, method string) *bridge.Request {
	return &bridge.Request{Message: bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)), From: &bridge.Caller{}}
}

// server is an Adapter whose server counts what is sent to it.
type server struct{ opened, sent atomic.Int64 }

func (s *server) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	s.opened.Add(1)
	return counted{s: s}, nil
}

type counted struct {
	bridge.Upstream
	s *server
}

func (c counted) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	c.s.sent.Add(1)
	return jsonrpc.NewResult(nil, []byte("{}")), nil
}

func (c counted) Notify(context.Context, *bridge.Request) error {
	c.s.sent.Add(1)
	return nil
}

func (counted) Close(context.Context) error { return nil }

// gone is told of a lost connection.
type gone struct {
	bridge.Nobody
	lost chan error
}

func (g *gone) Gone(err error) { g.lost <- err }

// An owner that was paused sends nothing over its connections once another instance has its place: not for sessions, of
// whatever instance, that use the open lane, and not for clients without sessions, also if their requests have waited since
// before the pause (S-012, S-040). A request that comes then waits until that is known. A subscription continues at the
// next owner, wherever its client is.
func TestPaused(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		const stateless, sessions, heard = "stateless\x00", "sessions\x00alice", "stateless\x00alice"
		its := &server{}
		rest := &gone{lost: make(chan error, 1)}
		lane, err := i.Shared("files", nil, true, its).Open(t.Context(), &bridge.Caller{}, rest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lane.Call(t.Context(), request(t, "tools/call")); err != nil || its.sent.Load() != 1 {
			t.Fatalf("a call of the owner: %v", err)
		}
		waits, sent, ended := make(chan struct{}), make(chan error), make(chan error, 2)
		go func() {
			_, err := i.Home("files", stateless, waiter{i, waits}).Call(t.Context(), request(t, "tools/call"))
			sent <- err
		}()
		go func() {
			_, err := i.Home("files", heard, local{i}).Call(t.Context(), request(t, era.Listen))
			ended <- err
		}()
		go func() { // of a client of b
			_, err := i.Owners.Call(t.Context(), "files", heard, request(t, era.Listen))
			ended <- err
		}()
		if !i.Owns(t.Context(), "files", sessions) {
			t.Fatal("not the owner")
		}
		time.Sleep(time.Second) // a claim takes a beat
		i.w.pause(i, func() {
			others := &server{}
			up, err := b.Shared("files", nil, true, others).Open(t.Context(), &bridge.Caller{}, &gone{lost: make(chan error, 1)})
			if err != nil || others.opened.Load() != 1 {
				t.Fatalf("the next owner: %v", err)
			}
			defer func() { _ = up.Close(t.Context()) }()
			if m, err := b.Home("files", stateless, local{b}).Call(t.Context(), request(t, "tools/call")); err != nil || string(m.Result) != `"here"` {
				t.Fatalf("the next owner: %s, %v", bridgetest.Text(m), err)
			}
			for _, affinity := range []string{sessions, heard} {
				if !b.Owns(t.Context(), "files", affinity) {
					t.Fatal("not the next owner")
				}
			}
			if err := lane.Notify(t.Context(), request(t, "notifications/x")); err == nil {
				t.Error("a notification was sent without the store")
			}
		})
		if i.Owns(t.Context(), "files", sessions) {
			t.Error("there are two owners")
		}
		m, err := lane.Call(t.Context(), request(t, "tools/call"))
		if !errors.Is(err, bridge.ErrUnsent) || !errors.Is(err, bridge.ErrLost) {
			t.Errorf("a call of the owner before = %s, %v", bridgetest.Text(m), err)
		}
		if n := its.sent.Load(); n != 1 {
			t.Errorf("%d messages were sent over the connection of the owner before", n-1)
		}
		if err := <-rest.lost; !errors.Is(err, bridge.ErrLost) {
			t.Errorf("the lane is told of %v", err)
		}
		if err := lane.Close(t.Context()); err != nil {
			t.Error(err)
		}
		close(waits)
		if err := <-sent; !errors.Is(err, bridge.ErrUnsent) {
			t.Errorf("a request that has waited: %v", err)
		}
		if !i.has(stateless) || b.has(stateless) {
			t.Errorf("left: %q and %q", i.left, b.left)
		}
		if m, err := i.Home("files", stateless, local{i}).Call(t.Context(), request(t, "tools/call")); err != nil || string(m.Result) != `"at b"` {
			t.Errorf("the next request: %s, %v", bridgetest.Text(m), err)
		}
		late := time.After(time.Minute)
		for range 2 {
			select {
			case err := <-ended:
				if !errors.Is(err, bridge.ErrLost) {
					t.Errorf("the subscription ended with %v", err)
				}
			case <-late:
				t.Fatal("a subscription stays at an owner that is none any more")
			}
		}
	})
}

// waiter makes calls when it may.
type waiter struct {
	i   *instance
	may chan struct{}
}

func (w waiter) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	<-w.may
	return w.i.CallPool(ctx, "files", r)
}

// An owner that says of itself that it is none, for as long as anybody waits, makes an error
// that says so.
func TestNoHome(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		const affinity = "stateless\x00alice"
		if !b.Owns(t.Context(), "files", affinity) {
			t.Fatal("not the owner")
		}
		asked := 0
		i.calls = func(cluster.Member) error {
			asked++
			return peer.ErrElsewhere
		}
		_, err := i.Home("files", affinity, local{i}).Call(t.Context(), request(t, "tools/call"))
		if !errors.Is(err, bridge.ErrUnavailable) || !errors.Is(err, peer.ErrElsewhere) || err.Error() == "" || asked < 10 {
			t.Errorf("after %d attempts: %v", asked, err)
		}
		refused := 0
		i.calls = func(cluster.Member) error {
			if refused++; refused < 5 {
				return &peer.Unsent{Err: errors.New("refused")}
			}
			return nil
		}
		if m, err := i.Home("files", affinity, local{i}).Call(t.Context(), request(t, "tools/call")); err != nil || string(m.Result) != `"at b"` {
			t.Errorf("an owner that comes back: %s, %v", bridgetest.Text(m), err)
		}
	})
}

// A call to an owner that is known does not need the store. An owner that refuses it once, as one does that is not
// sure for a moment, is asked again (S-060).
func TestStoreAway(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		const affinity = "stateless\x00"
		if !i.Owns(t.Context(), "files", affinity) {
			t.Fatal("not the owner")
		}
		call := func() {
			t.Helper()
			if m, err := b.Home("files", affinity, local{b}).Call(t.Context(), request(t, "tools/call")); err != nil || string(m.Result) != `"at a"` {
				t.Errorf("%v without the store: %s, %v", b.o.Node.State(), bridgetest.Text(m), err)
			}
		}
		call()
		open := func() { // by what it asks the owner; there is no tunnel here
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			before := b.asked.Load()
			_, _ = b.Shared("files", nil, true, &server{}).Open(ctx, &bridge.Caller{}, bridge.Nobody{})
			if b.asked.Load() == before {
				t.Error("an opening has not asked the owner that is known")
			}
		}
		if !i.Owns(t.Context(), "files", "") {
			t.Fatal("not the owner")
		}
		open()
		i.w.answers(session.ErrUnavailable)
		n := 0
		b.calls = func(cluster.Member) error {
			if n++; n%3 == 0 {
				return peer.ErrElsewhere
			}
			return nil
		}
		for since := time.Now(); time.Since(since) < 5*lease; time.Sleep(lease / 10) {
			call()
		}
		open()
		i.w.answers(nil)
		call()
	})
}

// While no instance reaches the store, one that does not know the owner asks the others, once for all calls that wait.
// Where there is no owner, calls end after a while, also if two instances ask each other (S-060).
func TestStoreAwayUnknownOwner(t *testing.T) {
	in(t, func(t *testing.T, a, b *instance) {
		const affinity = "stateless\x00alice"
		if !a.Owns(t.Context(), "files", affinity) {
			t.Fatal("not the owner")
		}
		a.told.Store(true)
		b.told.Store(true)
		a.w.answers(session.ErrUnavailable)
		time.Sleep(lease)
		const many = 100
		done := make(chan string, many)
		for range many {
			go func() {
				m, err := b.Home("files", affinity, local{b}).Call(t.Context(), request(t, "tools/call"))
				done <- fmt.Sprintf("%s, %v", bridgetest.Text(m), err)
			}()
		}
		for range many {
			if said := <-done; !strings.Contains(said, `"at a"`) {
				t.Errorf("a call whose owner was not known: %s", said)
			}
		}
		if n := b.asked.Load(); n > many/10 {
			t.Errorf("the owner was asked for %d times", n)
		}
		began, ended := time.Now(), make(chan error)
		for _, i := range []*instance{a, b} {
			go func() {
				_, err := i.Home("files", "stateless\x00bob", local{i}).Call(t.Context(), request(t, "tools/call"))
				ended <- err
			}()
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, bridge.ErrOverloaded) || time.Since(began) > 2*lease {
				t.Errorf("a call without an owner: %v after %v", err, time.Since(began))
			}
		}
	})
}

// When the store comes back, it answers one instance before the other. The other one knows by then that sessions may be
// taken over: its calls, and those of clients elsewhere, wait until the store answers it, too (S-060).
func TestStoreComesBack(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		const affinity = "stateless\x00"
		if !b.Owns(t.Context(), "files", affinity) {
			t.Fatal("not the owner")
		}
		b.w.answers(session.ErrUnavailable)
		time.Sleep(2 * lease)
		waits, under := make(chan struct{}), make(chan error)
		go func() {
			_, err := b.Home("files", affinity, waiter{b, waits}).Call(t.Context(), request(t, "tools/call"))
			under <- err
		}()
		synctest.Wait()
		b.w.back(b.id)
		for b.o.Node.State() != cluster.Isolated {
			time.Sleep(lease / 100)
		}
		close(waits)
		time.AfterFunc(lease/4, func() { b.w.back("") })
		if m, err := b.Home("files", affinity, local{b}).Call(t.Context(), request(t, "tools/call")); err != nil || string(m.Result) != `"here"` {
			t.Errorf("a call that comes then: %s, %v", bridgetest.Text(m), err)
		}
		if err := <-under; err != nil {
			t.Errorf("a call that is about to be sent then: %v", err)
		}
	})
}

// A call waits for the lease of an owner that has died, also where nobody knows that owner, and where the store
// gives no answer at first. Then it succeeds, however many wait. A shared connection of sessions opens as soon (S-030).
func TestOwnerDies(t *testing.T) {
	for _, c := range []struct {
		name   string
		starts time.Duration // after the death, when the instance that is called starts; 0 for one that has known the owner
		fails  bool          // the store gives no answer at first
		within time.Duration
	}{
		{"known", 0, false, lease + time.Second},
		{"at a new instance", lease / 2, false, lease + time.Second},
		{"at an instance that never saw the owner", lease, false, 2*lease + time.Second}, // it may miss a first beat
		{"the store fails", 0, true, lease + time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, i, to *instance) {
				const stateless = "stateless\x00"
				if !i.Owns(t.Context(), "files", stateless) || !i.Owns(t.Context(), "files", "") {
					t.Fatal("not the owner")
				}
				call := func() error {
					_, err := to.Home("files", stateless, local{to}).Call(t.Context(), request(t, "tools/call"))
					return err
				}
				open := func() error {
					up, err := to.Shared("files", nil, true, &server{}).Open(t.Context(), &bridge.Caller{}, bridge.Nobody{})
					if err != nil {
						return err
					}
					return up.Close(t.Context())
				}
				if err := call(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(lease / 4)
				died := time.Now()
				i.w.set(i, true)
				if c.starts > 0 {
					time.Sleep(c.starts)
					to = i.w.start("c")
					<-to.o.Node.Joined()
				}
				to.calls = func(m cluster.Member) error {
					if m.ID == "a" {
						return &peer.Unsent{Err: errors.New("refused")}
					}
					return nil
				}
				if c.fails {
					i.w.answers(session.ErrUnavailable)
					time.AfterFunc(lease/6, func() { i.w.answers(nil) })
				}
				done := make(chan error)
				const many = 100
				for range many {
					go func() { done <- call() }()
					go func() { done <- open() }()
				}
				for range 2 * many {
					if err := <-done; err != nil {
						t.Errorf("%v after the death: %v", time.Since(died), err)
					}
				}
				if took := time.Since(died); took > c.within {
					t.Errorf("the last waited for %v", took)
				}
			})
		})
	}
}

// An instance that alone does not reach the store refuses calls whose owner it does not know.
func TestIsolatedRefuses(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		i.w.set(b, true)
		time.Sleep(2 * lease)
		began := time.Now()
		if _, err := b.Home("files", "stateless\x00", local{b}).Call(t.Context(), request(t, "tools/call")); !errors.Is(err, bridge.ErrUnavailable) {
			t.Errorf("a call of an instance that is %v: %v", b.o.Node.State(), err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it was refused after %v", took)
		}
	})
}

// An instance that stops gives up what nobody uses there as soon as others make no calls, and
// the rest when that is so: it may have calls of its own to other servers for long (S-070).
func TestDrainGivesUp(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		const called, busy = "stateless\x00alice", "stateless\x00bob"
		if _, err := i.Home("files", called, local{i}).Call(t.Context(), request(t, "tools/call")); err != nil {
			t.Fatal(err)
		}
		may, done := make(chan struct{}), make(chan error)
		go func() {
			_, err := i.Home("files", busy, waiter{i, may}).Call(t.Context(), request(t, "tools/call"))
			done <- err
		}()
		lane, err := i.Shared("files", nil, true, &server{}).Open(t.Context(), &bridge.Caller{}, &gone{lost: make(chan error, 1)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a claim takes a beat
		i.Drain(t.Context())
		time.Sleep(time.Second)
		if !b.Owns(t.Context(), "files", called) {
			t.Error("an owner that nobody uses is not given up")
		}
		for _, affinity := range []string{busy, ""} {
			if b.Owns(t.Context(), "files", affinity) {
				t.Errorf("%q has two owners", affinity)
			}
		}
		i.mu.Lock()
		i.unused = map[string]func(){"": func() { _ = lane.Close(context.Background()) }} // its last session has left
		i.mu.Unlock()
		close(may)
		if err := <-done; err != nil {
			t.Errorf("a call of its own: %v", err)
		}
		time.Sleep(time.Second)
		for _, affinity := range []string{busy, ""} {
			if !b.Owns(t.Context(), "files", affinity) {
				t.Errorf("the owner of %q is not given up when it is not used any more", affinity)
			}
		}
		if n := i.Owned(); n != 0 {
			t.Errorf("%d owners are left", n)
		}
	})
}

// An instance that stops waits until each other one says that nothing of it leads there any more, however long
// that takes, and not for a time: it ends with the answer, or with the time to drain. Where it is the owner of
// nothing it does not wait (S-070). An instance of an older version does not confirm that it left: it gets a moment to do so.
func TestDrainIsAcknowledged(t *testing.T) {
	in(t, func(t *testing.T, a, b *instance) {
		drain := func(i *instance, within time.Duration) (done chan time.Duration) {
			done = make(chan time.Duration, 1)
			ctx, cancel := context.WithTimeout(t.Context(), within)
			began := time.Now()
			go func() {
				defer cancel()
				i.Drain(ctx)
				done <- time.Since(began)
			}()
			return done
		}
		if took := <-drain(b, time.Hour); took != 0 {
			t.Errorf("an instance that is the owner of nothing took %v to drain", took)
		}
		if _, err := a.Home("files", "stateless\x00", local{a}).Call(t.Context(), request(t, "tools/call")); err != nil {
			t.Fatal(err)
		}
		stops, used, err := b.out.enter("a") // as by a tunnel
		if err != nil {
			t.Fatal(err)
		}
		done := drain(a, time.Hour)
		<-stops.Done()
		if _, _, err := b.out.enter("a"); !errors.Is(err, peer.ErrElsewhere) {
			t.Errorf("another use of an instance that stops: %v", err)
		}
		time.Sleep(10 * time.Minute)
		select {
		case took := <-done:
			t.Errorf("it took %v to drain, and is used yet", took)
		default:
		}
		if n := a.Owned(); n != 1 {
			t.Errorf("it is the owner of %d meanwhile", n)
		}
		used()
		if took := <-done; took != 10*time.Minute {
			t.Errorf("it took %v to drain, 10 minutes after which it was left", took)
		}
		c := a.w.start("c")
		if _, err := c.Home("files", "of c", local{c}).Call(t.Context(), request(t, "tools/call")); err != nil {
			t.Fatal(err)
		}
		if _, _, err = b.out.enter("c"); err != nil {
			t.Fatal(err)
		}
		if took := <-drain(c, time.Minute); took != time.Minute {
			t.Errorf("it took %v to drain, want all of the time there is", took)
		}
		d := a.w.start("d")
		if _, err := d.Home("files", "of d", local{d}).Call(t.Context(), request(t, "tools/call")); err != nil {
			t.Fatal(err)
		}
		a.w.old.Store(true)
		if took := <-drain(d, time.Hour); took != unconfirmedWait {
			t.Errorf("it took %v to drain beside older versions, want %v", took, unconfirmedWait)
		}
	})
}

// An instance that was left is asked for nothing any more: a call waits for the next owner.
func TestNothingSentToOneThatStops(t *testing.T) {
	in(t, func(t *testing.T, i, b *instance) {
		if _, err := i.Home("files", "stateless\x00", local{i}).Call(t.Context(), request(t, "tools/call")); err != nil {
			t.Fatal(err)
		}
		asked := 0
		b.calls = func(cluster.Member) error { asked++; return nil }
		to := b.Home("files", "stateless\x00", local{b})
		if _, err := to.Call(t.Context(), request(t, "tools/call")); err != nil || asked != 1 {
			t.Fatalf("a call: %v, asked %d times", err, asked)
		}
		if err := b.Leave(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error)
		go func() {
			_, err := to.Call(t.Context(), request(t, "tools/call"))
			answered <- err
		}()
		time.Sleep(time.Second)
		i.Drain(t.Context())
		if err := <-answered; err != nil || asked != 1 {
			t.Errorf("a call while the owner stops: %v, asked %d times", err, asked)
		}
	})
}

// One caller has a bounded number of homes: those that it does not use go first. Others have
// room beside that.
func TestRoom(t *testing.T) {
	in(t, func(t *testing.T, a, _ *instance) {
		call := func(affinity string, to bridge.Away) error {
			_, err := a.Home("files", affinity, to).Call(t.Context(), request(t, "tools/call"))
			return err
		}
		for i := range 3 * maxPerCaller {
			if err := call(fmt.Sprint("stateless\x00alice\x00X-Tenant:", i), local{a}); err != nil {
				t.Fatalf("owner %d: %v", i, err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := a.Owned(); n != maxPerCaller {
			t.Errorf("%d owners of one caller, want %d", n, maxPerCaller)
		}
		if !a.has("stateless\x00alice\x00X-Tenant:0") || a.has(fmt.Sprint("stateless\x00alice\x00X-Tenant:", 3*maxPerCaller-1)) {
			t.Errorf("left: %q", a.left)
		}
		may, done := make(chan struct{}), make(chan error)
		for i := range maxPerCaller {
			go func() { done <- call(fmt.Sprint("stateless\x00alice\x00X-Tenant:", i), waiter{a, may}) }()
		}
		time.Sleep(time.Second) // a claim takes a beat
		if err := call("stateless\x00alice\x00X-Tenant:more", local{a}); !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("one more than there may be = %v", err)
		}
		if _, err := a.Shared("files", nil, false, &server{}).Open(t.Context(), &bridge.Caller{Principal: "alice", Capabilities: []byte("{}")}, bridge.Nobody{}); !errors.Is(err, bridge.ErrOverloaded) {
			t.Errorf("one more for sessions = %v", err)
		}
		for _, affinity := range []string{"stateless\x00bob", "stateless\x00", ""} {
			if err := call(affinity, local{a}); err != nil {
				t.Errorf("of another caller (%q): %v", affinity, err)
			}
		}
		close(may)
		for range maxPerCaller {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := call("stateless\x00alice\x00X-Tenant:more", local{a}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// queued opens nothing before its turn.
type queued struct{ bridge.Adapter }

func (queued) BoundsOpenings() time.Duration { return time.Minute }

// Whose openings wait in a queue of their own does so for shared connections, too.
func TestQueued(t *testing.T) {
	o := &Owners{}
	if b, ok := o.Shared("files", nil, true, queued{&server{}}).(bridge.BoundsOpenings); !ok || b.BoundsOpenings() != time.Minute {
		t.Error("the queue is not the bound")
	}
	if _, ok := o.Shared("files", nil, true, &server{}).(bridge.BoundsOpenings); ok {
		t.Error("nothing bounds the openings")
	}
}
