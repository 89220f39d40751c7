package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// world has whole bridges in one process, the network between them, and the store that they
// have in common. Network and store have faults. All is in memory, so that time is a fake.
type world struct {
	t       *testing.T
	streams *replay.Memory
	line    *queue.Memory

	mu       sync.Mutex // guards the rest
	changed  chan struct{}
	run      int // of the store
	records  map[string]session.Held
	members  map[string]member
	saved    map[string]session.Held // records as they were once
	whole    []*wholeOne             // all that there were
	apart    map[[2]int]fault        // between two instances
	answered int                     // so many answers of the store are lost
}

// member is an instance, as the store knows it.
type member struct {
	cluster.Member
	until time.Time
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
	w    *world
	n    int
	s    *server
	f    *wiretest.Server // its child processes
	site *wiretest.Site   // its clients
	stop context.CancelFunc
	done chan struct{}
	peer *peerPort

	// Guarded by w.mu.
	dead, leaves bool
	cut          fault // from the store
	slow         time.Duration
	conns        map[net.Conn]bool // of clients
	ends         map[*link]bool    // to and from other instances
}

const wholeLease = 6 * time.Second

var wholeKeys = []string{"the-key-of-alice-1234", "the-key-of-bob-123456"}

func newWorld(t *testing.T) *world {
	w := &world{t: t, streams: replay.NewMemory(), line: queue.NewMemory(), changed: make(chan struct{}), records: map[string]session.Held{}, members: map[string]member{}, apart: map[[2]int]fault{}}
	w.saved = map[string]session.Held{}
	return w
}

// start starts an instance.
func (w *world) start() *wholeOne {
	c := config.Default()
	s := config.DefaultServer("files", "")
	s.Stdio = &config.Stdio{Command: "in memory"}
	c.Servers = append(c.Servers, s)
	c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
	c.Cluster.Redis, c.Cluster.Secret, c.Cluster.Lease, c.Drain = "redis://in-memory", strings.Repeat("secret ", 6), wholeLease, 4*time.Second
	o := &wholeOne{w: w, f: &wiretest.Server{}, site: wiretest.NewClients(w.t), done: make(chan struct{}), peer: newPeerPort(), conns: map[net.Conn]bool{}, ends: map[*link]bool{}}
	w.mu.Lock()
	o.n = len(w.whole)
	o.peer.at = fmt.Sprintf("instance-%d:8809", o.n)
	w.whole = append(w.whole, o)
	w.mu.Unlock()
	c.Cluster.Listen, c.Cluster.Advertise = o.peer.at, o.peer.at
	o.s = buildOn(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
		return backend{Adapter: o.f, transport: func() string { return "stdio" }}
	}, func(_ *server, id string, _ time.Duration) (*backing, error) {
		v := &view{o, id}
		return &backing{
			sessions: v, registry: v, tasks: v, streams: copies{v}, offers: w.line, close: func() error { return nil },
			dial:   func(ctx context.Context, _, address string) (net.Conn, error) { return o.dial(ctx, address) },
			listen: func(context.Context, string, time.Duration) (net.Listener, error) { return o.peer, nil },
		}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	o.stop = cancel
	go func() {
		defer close(o.done)
		_ = o.s.Serve(ctx, door{o.site.Listener(), o})
	}()
	select {
	case <-o.s.Serving():
	case <-time.After(wholeLease): // while the store is away
	}
	return o
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
	for c := range w.ends {
		if which(c) {
			all = append(all, c)
			delete(w.ends, c)
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

// heal takes all faults away.
func (w *world) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.whole {
		o.cut, o.slow = fine, 0
		for c := range o.ends {
			c.Hold(false)
		}
	}
	clear(w.apart)
	w.answered = 0
	w.change()
}

// has reports whether the store has the record of a session.
func (w *world) has(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.records[key]
	return ok
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
		for c := range a.ends {
			if c.pair == pair {
				c.Hold(true)
			}
		}
		time.AfterFunc(3*wholeLease, func() { w.giveUp(a, pair) })
		w.mu.Unlock()
		return
	}
	all := a.takeEnds(func(c *link) bool { return c.pair == pair })
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
		all = a.takeEnds(func(c *link) bool { return c.pair == pair })
	}
	w.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

func pairOf(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// wipe empties the store, or brings it back as it was at mark. It is another process then.
func (w *world) wipe(saved map[string]session.Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run++
	w.records = map[string]session.Held{}
	maps.Copy(w.records, saved)
	if len(saved) == 0 {
		w.members = map[string]member{}
	}
}

// mark remembers what the store has.
func (w *world) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = maps.Clone(w.records)
}

// jump sets the clock of the store: no lease is good any more.
func (w *world) jump() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.members)
}

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

// dial connects to the instance at an address.
func (w *wholeOne) dial(ctx context.Context, address string) (net.Conn, error) {
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
		a, b := &link{here, pairOf(w.n, to.n)}, &link{there, pairOf(w.n, to.n)}
		select {
		case to.peer.conns <- b:
		case <-to.peer.done:
			return nil, errors.New("connection refused")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.w.mu.Lock()
		f := w.w.apart[a.pair]
		dead := w.dead || to.dead || f == refuses
		a.Hold(f == silent)
		for _, end := range []*link{a, b} {
			w.ends[end], to.ends[end] = true, true
		}
		w.w.mu.Unlock()
		if dead {
			_, _ = a.Close(), b.Close()
		}
		return a, nil
	}
}

// view is the store, as an instance reaches it.
type view struct {
	o  *wholeOne
	id string
}

// do does something in the store, unless it is out of reach. An instance that hears nothing
// does not know whether it was done: what it has sent arrives when the silence ends.
func (v *view) do(ctx context.Context, f func(w *world) error) error {
	w := v.o.w
	w.mu.Lock()
	gone, slow := v.o.dead || v.o.cut == refuses, v.o.slow
	w.mu.Unlock()
	if gone {
		return session.ErrUnavailable
	}
	done := make(chan error, 1)
	go func() {
		time.Sleep(slow / 2)
		for {
			w.mu.Lock()
			switch {
			case v.o.dead || v.o.cut == refuses:
				w.mu.Unlock()
				done <- session.ErrUnavailable
				return
			case v.o.cut == fine:
				err := f(w)
				lost := w.answered > 0
				if lost {
					w.answered--
					err = session.ErrUnavailable
				}
				w.mu.Unlock()
				time.Sleep(slow / 2)
				done <- err
				return
			}
			changed := w.changed
			w.mu.Unlock()
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

func (v *view) Put(ctx context.Context, h session.Held) (session.Held, error) {
	h.Owner, h.Epoch = v.id, h.Epoch+1
	err := v.do(ctx, func(w *world) error {
		if old, ok := w.records[h.Key]; ok && (old.Owner != h.Owner || old.Epoch != h.Epoch) {
			return &session.Moved{Owner: old.Owner, Epoch: old.Epoch}
		}
		w.records[h.Key] = h
		return nil
	})
	if err != nil {
		return session.Held{}, err
	}
	return h, nil
}

func (v *view) Find(ctx context.Context, key string) (session.Held, error) {
	var h session.Held
	err := v.do(ctx, func(w *world) error {
		found, ok := w.records[key]
		if !ok {
			return session.ErrNotFound
		}
		h = found
		return nil
	})
	if err != nil {
		return session.Held{}, err
	}
	return h, nil
}

func (v *view) Take(ctx context.Context, seen session.Held) (session.Held, error) {
	var now session.Held
	err := v.do(ctx, func(w *world) error {
		h, ok := w.records[seen.Key]
		switch {
		case !ok:
			return session.ErrNotFound
		case h.Owner == v.id && h.Epoch == seen.Epoch+1: // the answer to the same was lost
		case h.Owner != seen.Owner || h.Epoch != seen.Epoch:
			return &session.Moved{Owner: h.Owner, Epoch: h.Epoch}
		default:
			h.Owner, h.Epoch = v.id, h.Epoch+1
			w.records[h.Key] = h
		}
		now = h
		return nil
	})
	if err != nil {
		return session.Held{}, err
	}
	return now, nil
}

func (v *view) write(ctx context.Context, h session.Held, owner string) error {
	return v.do(ctx, func(w *world) error {
		old, ok := w.records[h.Key]
		if !ok || old.Owner != v.id || old.Epoch != h.Epoch {
			return session.ErrFenced
		}
		h.Owner = owner
		w.records[h.Key] = h
		return nil
	})
}

func (v *view) Save(ctx context.Context, h session.Held) error    { return v.write(ctx, h, v.id) }
func (v *view) Release(ctx context.Context, h session.Held) error { return v.write(ctx, h, "") }

func (v *view) Delete(ctx context.Context, h session.Held) error {
	return v.do(ctx, func(w *world) error {
		if old, ok := w.records[h.Key]; ok && old.Owner == v.id && old.Epoch == h.Epoch {
			delete(w.records, h.Key)
		}
		return nil
	})
}

func (v *view) Keep(ctx context.Context, all []session.Held) ([]session.Held, error) {
	var found []session.Held
	err := v.do(ctx, func(w *world) error {
		for _, h := range all {
			if old, ok := w.records[h.Key]; !ok || old.Owner != v.id || old.Epoch != h.Epoch {
				found = append(found, h)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (v *view) Beat(ctx context.Context, m cluster.Member, life time.Duration) (cluster.Seen, error) {
	var seen cluster.Seen
	err := v.do(ctx, func(w *world) error {
		now := time.Now()
		old, there := w.members[m.ID]
		seen = cluster.Seen{Run: fmt.Sprint(w.run), Absent: !there || !now.Before(old.until)}
		w.members[m.ID] = member{m, now.Add(life)}
		for _, k := range w.members {
			if now.Before(k.until) {
				seen.Members = append(seen.Members, k.Member)
			}
		}
		return nil
	})
	if err != nil {
		return cluster.Seen{}, err
	}
	return seen, nil
}

func (v *view) Present(ctx context.Context, id string) (bool, error) {
	var there bool
	err := v.do(ctx, func(w *world) error {
		k, ok := w.members[id]
		there = ok && time.Now().Before(k.until)
		return nil
	})
	return err == nil && there, err
}

func (v *view) Leave(ctx context.Context, id string) error {
	return v.do(ctx, func(w *world) error {
		delete(w.members, id)
		return nil
	})
}

func (v *view) Note(context.Context, string, string, string) error { return nil }

func (v *view) Noted(_ context.Context, _, _ string, tasks []string) ([]bool, error) {
	return make([]bool, len(tasks)), nil
}

// copies are the streams, as an instance reaches them.
type copies struct{ v *view }

func (c copies) Write(ctx context.Context, all []replay.Entry) error {
	return c.v.do(ctx, func(w *world) error { return w.streams.Write(context.Background(), all) })
}

func (c copies) Take(ctx context.Context, id, stream string, seq, mark int64) (replay.Taken, error) {
	var taken replay.Taken
	err := c.v.do(ctx, func(w *world) (err error) {
		taken, err = w.streams.Take(context.Background(), id, stream, seq, mark)
		return err
	})
	if err != nil {
		return replay.Taken{}, err
	}
	return taken, nil
}
