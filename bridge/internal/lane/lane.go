// Package lane keeps a connection to a server for those who call it. A Lane opens
// its connection when it is needed, opens it again when it was lost, asks it for
// signs of life, and closes it when nobody has used it for long. What a connection
// was told, a fresh one is told again: the log level, and which resources to tell of.
//
// A lane promises that a call is made over one connection, and again only if the
// server cannot have acted on it; that a connection that keeps ending is opened again
// after pauses that grow; and that Close waits for all that it has started.
//
// A Budget bounds the connections to a server, and a Total those to all servers.
//
// What else happens with a connection is not its business but that of those who stand
// at its ends: see Ends and Health.
package lane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
)

// Lane is an Upstream that opens its connection on first need, opens it again
// after it was lost or had been idle, and restores the log level and the
// subscriptions (protocol.md D3, R-187). It is one state machine under one lock:
// whether it opens, waits or closes depends on what calls, subscriptions and losses
// there are.
type Lane struct {
	o        *Options
	caller   *bridge.Caller
	client   bridge.Client
	observer Observer
	gate     Gate
	givenUp  func()      // may be nil
	stay     bridge.Stay // may be nil
	wg       sync.WaitGroup
	ctx      context.Context // ends when Close is called
	cancel   context.CancelFunc
	force    context.Context // ends when Close has no more time
	hurry    context.CancelFunc

	mu      sync.Mutex       // guards the rest
	conn    *conn            // the open connection, or nil
	server  *bridge.Greeting // what the last handshake said
	opening *opening         // the attempt under way, or nil
	closed  error
	active  int       // calls under way
	used    time.Time // when the last of them ended
	timer   *time.Timer
	pulse   *time.Timer         // until the next look for a sign of life; nil without
	every   time.Duration       // for which pulse was made
	holding bool                // hold is running
	notes   []*bridge.Request   // notifications that wait for the connection
	level   []byte              // params of the last logging/setLevel
	subs    map[string]struct{} // URIs of the subscriptions
	needs   int                 // those who want the connection to be there without using it
	lost    error               // why the connection before was lost; nil when it was not
	losses  int                 // in a row
	began   time.Time           // when the open connection was opened
	ended   time.Time           // when the last one was lost
	reopens []time.Time         // within the last minute
	latest  *identity.Identity  // the token of the last request that had one, if the server gets it
}

// opening is one attempt to open the connection.
type opening struct {
	done chan struct{} // closed when the attempt has ended
	err  error
}

// conn is one connection of a lane, and the Client that its reader speaks to.
type conn struct {
	up    bridge.Upstream
	raw   bridge.Upstream // up without what the gate has put around it
	l     *Lane
	asked atomic.Int64 // questions of the server's that name no call
	gone  error        // guarded by l.mu

	worked atomic.Bool // a call has been answered

	joint joint // of those who listen, where they share a subscription
}

var (
	_ bridge.Client        = (*conn)(nil)
	_ bridge.MissesChanges = (*conn)(nil)
	_ bridge.Roomy         = (*conn)(nil)
	_ bridge.Tapped        = (*conn)(nil)
	_ Conn                 = (*conn)(nil)
)

// New makes a lane on behalf of from. Nothing is opened yet.
func New(o *Options, from *bridge.Caller, ends Ends) *Lane {
	l := &Lane{o: o, caller: from, client: ends.Client, observer: ends.Observer, gate: ends.Gate, givenUp: ends.GivenUp, stay: ends.Stay, level: ends.Level}
	if l.gate == nil {
		l.gate = ungated{}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.force, l.hurry = context.WithCancel(context.Background())
	return l
}

// Caller is on whose behalf connections are opened.
func (l *Lane) Caller() *bridge.Caller { return l.caller }

// Server returns what the last handshake said, or nil before the first one.
func (l *Lane) Server() *bridge.Greeting {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// State says whether the connection is open.
func (l *Lane) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed != nil:
		return Ended
	case l.conn != nil:
		if d, ok := l.conn.raw.(bridge.ListensToChanges); ok && !d.ListensToChanges() {
			return Deaf
		}
		return Open
	case l.lost != nil:
		return Lost
	}
	return Asleep
}

// Presume notes what a server has said over other connections of the same
// client's, until it says it over this one.
func (l *Lane) Presume(s *bridge.Greeting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil && l.closed == nil {
		l.server = s
	}
}

// Call opens the connection if need be and makes the call. initialize is
// answered with what the handshake said.
func (l *Lane) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "resources/subscribe" && l.full(r.URI()):
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", subscribe.MaxSubscriptions), nil), nil
	case r.Method == "resources/unsubscribe" && l.forget(r.URI()):
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	}
	l.forward(r)
	m, err := l.call(ctx, r)
	if errors.Is(err, bridge.ErrUnsent) && ctx.Err() == nil {
		m, err = l.call(ctx, r) // the server cannot have acted on it (D0.8, R-050)
	}
	return m, err
}

// forward leaves of a request what the allow-list forwards. A token is noted: the next
// connection is opened with it.
func (l *Lane) forward(r *bridge.Request) {
	if r.Header, r.Identity = bridge.Forwarded(r.Header, r.Identity, l.o.Forward); r.Identity != nil {
		l.mu.Lock()
		l.latest = r.Identity
		l.mu.Unlock()
	}
}

// from is on whose behalf a connection is opened now.
func (l *Lane) from() *bridge.Caller {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		return l.caller
	}
	now := *l.caller
	now.Identity = l.latest
	return &now
}

// call makes the call once. A connection that turns out to be of no use is
// not used again.
func (l *Lane) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "resources/unsubscribe" {
		defer l.remember(nil, r) // whatever comes of it, nobody wants the subscription back
	}
	c, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	if r.Method == era.Listen { // it lasts: the connection has to be there, and is not busy
		l.need(1)
		defer l.need(-1)
		l.leave()
	} else {
		defer l.leave()
	}
	if r.Opened != nil {
		r.Opened()
	}
	if r.Method == "initialize" {
		return jsonrpc.NewResult(nil, c.up.Server().Result), nil // the lane's may be gone by now
	}
	if r.From != nil && r.From.Stay != nil { // it may have waited, and the process may have been stopped
		if err := r.From.Stay.Sure(ctx); err != nil {
			return nil, err
		}
	}
	var m *jsonrpc.Message
	if r.Method == era.Listen {
		m, err = l.listen(ctx, c, r)
	} else {
		m, err = l.perform(ctx, c, r)
	}
	l.o.Health.Fared(err, len(r.Header) > 0 || len(l.caller.Header) > 0 || bridge.Personal(l.o.Forward))
	if errors.Is(err, bridge.ErrUnsent) {
		c.Gone(err) // in case that the news of it have not come yet
	}
	if err == nil && !c.worked.Load() {
		c.worked.Store(true)
	}
	if err == nil && m.Error == nil && !l.remember(c, r) {
		m.Release()
		return nil, &bridge.Error{Server: l.o.Name, Kind: bridge.ErrUnsent, Public: "its connection has ended"} // it may as well not have been sent
	}
	return m, err
}

// perform makes the call on the connection.
func (l *Lane) perform(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	return l.o.Tracing.Call(ctx, l.o.Name, c.up, r)
}

// full reports whether there is no room for a subscription to one more URI.
func (l *Lane) full(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.subs[uri]
	return !known && len(l.subs) >= subscribe.MaxSubscriptions
}

// forget ends a subscription while there is no connection: the next one will
// not be told of it. It reports false when the server has to be told.
func (l *Lane) forget(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.subs[uri]
	if !known || l.conn != nil || l.opening != nil || l.closed != nil {
		return false
	}
	delete(l.subs, uri)
	return true
}

// remember notes what a fresh connection has to be told again. It reports false
// when that is too late: the connection that was told is the lane's no more.
func (l *Lane) remember(c *conn, r *bridge.Request) bool {
	switch r.Method {
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
	default:
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != c && r.Method != "resources/unsubscribe" {
		return false
	}
	switch r.Method {
	case "logging/setLevel":
		l.level = slices.Clone(r.Params)
	case "resources/subscribe":
		if l.subs == nil {
			l.subs = map[string]struct{}{}
		}
		l.subs[r.URI()] = struct{}{}
	case "resources/unsubscribe":
		delete(l.subs, r.URI())
	}
	return true
}

// What may wait for a connection to be opened. Nobody waits for the outcome of
// a notification, so that what is too much is dropped.
const (
	maxNotes     = 64
	maxNoteBytes = 1 << 20
)

// Notify sends a notification. While there is no connection it is opened in
// the background.
func (l *Lane) Notify(ctx context.Context, r *bridge.Request) error {
	l.forward(r)
	l.mu.Lock()
	if c := l.conn; c != nil {
		l.mu.Unlock()
		return c.up.Notify(ctx, r)
	}
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	size := r.Len()
	for _, n := range l.notes {
		size += n.Len()
	}
	if len(l.notes) >= maxNotes || size > maxNoteBytes {
		l.o.Dropped.Add(1)
		return bridge.ErrOverloaded
	}
	mine := *r
	mine.Message = r.Clone()
	if l.notes = append(l.notes, &mine); len(l.notes) == 1 {
		l.wg.Go(l.deliver)
	}
	return nil
}

// deliver opens the connection and sends the notifications that wait for it.
func (l *Lane) deliver() {
	c, err := l.enter(l.ctx)
	l.mu.Lock()
	notes := l.notes
	l.notes = nil
	l.mu.Unlock()
	if err != nil {
		return // it is logged where it happens
	}
	defer l.leave()
	for _, n := range notes {
		_ = c.up.Notify(l.ctx, n) // the loss is logged by the lane
	}
}

// Go runs f in a goroutine that Close waits for; ctx ends when Close begins. It
// reports false when the lane is closed.
func (l *Lane) Go(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return false
	}
	l.wg.Go(func() { f(l.ctx) })
	return true
}

// Known returns what the handshake of the connection said, which is opened if there
// is none, and whether the connection says which call a question is about.
func (l *Lane) Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error) {
	c, err := l.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer l.leave()
	return c.up.Server(), c.attributes(), nil
}

// attributes reports whether the connection says which call a question is about.
func (c *conn) attributes() bool {
	a, ok := c.raw.(bridge.Attributing)
	return ok && a.Attributes()
}

// Keep opens the connection if there is none, and keeps it open, also without
// calls, until release is called. When it is lost it is opened again.
func (l *Lane) Keep(ctx context.Context) (release func(), err error) {
	if _, err := l.enter(ctx); err != nil {
		return nil, err
	}
	l.need(1)
	l.leave()
	return func() { l.need(-1) }, nil
}

// enter returns the open connection and counts the caller as using it until
// leave.
func (l *Lane) enter(ctx context.Context) (*conn, error) {
	for {
		l.mu.Lock()
		switch {
		case l.closed != nil:
			defer l.mu.Unlock()
			return nil, l.closed
		case l.conn != nil:
			defer l.mu.Unlock()
			l.active++
			return l.conn, nil
		case l.opening == nil:
			o := &opening{done: make(chan struct{})}
			l.opening = o
			l.wg.Go(func() { l.open(o) })
		}
		o := l.opening
		l.mu.Unlock()
		ended := l.o.Tracing.Opening(ctx, l.o.Name)
		select {
		case <-o.done:
			if ended(o.err); o.err != nil {
				return nil, o.err
			}
			if ctx.Err() != nil { // by what became of the connection, perhaps
				return nil, context.Cause(ctx)
			}
		case <-ctx.Done():
			ended(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

func (l *Lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if l.active > 0 {
		return
	}
	if l.conn != nil && l.every != l.o.Settings.Load().Ping {
		l.watch()
	}
	if l.o.Idle <= 0 && l.pulse == nil {
		return
	}
	l.used = time.Now()
	if l.o.Idle > 0 && l.timer == nil && l.closed == nil {
		l.timer = time.AfterFunc(l.o.Idle, l.doze)
	}
}

// need notes that somebody wants the connection to be there, or with -1 does so
// no more.
func (l *Lane) need(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.needs += n; n > 0 && l.conn == nil {
		l.hold()
	}
	if n < 0 && l.o.Idle > 0 && l.timer == nil && l.closed == nil {
		l.used = time.Now()
		l.timer = time.AfterFunc(l.o.Idle, l.doze)
	}
}

// needed reports whether the connection has to be there although nobody uses
// it. The caller holds l.mu.
func (l *Lane) needed() bool { return len(l.subs) > 0 || l.needs > 0 }

// doze closes a connection that nobody uses. It looks again later when
// somebody did in the meantime: cheaper than a timer that each call resets.
func (l *Lane) doze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed != nil || l.conn == nil || l.active > 0 || l.needed() {
		return // leave, or the end of a subscription, arms the timer again
	}
	if left := l.o.Idle - time.Since(l.used); left > 0 {
		l.timer = time.AfterFunc(left, l.doze)
		return
	}
	c := l.conn
	l.conn, l.lost = nil, nil
	l.carried(nil)
	l.o.Log.Debug("connection closed: idle")
	l.retireSoon(c)
}

// retire closes a connection that is not the lane's any more.
func (l *Lane) retire(c *conn) {
	l.observer.Closed()
	if l.stay != nil && l.stay.Moves() {
		if p, ok := c.raw.(bridge.Portable); ok {
			p.Leave()
		}
	}
	_ = c.up.Close(l.force) // the connection logs what matters
	l.o.Budget.release(l.caller.Principal)
}

// retireSoon does so in the background. The caller holds l.mu.
func (l *Lane) retireSoon(c *conn) {
	left := l.o.Budget.Leaving()
	l.wg.Go(func() {
		defer left()
		l.retire(c)
	})
}

// open makes one attempt.
func (l *Lane) open(o *opening) {
	c, err := l.attempt()
	l.mu.Lock()
	l.opening, o.err = nil, err
	var gone error
	switch {
	case errors.Is(err, bridge.ErrReplaced):
		l.wg.Go(func() { l.retire(c) })
		l.opening = &opening{done: make(chan struct{})} // until those are told who knew the server as it was
	case err != nil:
	case l.closed != nil:
		o.err = l.closed
		l.retireSoon(c)
	case c.gone != nil: // it has ended between its handshake and now
		gone, o.err = c.gone, c.gone
		l.began = time.Now()
		l.lose(c)
	default:
		l.conn, l.began = c, time.Now()
		l.used = l.began
		l.carried(c.raw)
		l.watch()
	}
	l.mu.Unlock()
	if errors.Is(err, bridge.ErrReplaced) {
		l.observer.Replaced()
		l.client.Gone(err)
		l.mu.Lock() // those who have come meanwhile, and will come, know nothing of what was before
		told := l.opening
		l.server, l.opening = nil, nil
		l.mu.Unlock()
		close(told.done)
	}
	close(o.done)
	if gone != nil {
		l.o.Health.Failed(gone)
		l.mourn(gone)
	}
}

// nextStart returns when the connection may be opened again after a loss. The
// caller holds l.mu.
func (l *Lane) nextStart() time.Time {
	again := l.ended
	if l.losses > 0 {
		again = again.Add(min(time.Second<<min(l.losses-1, 20), l.o.Settings.Load().MaxPause))
	}
	now, most := time.Now(), l.o.Settings.Load().Restarts
	l.reopens = slices.DeleteFunc(l.reopens, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	later := func(t time.Time) {
		if t.After(again) {
			again = t
		}
	}
	switch n := len(l.reopens); {
	case n >= most:
		later(l.reopens[n-most].Add(time.Minute))
	case n > most/2: // so that those who share the connection are not without it for the rest of the minute
		later(l.reopens[n-1].Add(2 * time.Minute / time.Duration(most)))
	}
	return again
}

// MissesChanges implements bridge.MissesChanges.
func (c *conn) MissesChanges() { c.l.observer.Deaf() }

// Notify passes on what the server says by itself.
func (c *conn) Notify(n *jsonrpc.Message) {
	c.l.observer.Heard(n)
	c.l.client.Notify(n)
}

// Room implements bridge.Roomy: what a server says on the lane takes room of the
// principal that it is for, if that is one alone.
func (c *conn) Room() bridge.Room {
	if c.l.o.Shared {
		return c.l.o.Room("")
	}
	return c.l.o.Room(c.l.caller.Principal)
}

// Tap implements bridge.Tapped.
func (c *conn) Tap() bridge.Tap {
	if c.l.o.Tap == nil {
		return nil
	}
	return c.l.o.Tap(c.l.caller.Principal)
}

// Ask passes on what the server asks.
func (c *conn) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.asked.Add(1)
	return c.l.client.Ask(q, reply)
}

// Close ends the connection for good.
func (l *Lane) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = bridge.ErrShutdown
	}
	c := l.conn
	l.conn = nil
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.pulse != nil {
		l.pulse.Stop()
	}
	l.mu.Unlock()
	l.observer.Ended()
	l.cancel()
	stop := context.AfterFunc(ctx, l.hurry)
	defer stop()
	if c != nil {
		l.retire(c)
	}
	l.wg.Wait()
	l.hurry()
	return nil
}
