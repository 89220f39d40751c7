package placement

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

const (
	// workerLinger is how long a child process is kept whose front has gone, for the instance
	// that takes its session over.
	workerLinger = 30 * time.Second
	// ticketLife is how long a front has to come with its ticket.
	ticketLife = 5 * time.Second
	// maxOpening is how many child processes are started at once: a worker that has as
	// many takes no offers, and others do.
	maxOpening = 16
	// failuresKept is how long a front may ask why its connection was not opened.
	failuresKept = 10 * time.Second
	// resting is for how long a worker takes no offers of a server that it has failed to start
	// restAfter times in a row: another worker may do better. Then it tries one, and rests
	// for longer if that fails too, up to longRest: shorter than openings wait, as those who
	// wait are to learn why none can.
	resting   = 3 * time.Second
	longRest  = 12 * time.Second
	restAfter = 3
	// checkEvery is how often it is looked whether a server can be started here.
	checkEvery = 5 * time.Second
	// workerLetGo is how long other instances have to notice that their lanes here have ended.
	workerLetGo = 2 * time.Second
)

// desk has the places of a worker: each is free, or a ticket stands for it.
type desk struct {
	o     WorkerOptions
	inner *Sessions
	ctx   context.Context // ends with close
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu       sync.Mutex // guards the rest
	taken    map[string]*place
	failures map[string]error // by ticket
	bad      map[string]bad   // starts, by server
	changed  chan struct{}    // closed when a place becomes free

	checks map[string]check // of the goroutine that takes offers
}

// place is a place that a ticket stands for: at first there is no connection, then a child
// process is started, and then it runs. desk.mu guards it.
type place struct {
	d       *desk
	ticket  string
	server  string
	front   string // who has it; empty until one has come
	epoch   int64
	using   map[*use]struct{}
	timer   *time.Timer // until it is given up for want of use
	opening bool
	rest    bridge.Client // of the child; nil while it does not run
}

// use is a request of a place's front that is under way.
type use struct{ end context.CancelFunc }

// bad are starts of a server that have failed in a row.
type bad struct {
	n     int
	until time.Time // of the rest after them
}

// check is whether a server can be started here.
type check struct {
	at  time.Time
	err error
}

func newDesk(o WorkerOptions) *desk {
	d := &desk{o: o, taken: map[string]*place{}, failures: map[string]error{}, bad: map[string]bad{}, checks: map[string]check{}, changed: make(chan struct{})}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.inner = NewSessions(SessionOptions{
		Adapter: d, Headers: []string{peer.TicketHeader, peer.ForwardHeader},
		Await: func(ctx context.Context) error { return ctx.Err() }, Log: o.Log, MaxMessage: o.MaxMessage, MaxBytes: o.MaxBytes,
	})
	if o.Runs {
		d.wg.Go(d.watch)
	}
	return d
}

// Room implements offers.Desk.
func (d *desk) Room() (servers []string, free int, changed <-chan struct{}) {
	most := map[string]int{}
	var works []string
	for _, name := range d.o.Placed() {
		if l, ok := d.o.Local(name); ok && d.works(name, l) {
			works, most[name] = append(works, name), l.Most
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.Node.Draining() || !d.o.Node.Ready() {
		return nil, 0, d.changed
	}
	opening := 0
	of, begun := map[string]int{}, map[string]int{}
	for _, p := range d.taken {
		of[p.server]++
		if p.rest == nil {
			begun[p.server]++
			opening++
		}
	}
	for _, name := range works {
		b := d.bad[name]
		if of[name] < most[name] && !time.Now().Before(b.until) && (b.n < restAfter || begun[name] == 0) {
			servers = append(servers, name)
		}
	}
	return servers, min(d.o.Places-len(d.taken), maxOpening-opening), d.changed
}

// works reports whether nothing speaks against starting a server here. It is called by one
// goroutine.
func (d *desk) works(name string, l Local) bool {
	if l.Check == nil {
		return true
	}
	was, known := d.checks[name]
	if known && time.Since(was.at) < checkEvery {
		return was.err == nil
	}
	now := check{time.Now(), l.Check()}
	d.checks[name] = now
	switch {
	case now.err != nil && (!known || was.err == nil):
		d.o.Log.Warn("this worker takes no offers of a server that it cannot start", "server", name, "err", now.err)
	case now.err == nil && was.err != nil:
		d.o.Log.Info("this worker takes offers of the server again", "server", name)
	}
	return now.err == nil
}

// free returns how many places there are.
func (d *desk) free() int {
	if d.o.Node.Draining() {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(d.o.Places-len(d.taken), 0)
}

// running returns how many places are taken, by server.
func (d *desk) running() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[string]int{}
	for _, p := range d.taken {
		n[p.server]++
	}
	return n
}

// Reserve implements offers.Desk.
func (d *desk) Reserve(server string) (ticket string, cancel func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.taken) >= d.o.Places || d.o.Node.Draining() {
		return "", nil, false
	}
	p := &place{d: d, ticket: rand.Text(), server: server, using: map[*use]struct{}{}}
	p.timer = time.AfterFunc(ticketLife, p.unused)
	d.taken[p.ticket] = p
	return p.ticket, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.front == "" {
			p.leave()
		}
	}, true
}

// leave gives the place back. The caller holds desk.mu.
func (p *place) leave() {
	if p.d.taken[p.ticket] != p {
		return
	}
	p.timer.Stop()
	delete(p.d.taken, p.ticket)
	close(p.d.changed)
	p.d.changed = make(chan struct{})
}

// unused gives up a place whose front has not come, or has gone.
func (p *place) unused() {
	p.d.mu.Lock()
	if p.d.taken[p.ticket] != p || len(p.using) > 0 || p.opening {
		if p.opening {
			p.timer.Reset(ticketLife)
		}
		p.d.mu.Unlock()
		return // the end of a request sets the timer again
	}
	rest := p.rest
	if rest == nil {
		p.leave()
	}
	p.d.mu.Unlock()
	if rest != nil {
		p.d.o.Log.Warn("a child process is ended: its instance has gone, and no other one has taken it over", "server", p.server, "front", tag(p.front), "after", workerLinger.String())
		rest.Gone(&bridge.Error{Server: p.server, Kind: bridge.ErrLost, Err: errFront, Public: "the instance of the bridge that had it has ended"})
	}
}

func tag(id string) string { return id[:min(len(id), 6)] }

// Claim implements peer.Workers.
func (w *Workers) Claim(ticket, front string, epoch int64) error {
	return w.desk.claim(ticket, front, epoch)
}

func (d *desk) claim(ticket, front string, epoch int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.taken[ticket]
	switch {
	case p == nil || d.inner.Stopping().Err() != nil:
		return peer.ErrElsewhere
	case p.front == "":
		p.front, p.epoch = front, epoch
		p.timer.Reset(ticketLife)
	case epoch > p.epoch && p.rest != nil: // its session was taken over
		d.o.Log.Info("a child process has another front now", "server", p.server, "from", tag(p.front), "to", tag(front))
		p.front, p.epoch = front, epoch
		p.breakOff()
		p.timer.Reset(workerLinger)
	case front != p.front || epoch != p.epoch:
		return peer.ErrElsewhere
	}
	return nil
}

// breakOff ends the requests that are under way. The caller holds desk.mu.
func (p *place) breakOff() {
	for u := range p.using {
		u.end()
		delete(p.using, u)
	}
}

// Failed implements peer.Workers.
func (w *Workers) Failed(ticket string) error {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	return w.desk.failures[ticket]
}

// Lane implements peer.Workers. Requests of a front that has the place no more are 404, by
// which it knows that it has lost the connection.
func (w *Workers) Lane(rw http.ResponseWriter, r *http.Request, t peer.Claimed) {
	d := w.desk
	ctx, cancel := context.WithCancel(httpio.Attached(r.Context()))
	defer cancel()
	u := &use{cancel}
	d.mu.Lock()
	p := d.taken[t.Ticket]
	if p == nil || p.front != t.Front || p.epoch != t.Epoch {
		d.mu.Unlock()
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	p.using[u] = struct{}{}
	p.timer.Stop()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(p.using, u)
		if len(p.using) > 0 || d.taken[t.Ticket] != p {
			return
		}
		if p.rest != nil {
			p.timer.Reset(workerLinger)
		} else {
			p.timer.Reset(ticketLife)
		}
	}()
	d.inner.Serve(rw, r.WithContext(ctx))
}

// BoundsOpenings implements bridge.BoundsOpenings: so many places are opened at once.
func (*desk) BoundsOpenings() time.Duration { return 0 }

// Open implements bridge.Adapter, for the inner sessions: it starts the child process of a
// place.
func (d *desk) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	ticket := from.Header.Get(peer.TicketHeader)
	d.mu.Lock()
	p := d.taken[ticket]
	if p == nil || p.opening || p.rest != nil {
		d.mu.Unlock()
		return nil, &bridge.Error{Kind: bridge.ErrUnavailable, Public: "its ticket is over"}
	}
	p.opening = true
	server, front := p.server, p.front
	d.mu.Unlock()
	up, err := d.start(ctx, server, from, rest)
	d.mu.Lock()
	defer d.mu.Unlock()
	p.opening = false
	if err != nil {
		b := bad{n: d.bad[server].n + 1}
		if bridge.Exhausted(err) { // here: another worker may have room
			b.n = max(b.n, restAfter)
			err = &bridge.Error{Server: server, Kind: bridge.ErrNoWorker, Err: err, After: time.Second, Public: "the worker has no room for another process: it has too many files or processes open, or too little memory"}
		}
		if b.n >= restAfter {
			b.until = time.Now().Add(backoff.Grown(resting, longRest, b.n-restAfter+1))
		}
		d.bad[server], d.failures[ticket] = b, err
		time.AfterFunc(failuresKept, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.failures, ticket)
		})
		p.leave()
		return nil, err
	}
	p.rest = rest
	delete(d.bad, server)
	close(d.changed) // one less is being opened
	d.changed = make(chan struct{})
	d.o.Log.Info("a child process runs for another instance", "server", server, "front", tag(front))
	return &child{up, p}, nil
}

func (d *desk) start(ctx context.Context, server string, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	l, ok := d.o.Local(server)
	if !ok {
		return nil, &bridge.Error{Server: server, Kind: bridge.ErrUnavailable, Public: "the worker does not have it any more"}
	}
	its := *from
	its.Header, its.Identity = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	return l.Adapter.Open(ctx, &its, rest)
}

// child is the connection to a child process that runs for another instance.
type child struct {
	bridge.Upstream
	p *place
}

// Call makes a call.
func (c *child) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header = nil // a child has its headers by its environment
	if r.Method == pingMethod {
		ask := *r
		ask.Message = jsonrpc.NewRequest("ping", nil)
		if c.Server().Modern() {
			ask.Message = r.From.Request("server/discover", nil) // it has no ping
		}
		r = &ask
	}
	m, err := c.Upstream.Call(ctx, r)
	if instead := inPlace(err); instead != nil {
		return instead, nil
	}
	return m, err
}

// Notify sends a notification.
func (c *child) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header = nil
	return c.Upstream.Notify(ctx, r)
}

// TakesEdits implements bridge.TakesEdits.
func (c *child) TakesEdits() {}

// ListensToChanges implements bridge.ListensToChanges.
func (c *child) ListensToChanges() bool {
	l, ok := c.Upstream.(bridge.ListensToChanges)
	return !ok || l.ListensToChanges()
}

// Close ends the child process, and gives its place back.
func (c *child) Close(ctx context.Context) error {
	err := c.Upstream.Close(ctx)
	c.p.d.mu.Lock()
	defer c.p.d.mu.Unlock()
	c.p.leave()
	return err
}

// watch breaks off what fronts have under way here that are found dead: a machine that has
// vanished ends no connection.
func (d *desk) watch() {
	missing := map[string]int{}
	for backoff.For(d.ctx, time.Second) == nil {
		members := d.o.Node.Members()
		now := map[string]int{}
		for _, front := range d.fronts() {
			if slices.ContainsFunc(members, func(m cluster.Member) bool { return m.ID == front }) {
				continue
			}
			if now[front] = missing[front] + 1; now[front] < 2 {
				continue
			}
			if dead, err := d.o.Node.Dead(d.ctx, front); err != nil || !dead {
				continue
			}
			d.mu.Lock()
			for _, p := range d.taken {
				if p.front == front && len(p.using) > 0 {
					p.breakOff()
					p.timer.Reset(workerLinger)
				}
			}
			d.mu.Unlock()
		}
		missing = now
	}
}

// fronts returns the instances that have places.
func (d *desk) fronts() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, p := range d.taken {
		if p.front != "" && !slices.Contains(all, p.front) {
			all = append(all, p.front)
		}
	}
	return all
}

// drain waits for the calls that are under way.
func (d *desk) drain(ctx context.Context) {
	used := len(d.fronts()) > 0
	d.inner.Drain(ctx)
	d.inner.Close(ctx)
	if used {
		_ = backoff.For(ctx, workerLetGo)
	}
}

func (d *desk) close(ctx context.Context) {
	d.stop()
	d.inner.Close(ctx)
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.taken {
		p.leave()
	}
}
