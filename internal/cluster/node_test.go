package cluster_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

const lease = 6 * time.Second

// world is a store in memory with faults, and the instances that use it.
type world struct {
	t     testing.TB
	store *clustertest.Store

	mu     sync.Mutex // guards the rest
	nodes  map[string]*cluster.Node
	cut    map[string]bool // from the store
	deaf   map[string]bool // does not answer the others
	mute   map[string]bool // the store puts what it asks, and its answers are lost
	slow   time.Duration   // that each command takes
	most   int             // sessions of an instance
	ended  map[string][]string
	told   func(n *cluster.Node, key string) // in Lost; may be nil
	before func(id, what, key string)        // sees each command of an instance on its way to the store; may be nil
	after  func(id, what, key string)        // sees its answer on the way back; may be nil
}

func newWorld(t testing.TB) *world {
	return &world{
		t:     t,
		store: clustertest.New(),
		nodes: map[string]*cluster.Node{},
		cut:   map[string]bool{},
		deaf:  map[string]bool{},
		mute:  map[string]bool{},
		most:  100,
		ended: map[string][]string{},
	}
}

// way is that of an instance to the store, and to the others.
type way struct {
	w  *world
	id string
}

// goes is the way there. Whoever was killed sends nothing more.
func (v way) goes(what, key string) error {
	v.w.mu.Lock()
	before, lives := v.w.before, v.w.nodes[v.id] != nil
	v.w.mu.Unlock()
	if !lives {
		return session.ErrUnavailable
	}
	if before != nil {
		before(v.id, what, key)
	}
	return nil
}

// back is the way of an answer.
func (v way) back(what, key string) {
	v.w.mu.Lock()
	after := v.w.after
	v.w.mu.Unlock()
	if after != nil {
		after(v.id, what, key)
	}
}

// command is the way of a command to the store, which may be cut off.
func (v way) command(_ context.Context, what, key string, do func() error) error {
	if err := v.goes(what, key); err != nil {
		return err
	}
	v.w.mu.Lock()
	slow := v.w.slow
	v.w.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	if v.is(v.w.cut) {
		return session.ErrUnavailable
	}
	err := do()
	v.back(what, key)
	if what == "put" && v.is(v.w.mute) {
		return session.ErrUnavailable
	}
	return err
}

func (v way) is(which map[string]bool) bool {
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	return which[v.id]
}

func (v way) Hello(_ context.Context, to cluster.Member, h cluster.Hello) (cluster.Hello, error) {
	if err := v.goes("hello", to.ID); err != nil {
		return cluster.Hello{}, err
	}
	defer v.back("hello", to.ID)
	v.w.mu.Lock()
	n, deaf := v.w.nodes[to.ID], v.w.deaf[to.ID] || v.w.deaf[v.id]
	v.w.mu.Unlock()
	if n == nil || deaf {
		return cluster.Hello{}, errors.New("refused")
	}
	return n.Answer(h), nil
}

func (way) Disconnect(string) {}

// start starts an instance.
func (w *world) start(id string) *cluster.Node {
	v := way{w, id}
	store := w.store.As(id, "", v.command)
	n := cluster.New(cluster.Options{Self: cluster.Member{ID: id}, Store: store, Registry: store, Peers: v, Lease: lease, Life: time.Hour, MaxSessions: w.most, Log: slog.New(slog.DiscardHandler),
		Lost: func(key string) {
			w.mu.Lock()
			w.ended[id] = append(w.ended[id], key)
			n, told := w.nodes[id], w.told
			w.mu.Unlock()
			if told != nil {
				told(n, key)
			}
		}})
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	n.Start(id + ":1")
	return n
}

// kill ends an instance without a word.
func (w *world) kill(id string) {
	w.mu.Lock()
	n := w.nodes[id]
	delete(w.nodes, id)
	w.mu.Unlock()
	n.Kill()
}

func (w *world) set(which map[string]bool, id string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	which[id] = on
}

func (w *world) watch(before, after func(id, what, key string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// wipe empties the store. With restart it is another process, too.
func (w *world) wipe(restart bool) {
	w.store.Wipe()
	if restart {
		w.store.Restart()
	}
}

func (w *world) close() {
	for id := range w.nodes {
		w.kill(id)
	}
}

func (w *world) put(n *cluster.Node, key string) session.Held {
	w.t.Helper()
	h, err := n.Put(w.t.Context(), session.Held{Record: session.Record{Key: key}})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// takeOver does what an instance does that gets a request for a session of another one.
func takeOver(ctx context.Context, n *cluster.Node, key string) error {
	if n.Holds(key) {
		return n.Await(ctx, key)
	}
	if err := n.Await(ctx, key); err != nil {
		return err
	}
	h, err := n.Find(ctx, key)
	if err != nil {
		return err
	}
	if h.Owner != "" && h.Owner != n.ID() {
		if dead, err := n.Dead(ctx, h.Owner); err != nil || !dead {
			return errors.Join(err, session.ErrFenced)
		}
	}
	_, err = n.Take(ctx, h)
	return err
}

func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		f(t, w)
	})
}

// (S-030, S-011): the sessions of an instance that was killed are there for the others
// after a lease, and not before. (S-013): one of two gets it.
func TestTakeOver(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		n, b, c := w.start("a"), w.start("b"), w.start("c")
		time.Sleep(3 * lease)
		w.put(n, "k")
		if err := takeOver(t.Context(), b, "k"); !errors.Is(err, session.ErrFenced) {
			t.Errorf("of a living one: %v", err)
		}
		w.kill("a")
		killed := time.Now()
		for takeOver(t.Context(), b, "k") != nil {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(killed); took > lease+time.Second || took < lease/2 {
			t.Errorf("taken over after %v", took)
		}
		if err := takeOver(t.Context(), c, "k"); !errors.Is(err, session.ErrFenced) {
			t.Errorf("by another too: %v", err)
		}
	})
}

// setSince returns a time as one that was read before the wall clock was set by so many
// seconds: since then, the two clocks of the machine do not agree.
func setSince(t *testing.T, at time.Time, by int64) time.Time {
	t.Helper()
	was := at
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(by) << 30 // of package time: the wall clock, in seconds
	if wall, other := was.Round(0).Sub(at.Round(0)), was.Sub(at); wall != time.Duration(by)*time.Second || other != 0 {
		t.Fatalf("the wall clock is set by %v, the other one by %v", wall, other)
	}
	return at
}

func frozen(t *testing.T, w *world, apart time.Duration) {
	n := w.start("a")
	time.Sleep(apart)
	b := w.start("b")
	time.Sleep(apart)
	w.start("c")
	time.Sleep(3*lease + apart/2)
	w.put(n, "k")
	for _, id := range []string{"a", "b", "c"} {
		w.set(w.cut, id, true)
	}
	for second := range 60 {
		w.set(w.deaf, "a", second == 30 || second == 31) // several beats fail in a lease
		time.Sleep(time.Second)
		if !n.Ready() && n.Await(t.Context(), "k") != nil {
			t.Fatalf("a session is not served while beats are %s apart", apart)
		}
	}
	if n.State() != cluster.Frozen {
		t.Errorf("state %s", n.State())
	}
	w.put(b, "new")
	if err := takeOver(t.Context(), b, "k"); err == nil {
		t.Error("taken over without a store")
	}
	for _, id := range []string{"a", "b", "c"} {
		w.set(w.cut, id, false)
	}
	time.Sleep(lease)
	for key, owner := range map[string]string{"k": "a", "new": "b"} {
		if h, err := b.Find(t.Context(), key); err != nil || h.Owner != owner {
			t.Errorf("%s: %+v, %v", key, h, err)
		}
	}
	w.set(w.cut, "a", true)
	w.set(w.deaf, "a", true)
	time.Sleep(2 * lease)
	if n.State() != cluster.Isolated { // fewer than half are reached
		t.Errorf("state %s", n.State())
	}
}

// Whatever happens to instances and store, no two instances begin requests of one session
// at the same time (S-010), and afterwards each session has one owner that serves it, if
// its owner did not take its record with it.
//
// Which of two things comes first decides about owners. If commands took no time, many would happen at one
// instant, in the order in which the scheduler of the real machine runs them: a fault would come once in
// thousands of runs, and never again. So each command, and each answer, is on its way for a time of
// its own that is drawn, too.
func TestOwnership(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(scaletest.Of(20, 100))); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 1<<16-1), 40, 120).Draw(rt, "steps")
		ways := rapid.Uint64().Draw(rt, "ways")
		fault := ""
		synctest.Test(t, func(t *testing.T) { fault = play(t, steps, ways) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// travels returns how long things are on their way: each for a time that depends on the seed, on what it is
// and on how many of that kind were before, and not on what else runs. Most take a few milliseconds, some
// are slow, and none is so slow that it is given up.
func travels(seed uint64) func(what ...string) time.Duration {
	var mu sync.Mutex
	count := map[string]uint64{}
	return func(what ...string) time.Duration {
		name := strings.Join(what, " ")
		mu.Lock()
		count[name]++
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, seed, count[name], name)
		mu.Unlock()
		r := rand.New(rand.NewPCG(seed, h.Sum64()))
		most := 5 * time.Millisecond
		if r.IntN(6) == 0 {
			most = cluster.OpTimeout / 3
		}
		return 1 + time.Duration(r.Int64N(int64(most)))
	}
}

func play(t *testing.T, steps []int, ways uint64) (fault string) {
	w := newWorld(t)
	defer w.close()
	travel := travels(ways)
	w.watch(func(id, what, key string) { time.Sleep(travel("to", id, what, key)) }, func(id, what, key string) { time.Sleep(travel("from", id, what, key)) })
	started, sessions := 0, 0
	begin := func() {
		w.start(fmt.Sprint("node", started))
		started++
		time.Sleep(travel("begin")) // its first beat is on its way
	}
	for range 3 {
		begin()
	}
	time.Sleep(3 * lease)
	living := func() (all []*cluster.Node) { // always in the same order
		for i := range started {
			if n := w.nodes[fmt.Sprint("node", i)]; n != nil {
				all = append(all, n)
			}
		}
		return all
	}
	owners := func() string { // it takes no time: what it finds is so at one instant
		for s := range sessions {
			var who []string
			for _, n := range living() {
				if n.Begins(fmt.Sprint("s", s)) {
					who = append(who, fmt.Sprintf("%s (%s, cut: %t)", n.ID(), n.State(), w.cut[n.ID()]))
				}
			}
			if len(who) > 1 {
				return fmt.Sprintf("s%d is served by %d instances: %v", s, len(who), who)
			}
		}
		return ""
	}
	var requests sync.WaitGroup // nothing waits for these but the end: what happens meanwhile matters
	defer requests.Wait()
	asked := func() { // requests reach each instance
		for _, n := range living() {
			if !n.Ready() {
				requests.Go(func() { _ = n.Await(t.Context(), "") })
			}
		}
	}
	sleep := func(d time.Duration) string {
		for ; d > 0; d -= lease / 12 {
			time.Sleep(min(d, lease/12) + travel("sleep"))
			if fault := owners(); fault != "" {
				return fault
			}
		}
		return ""
	}
	cutOff := func() bool {
		return slices.ContainsFunc(living(), func(n *cluster.Node) bool { return w.cut[n.ID()] || n.State() != cluster.Sure })
	}
	pick := func(x int) (string, *cluster.Node) {
		i := x % started
		for {
			if n := w.nodes[fmt.Sprint("node", i)]; n != nil {
				return fmt.Sprint("node", i), n
			}
			i = (i + 1) % started
		}
	}
	for at, x := range steps {
		time.Sleep(travel("step"))
		id, n := pick(x / 16)
		switch x % 16 {
		case 0, 1, 2:
			if n.Await(t.Context(), "") == nil {
				_, _ = n.Put(t.Context(), session.Held{Record: session.Record{Key: fmt.Sprint("s", sessions)}})
				sessions++ // also if it failed: the store may have it all the same, and no id is made twice
			}
		case 3, 4, 5, 6:
			if sessions > 0 {
				key := fmt.Sprint("s", x/16%sessions)
				requests.Go(func() { _ = takeOver(t.Context(), n, key) })
			}
		case 7:
			if len(w.nodes) > 2 {
				w.kill(id)
			}
		case 8:
			// One that starts while the others are cut off is not known to them: S-010
			// excepts it.
			if len(w.nodes) < 5 && !cutOff() {
				begin()
			}
		case 9:
			w.set(w.cut, id, true)
		case 10:
			w.set(w.cut, id, !w.cut[id])
		case 11:
			for id := range w.nodes {
				w.set(w.cut, id, false)
			}
		case 12:
			for id := range w.nodes {
				w.set(w.cut, id, true)
			}
		case 13:
			w.store.Restart() // failed over, with nothing lost
		default:
			fault = sleep(time.Duration(x/16%80) * 100 * time.Millisecond)
		}
		asked()
		if fault == "" {
			fault = owners()
		}
		if fault != "" {
			return fmt.Sprintf("after step %d (%d): %s", at, x%16, fault)
		}
	}
	for id := range w.nodes {
		w.set(w.cut, id, false)
	}
	if fault := sleep(4 * lease); fault != "" {
		return "at the end: " + fault
	}
	for s := range sessions {
		key := fmt.Sprint("s", s)
		_, n := pick(s)
		switch err := takeOver(t.Context(), n, key); {
		case err == nil, errors.Is(err, session.ErrFenced): // it is the one, or another living is
		case errors.Is(err, session.ErrNotFound): // its owner has died before it could write
		default:
			return fmt.Sprintf("at the end %s has no owner: %v", key, err)
		}
	}
	if fault := owners(); fault != "" {
		return "at the end: " + fault
	}
	return ""
}

// enough says that there is room for one more owner.
func enough() error { return nil }
