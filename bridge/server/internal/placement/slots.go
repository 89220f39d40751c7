package placement

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/peer"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

const (
	// workerLinger is the time for which a process survives its front, for the instance that takes over.
	workerLinger = 30 * time.Second
	// grantLife is the time in which a front has to use its grant.
	grantLife = 5 * time.Second
	// maxOpening bounds the processes that start at once. A worker at this bound takes no requests, so that other
	// workers do.
	maxOpening = 16
	// failuresKept is how long a front may ask for the reason that its connection was not opened.
	failuresKept = 10 * time.Second
	// restFor is the time in which a worker takes no requests for a server after restAfter failed starts in a
	// row: another worker may succeed. Then the worker tries one request, and rests longer after each failure,
	// up to longRest. longRest is shorter than requests wait, so that the fronts get the reason.
	restFor   = 3 * time.Second
	longRest  = 12 * time.Second
	restAfter = 3
	// checkEvery is the interval at which the worker checks whether a server can be started here.
	checkEvery = 5 * time.Second
)

// slots holds the slots of a worker. Each is free, or taken by a grant.
type slots struct {
	o       WorkerOptions
	tunnels *TunnelSessions
	ctx     context.Context // ends with close
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex               // guards the rest
	taken    map[string]*slot         // by grant
	failures map[string]error         // by grant
	failing  map[string]startFailures // by server
	changed  chan struct{}            // closed when the worker may have room for another request

	checks map[string]startCheck // used only by the goroutine that takes requests
}

// slot is a slot that a grant took. At first it is empty, then a process starts, and then the process runs.
// slots.mu guards it.
type slot struct {
	slots    *slots
	grant    string
	server   string
	front    string // the instance that uses the slot; empty until an instance claims it
	epoch    int64
	requests map[*slotRequest]struct{}
	timer    *time.Timer // frees the slot when the slot stays unused
	opening  bool
	client   bridge.Client // of the process; nil unless the process runs
}

// slotRequest is a request in flight from the front of a slot.
type slotRequest struct{ end context.CancelFunc }

// startFailures counts failed starts of a server in a row.
type startFailures struct {
	n     int
	until time.Time // until then, the worker takes no requests for the server
}

// startCheck is the result of a check whether a server can be started here.
type startCheck struct {
	at  time.Time
	err error
}

func newSlots(w WorkerOptions) *slots {
	s := &slots{
		o:        w,
		taken:    map[string]*slot{},
		failures: map[string]error{},
		failing:  map[string]startFailures{},
		checks:   map[string]startCheck{},
		changed:  make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tunnels = NewTunnelSessions(TunnelSessionOptions{
		Adapter:    s,
		Headers:    []string{peer.GrantHeader, peer.ForwardHeader},
		Await:      func(ctx context.Context) error { return ctx.Err() },
		Log:        w.Log,
		MaxMessage: w.MaxMessage,
		MaxBytes:   w.MaxBytes,
	})
	if w.Runs {
		s.wg.Go(s.watch)
	}
	return s
}

// Room implements queue.Slots.
func (s *slots) Room() (servers []string, free int, changed <-chan struct{}) {
	most := map[string]int{}
	var works []string
	for _, name := range s.o.Servers.Placed() {
		if l, ok := s.o.Servers.Local(name); ok && s.startable(name, l) {
			works, most[name] = append(works, name), l.MaxProcesses
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Node.Draining() || !s.o.Node.Ready() {
		return nil, 0, s.changed
	}
	opening := 0
	of, begun := map[string]int{}, map[string]int{}
	for _, p := range s.taken {
		of[p.server]++
		if p.client == nil {
			begun[p.server]++
			opening++
		}
	}
	for _, name := range works {
		b := s.failing[name]
		if of[name] < most[name] && !time.Now().Before(b.until) && (b.n < restAfter || begun[name] == 0) {
			servers = append(servers, name)
		}
	}
	return servers, min(s.o.Slots-len(s.taken), maxOpening-opening), s.changed
}

// startable reports whether a server can be started here, by a check that is at most checkEvery old. Only one
// goroutine calls it.
func (s *slots) startable(name string, l Local) bool {
	if l.Check == nil {
		return true
	}
	was, known := s.checks[name]
	if known && time.Since(was.at) < checkEvery {
		return was.err == nil
	}
	now := startCheck{time.Now(), l.Check()}
	s.checks[name] = now
	switch {
	case now.err != nil && (!known || was.err == nil):
		s.o.Log.Warn("this worker takes no requests for a server that it cannot start", "server", name, "err", now.err)
	case now.err == nil && was.err != nil:
		s.o.Log.Info("this worker takes requests for the server again", "server", name)
	}
	return now.err == nil
}

// free returns the number of free slots; 0 when this instance is about to stop.
func (s *slots) free() int {
	if s.o.Node.Draining() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.o.Slots-len(s.taken), 0)
}

// running returns the number of taken slots, by server.
func (s *slots) running() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, p := range s.taken {
		n[p.server]++
	}
	return n
}

// Reserve implements queue.Slots.
func (s *slots) Reserve(server string) (grant string, cancel func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= s.o.Slots || s.o.Node.Draining() {
		return "", nil, false
	}
	p := &slot{
		slots:    s,
		grant:    rand.Text(),
		server:   server,
		requests: map[*slotRequest]struct{}{},
	}
	p.timer = time.AfterFunc(grantLife, p.expire)
	s.taken[p.grant] = p
	return p.grant, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.front == "" {
			p.release()
		}
	}, true
}

// release frees the slot. The caller holds s.slots.mu.
func (s *slot) release() {
	if s.slots.taken[s.grant] != s {
		return
	}
	s.timer.Stop()
	delete(s.slots.taken, s.grant)
	close(s.slots.changed)
	s.slots.changed = make(chan struct{})
}

// expire frees a slot whose front did not come. If a process runs in the slot, expire stops it.
func (s *slot) expire() {
	s.slots.mu.Lock()
	if s.slots.taken[s.grant] != s || len(s.requests) > 0 || s.opening {
		if s.opening {
			s.timer.Reset(grantLife)
		}
		s.slots.mu.Unlock()
		return // the end of the last request resets the timer
	}
	rest := s.client
	if rest == nil {
		s.release()
	}
	s.slots.mu.Unlock()
	if rest != nil {
		s.slots.o.Log.Warn("child process stopped: its instance is gone and no other took over", "server", s.server, "front", tag(s.front), "after", workerLinger.String())
		rest.Gone(&bridge.Error{
			Server: s.server,
			Kind:   bridge.ErrLost,
			Err:    errOwnerGone,
			Public: "the instance of the bridge that used it is gone",
		})
	}
}

func tag(id string) string { return id[:min(len(id), 6)] }

// ClaimSlot implements peer.Workers.
func (w *Workers) ClaimSlot(grant, front string, epoch int64) error {
	return w.slots.claim(grant, front, epoch)
}

func (s *slots) claim(grant, front string, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.taken[grant]
	switch {
	case p == nil || s.tunnels.Stopping().Err() != nil:
		return peer.ErrElsewhere
	case p.front == "":
		p.front, p.epoch = front, epoch
		p.timer.Reset(grantLife)
	case epoch > p.epoch && p.client != nil: // another instance took the front's session over
		s.o.Log.Info("another instance took over a child process", "server", p.server, "from", tag(p.front), "to", tag(front))
		p.front, p.epoch = front, epoch
		p.breakOff()
		p.timer.Reset(workerLinger)
	case front != p.front || epoch != p.epoch:
		return peer.ErrElsewhere
	}
	return nil
}

// breakOff cancels the requests in flight. The caller holds s.slots.mu.
func (s *slot) breakOff() {
	for u := range s.requests {
		u.end()
		delete(s.requests, u)
	}
}

// SlotFailure implements peer.Workers.
func (w *Workers) SlotFailure(grant string) error {
	w.slots.mu.Lock()
	defer w.slots.mu.Unlock()
	return w.slots.failures[grant]
}

// ServeTunnel implements peer.Workers. ServeTunnel answers 404 to a former front of the slot, whose lane then drops
// the connection.
func (w *Workers) ServeTunnel(rw http.ResponseWriter, r *http.Request, s peer.SlotClaim) {
	d := w.slots
	ctx, cancel := context.WithCancel(httpio.Attached(r.Context()))
	defer cancel()
	u := &slotRequest{cancel}
	d.mu.Lock()
	p := d.taken[s.Grant]
	if p == nil || p.front != s.Front || p.epoch != s.Epoch {
		d.mu.Unlock()
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	p.requests[u] = struct{}{}
	p.timer.Stop()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(p.requests, u)
		if len(p.requests) > 0 || d.taken[s.Grant] != p {
			return
		}
		if p.client != nil {
			p.timer.Reset(workerLinger)
		} else {
			p.timer.Reset(grantLife)
		}
	}()
	d.tunnels.Serve(rw, r.WithContext(ctx))
}

// BoundsOpenings implements bridge.BoundsOpenings: maxOpening is the bound.
func (*slots) BoundsOpenings() time.Duration { return 0 }

// Open implements bridge.Adapter for tunnels: it starts the process of a slot.
func (s *slots) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	grant := from.Header.Get(peer.GrantHeader)
	s.mu.Lock()
	p := s.taken[grant]
	if p == nil || p.opening || p.client != nil {
		s.mu.Unlock()
		return nil, &bridge.Error{Kind: bridge.ErrUnavailable, Public: "the grant for its process expired"}
	}
	p.opening = true
	server, front := p.server, p.front
	s.mu.Unlock()
	up, err := s.start(ctx, server, from, rest)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.opening = false
	if err != nil {
		b := startFailures{n: s.failing[server].n + 1}
		if bridge.Exhausted(err) { // another worker may have room
			b.n = max(b.n, restAfter)
			err = &bridge.Error{
				Server: server,
				Kind:   bridge.ErrNoWorker,
				Err:    err,
				After:  time.Second,
				Public: "the worker has no room for another process: it has too many files or processes open, or too little memory",
			}
		}
		if b.n >= restAfter {
			b.until = time.Now().Add(backoff.Grown(restFor, longRest, b.n-restAfter+1))
		}
		s.failing[server], s.failures[grant] = b, err
		time.AfterFunc(failuresKept, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.failures, grant)
		})
		p.release()
		return nil, err
	}
	p.client = rest
	delete(s.failing, server)
	close(s.changed) // fewer processes are starting
	s.changed = make(chan struct{})
	s.o.Log.Info("child process started for another instance", "server", server, "front", tag(front))
	return &child{up, p}, nil
}

func (s *slots) start(ctx context.Context, server string, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	l, ok := s.o.Servers.Local(server)
	if !ok {
		return nil, &bridge.Error{
			Server: server,
			Kind:   bridge.ErrUnavailable,
			Public: "the worker no longer has the server",
		}
	}
	its := *from
	its.Header, its.Identity = peer.DecodeHeader(from.Header.Get(peer.ForwardHeader))
	return l.Adapter.Open(ctx, &its, rest)
}

// child is the connection to a process that runs for another instance.
type child struct {
	bridge.Upstream
	p *slot
}

// Call makes a call. Call turns pingMethod into a ping of the process, and a failure of the process into an answer.
func (c *child) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	r.Header = nil // a child process gets headers by its environment
	if r.Method == pingMethod {
		ask := *r
		ask.Message = jsonrpc.NewRequest("ping", nil)
		if c.Server().Modern() {
			ask.Message = r.From.Request("server/discover", nil) // revision 2026-07-28 has no ping
		}
		r = &ask
	}
	m, err := c.Upstream.Call(ctx, r)
	if instead := failureAnswer(err); instead != nil {
		return instead, nil
	}
	return m, err
}

func (c *child) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header = nil
	return c.Upstream.Notify(ctx, r)
}

// TakesEdits implements bridge.TakesEdits.
func (c *child) TakesEdits() {}

// Close stops the process and frees its slot.
func (c *child) Close(ctx context.Context) error {
	err := c.Upstream.Close(ctx)
	c.p.slots.mu.Lock()
	defer c.p.slots.mu.Unlock()
	c.p.release()
	return err
}

// watch cancels the requests of fronts that are found dead: a vanished machine closes no connection.
func (s *slots) watch() {
	missing := map[string]int{}
	for backoff.For(s.ctx, time.Second) == nil {
		members := s.o.Node.Members()
		now := map[string]int{}
		for _, front := range s.fronts() {
			if slices.ContainsFunc(members, func(m cluster.Member) bool { return m.ID == front }) {
				continue
			}
			if now[front] = missing[front] + 1; now[front] < 2 {
				continue
			}
			if dead, err := s.o.Node.Dead(s.ctx, front); err != nil || !dead {
				continue
			}
			s.mu.Lock()
			for _, p := range s.taken {
				if p.front == front && len(p.requests) > 0 {
					p.breakOff()
					p.timer.Reset(workerLinger)
				}
			}
			s.mu.Unlock()
		}
		missing = now
	}
}

// fronts returns the instances that use slots.
func (s *slots) fronts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, p := range s.taken {
		if p.front != "" && !slices.Contains(all, p.front) {
			all = append(all, p.front)
		}
	}
	return all
}

// drain waits for the calls in flight, stops the processes, and waits until their fronts have left this instance.
func (s *slots) drain(ctx context.Context) {
	s.tunnels.Drain(ctx)
	fronts := s.fronts()
	s.tunnels.Close(ctx)
	askLeave(ctx, s.o.Peers, peer.LeaveWorker, slices.DeleteFunc(s.o.Node.Members(), func(m cluster.Member) bool { return !slices.Contains(fronts, m.ID) }))
}

func (s *slots) close(ctx context.Context) {
	s.stop()
	s.tunnels.Close(ctx)
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.taken {
		p.release()
	}
}
