package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster/clustertest"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/cluster/queue/queuetest"
	"github.com/mcp-bridge/bridge/internal/oauth/front"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// world has whole bridges in one process, the network between them, and the store that they
// have in common. Network and store have faults. All is in memory, so that time is a fake.
type world struct {
	t       *testing.T
	store   *clustertest.Store
	streams *replay.Memory
	logins  *front.Memory

	mu       sync.Mutex // guards the rest
	changed  chan struct{}
	line     *queuetest.Memory
	saved    []session.Held   // records as they were once
	whole    []*wholeOne      // all that there were
	apart    map[[2]int]fault // between two instances
	answered int              // so many answers of the store are lost
	lengths  int              // how often the store was asked how long lines are
}

// fault is what is wrong with a way.
type fault int

const (
	fine    fault = iota
	refuses       // nothing connects, and what was connected breaks
	silent        // nothing arrives, and nobody is told
)

// wholeOne is an instance.
type wholeOne struct {
	w      *world
	n      int
	s      *server
	site   *wiretest.Site // its clients
	stop   context.CancelFunc
	done   chan struct{}
	err    error // of Serve; set before done
	peer   *peerPort
	secret string

	// Guarded by w.mu.
	dead, leaves bool
	cut          fault // from the store
	slow         time.Duration
	conns        map[net.Conn]bool // of clients
	ends         map[*link]bool    // to and from other instances
}

const wholeLease = 6 * time.Second

// inWorld runs f in a bubble with a world, which ends with it.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.end()
		f(t, w)
	})
}

func newWorld(t *testing.T) *world {
	return &world{
		t:       t,
		store:   clustertest.New(),
		streams: replay.NewMemory(),
		logins:  front.NewMemory(),
		changed: make(chan struct{}),
		line:    queuetest.NewMemory(),
		apart:   map[[2]int]fault{},
	}
}

// instanceIn returns the configuration of an instance without servers.
func instanceIn() *config.Config {
	c := config.Default()
	c.Cluster.Redis, c.Cluster.Secret, c.Cluster.Lease = "redis://in-memory", strings.Repeat("secret ", 6), wholeLease
	return &c
}

// start starts an instance, and waits until it serves, or fails.
func (w *world) start(c *config.Config, log *slog.Logger, reach backendMaker) *wholeOne {
	ctx, cancel := context.WithCancel(context.Background())
	o := &wholeOne{
		w:      w,
		site:   wiretest.NewClients(w.t),
		stop:   cancel,
		done:   make(chan struct{}),
		peer:   newPeerPort(),
		secret: c.Cluster.Secret,
		conns:  map[net.Conn]bool{},
		ends:   map[*link]bool{},
	}
	w.mu.Lock()
	o.n = len(w.whole)
	o.peer.at = fmt.Sprintf("instance-%d:8809", o.n)
	w.whole = append(w.whole, o)
	w.mu.Unlock()
	c.Cluster.Listen, c.Cluster.Advertise = o.peer.at, cmp.Or(c.Cluster.Advertise, o.peer.at)
	o.s = buildOn(c, log, reach, func(_ *server, id string, _ time.Duration) (*backing, error) {
		v := w.store.As(id, o.secret, o.way)
		return &backing{
			sessions: v,
			registry: v,
			tasks:    v,
			values:   logins{o},
			streams:  copies{o},
			offers:   offers{o},
			hooks:    v.Hooks(),
			close:    func() error { return nil },
			dialer:   o,
			listen:   func(context.Context, string, time.Duration) (net.Listener, error) { return o.peer, nil },
		}, nil
	})
	go func() {
		defer close(o.done)
		o.err = o.s.Serve(ctx, door{o.site.Listener(), o})
	}()
	select {
	case <-o.s.Serving():
	case <-o.done:
	case <-time.After(wholeLease): // while the store is away
	}
	return o
}

// reaching makes backends of one server in memory.
func reaching(s *wiretest.Server) backendMaker {
	return func(*server, *config.Server) backend {
		return backend{Adapter: s, transport: func() string { return "stdio" }}
	}
}

// status returns what an instance says of itself.
func (w *wholeOne) status(header ...string) (int, gjson.Result) {
	r := w.site.Do("GET", "/readyz", "", header...).Wait()
	return r.Status(), gjson.Get(r.Body(), "cluster")
}

// kill ends an instance without a word: nothing of it reaches anybody from now on.
func (w *world) kill(o *wholeOne) {
	w.mu.Lock()
	o.dead = true
	conns, ends := o.takeConns(), o.takeEnds(func(*link) bool { return true })
	w.change()
	w.mu.Unlock()
	for _, c := range append(conns, ends...) {
		_ = c.Close()
	}
	_ = o.peer.Close()
	o.stop()
}

// change wakes those who wait for something to change. The caller holds w.mu.
func (w *world) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *wholeOne) takeConns() (all []net.Conn) {
	for c := range w.conns {
		all = append(all, c)
	}
	clear(w.conns)
	return all
}

func (w *wholeOne) takeEnds(which func(*link) bool) (all []net.Conn) {
	for l := range w.ends {
		if which(l) {
			all = append(all, l)
			delete(w.ends, l)
		}
	}
	return all
}

// end stops all instances.
func (w *world) end() {
	w.heal()
	for _, o := range w.whole {
		o.stop()
	}
	for _, o := range w.whole {
		<-o.done
	}
	time.Sleep(time.Minute) // net/http lingers on some connections
}

// until waits for something that others do.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for pause, begun := time.Millisecond, time.Now(); !is(); pause = min(2*pause, 100*time.Millisecond) {
		if time.Since(begun) > 10*time.Minute {
			w.t.Fatalf("it never comes to pass: %s", what)
		}
		time.Sleep(pause)
	}
}

// joined waits until all instances see n. Each looks at once, not at its next beat.
func (w *world) joined(n int) {
	w.t.Helper()
	for _, o := range w.living() {
		w.until("all see each other", func() bool {
			_ = o.s.instance.node.Beat(w.t.Context())
			return len(o.s.instance.node.Members()) == n
		})
	}
}

// heal takes all faults away.
func (w *world) heal() {
	w.join()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.whole {
		o.cut, o.slow = fine, 0
	}
	w.answered = 0
	w.change()
}

// join has all instances reach each other.
func (w *world) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.whole {
		for l := range o.ends {
			l.Hold(false)
		}
	}
	clear(w.apart)
	w.change()
}

// refuse has the store refuse instances.
func (w *world) refuse(all ...*wholeOne) { w.lose(refuses, all) }

// hush has the store not answer instances.
func (w *world) hush(all ...*wholeOne) { w.lose(silent, all) }

func (w *world) lose(f fault, all []*wholeOne) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, w := range all {
		w.cut = f
	}
	w.change()
}

// parted reports whether instances do not reach each other.
func (w *world) parted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.apart) > 0
}

// calm reports whether there are no faults.
func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.whole {
		if !o.dead && (o.cut != fine || o.slow > 0) {
			return false
		}
	}
	return len(w.apart) == 0 && w.answered == 0
}

// part has a fault between two instances.
func (w *world) part(a, b *wholeOne, f fault) {
	w.mu.Lock()
	pair := pairOf(a.n, b.n)
	w.apart[pair] = f
	w.change()
	if f == silent {
		for l := range a.ends {
			if l.pair == pair {
				l.Hold(true)
			}
		}
		time.AfterFunc(3*wholeLease, func() { w.giveUp(a, pair) })
		w.mu.Unlock()
		return
	}
	all := a.takeEnds(func(l *link) bool { return l.pair == pair })
	w.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// giveUp is what the kernel does after three leases of silence.
func (w *world) giveUp(a *wholeOne, pair [2]int) {
	w.mu.Lock()
	var all []net.Conn
	if w.apart[pair] == silent {
		all = a.takeEnds(func(l *link) bool { return l.pair == pair })
	}
	w.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// wipe empties the store, or brings back the records that it had at mark. It is another process then.
func (w *world) wipe(saved []session.Held) {
	w.store.Restart()
	if len(saved) > 0 {
		w.store.Restore(saved)
		return
	}
	w.store.Wipe()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = queuetest.NewMemory()
}

// mark remembers what the store has.
func (w *world) mark() { w.saved = w.store.Records() }

// living returns the instances that were not killed, and do not stop.
func (w *world) living() (all []*wholeOne) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.whole {
		if !o.dead && !o.leaves {
			all = append(all, o)
		}
	}
	return all
}

// door is where clients come in.
type door struct {
	net.Listener
	o *wholeOne
}

func (d door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d.o.w.mu.Lock()
	dead := d.o.dead
	if !dead {
		d.o.conns[c] = true
	}
	d.o.w.mu.Unlock()
	if dead {
		_ = c.Close()
	}
	return c, nil
}

// peerPort is a listener in memory.
type peerPort struct {
	at    string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPeerPort() *peerPort { return &peerPort{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *peerPort) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *peerPort) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *peerPort) Addr() net.Addr { return named(p.at) }

type named string

func (named) Network() string  { return "memory" }
func (n named) String() string { return string(n) }

// link is one end of a connection between two instances.
type link struct {
	*wiretest.End
	pair [2]int
}

// DialContext connects to the instance at an address.
func (w *wholeOne) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	for {
		w.w.mu.Lock()
		var to *wholeOne
		for _, other := range w.w.whole {
			if other.peer.at == address {
				to = other
			}
		}
		if to == nil || to.dead || w.dead || w.w.apart[pairOf(w.n, to.n)] == refuses {
			w.w.mu.Unlock()
			return nil, errors.New("connection refused")
		}
		changed, quiet := w.w.changed, w.w.apart[pairOf(w.n, to.n)] == silent
		w.w.mu.Unlock()
		if quiet {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		here, there := wiretest.Pipe()
		l, b := &link{here, pairOf(w.n, to.n)}, &link{there, pairOf(w.n, to.n)}
		select {
		case to.peer.conns <- b:
		case <-to.peer.done:
			return nil, errors.New("connection refused")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.w.mu.Lock()
		f := w.w.apart[l.pair]
		dead := w.dead || to.dead || f == refuses
		l.Hold(f == silent)
		for _, end := range []*link{l, b} {
			w.ends[end], to.ends[end] = true, true
		}
		w.w.mu.Unlock()
		if dead {
			_, _ = l.Close(), b.Close()
		}
		return l, nil
	}
}

// way is the way of an instance to the store.
func (w *wholeOne) way(ctx context.Context, _, _ string, do func() error) error {
	return w.do(ctx, func(*world) error { return do() })
}

// do does something in the store, unless it is out of reach. An instance that hears nothing
// does not know whether it was done: what it has sent arrives when the silence ends.
func (w *wholeOne) do(ctx context.Context, f func(w *world) error) error {
	all := w.w
	all.mu.Lock()
	gone, slow := w.dead || w.cut == refuses, w.slow
	all.mu.Unlock()
	if gone {
		return session.ErrUnavailable
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(slow / 2)
		for {
			all.mu.Lock()
			switch {
			case w.dead || w.cut == refuses:
				all.mu.Unlock()
				done <- session.ErrUnavailable
				return
			case w.cut == fine:
				err := f(all)
				lost := all.answered > 0
				if lost {
					all.answered--
					err = session.ErrUnavailable
				}
				all.mu.Unlock()
				time.Sleep(slow / 2)
				done <- err
				return
			}
			changed := all.changed
			all.mu.Unlock()
			<-changed
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return session.ErrUnavailable
	}
}

// ask asks the store for something, as an instance reaches it.
func ask[T any](ctx context.Context, o *wholeOne, f func(w *world) (T, error)) (answer T, err error) {
	err = o.do(ctx, func(w *world) (err error) {
		answer, err = f(w)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return answer, nil
}

// offers is the queue of openings, as an instance reaches it.
type offers struct{ to *wholeOne }

func (o offers) Add(ctx context.Context, server string, r queue.Request, most int) (string, error) {
	return ask(ctx, o.to, func(w *world) (string, error) { return w.line.Add(ctx, server, r, most) })
}

// Take takes a request, which nobody has when the answer is lost.
func (o offers) Take(ctx context.Context, servers []string, wait time.Duration) ([]queue.Taken, error) {
	line, err := ask(ctx, o.to, func(w *world) (*queuetest.Memory, error) { return w.line, nil })
	if err != nil {
		return nil, err
	}
	all, err := line.Take(ctx, servers, wait)
	if len(all) > 0 {
		err = o.to.do(ctx, func(*world) error { return nil })
	}
	return all, err
}

func (o offers) Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]queue.Taken, error) {
	return ask(ctx, o.to, func(w *world) ([]queue.Taken, error) { return w.line.Overdue(ctx, servers, after, most) })
}

func (o offers) Return(ctx context.Context, t queue.Taken) error {
	return o.to.do(ctx, func(w *world) error { return w.line.Return(ctx, t) })
}

func (o offers) Has(ctx context.Context, server, name string) (bool, error) {
	return ask(ctx, o.to, func(w *world) (bool, error) { return w.line.Has(ctx, server, name) })
}

func (o offers) Done(ctx context.Context, server, name string) error {
	return o.to.do(ctx, func(w *world) error { return w.line.Done(ctx, server, name) })
}

func (o offers) Lengths(ctx context.Context, servers []string) ([]int, error) {
	return ask(ctx, o.to, func(w *world) ([]int, error) {
		w.lengths++
		return w.line.Lengths(ctx, servers)
	})
}

// logins are what front keeps, as an instance reaches it.
type logins struct{ to *wholeOne }

func (l logins) Get(ctx context.Context, key string) ([]byte, error) {
	return ask(ctx, l.to, func(w *world) ([]byte, error) { return w.logins.Get(ctx, key) })
}

func (l logins) Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	return ask(ctx, l.to, func(w *world) (bool, error) { return w.logins.Swap(ctx, key, old, value, life) })
}

func (l logins) End(ctx context.Context, id string, life time.Duration) error {
	return l.to.do(ctx, func(w *world) error { return w.logins.End(ctx, id, life) })
}

func (l logins) Ended(ctx context.Context, mark string) (ids []string, next string, err error) {
	err = l.to.do(ctx, func(w *world) (err error) {
		ids, next, err = w.logins.Ended(ctx, mark)
		return err
	})
	return ids, next, err
}

// copies are the streams, as an instance reaches them.
type copies struct{ to *wholeOne }

func (c copies) Write(ctx context.Context, all []replay.Entry) error {
	return c.to.do(ctx, func(w *world) error { return w.streams.Write(context.Background(), all) })
}

func (c copies) Take(ctx context.Context, id, stream string, seq, mark int64) (replay.Taken, error) {
	return ask(ctx, c.to, func(w *world) (replay.Taken, error) {
		return w.streams.Take(context.Background(), id, stream, seq, mark)
	})
}
