package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// lane is an Upstream that opens its connection on first need, opens it again
// after it was lost or had been idle, and restores the log level and the
// subscriptions (protocol.md D3, R-187).
type lane struct {
	route  *route
	caller *bridge.Caller
	rest   bridge.Client
	own    bool             // it is one session's
	gate   *breaker.Breaker // that openings and calls pass; nil lets them
	give   func()           // called when the connection could not be opened again for long although it is needed; may be nil
	asks   func()           // called when the server waits for a client, and it cannot be told which call is about it; may be nil
	wg     sync.WaitGroup
	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	force  context.Context // ends when Close has no more time
	hurry  context.CancelFunc
	heard  observer

	mu      sync.Mutex       // guards the rest
	wire    *wire            // the open connection, or nil
	server  *bridge.Greeting // what the last handshake said
	opening *opening         // the attempt under way, or nil
	closed  error
	active  int       // calls under way
	used    time.Time // when the last of them ended
	timer   *time.Timer
	pulse   *time.Timer         // until the next look for a sign of life
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
}

// observer is told what happens to a lane's connections, in that order, and before
// the lane's Client hears of it. It must not block, nor call the lane.
type observer interface {
	// Opened says that a connection is open. The one before may not be closed yet.
	Opened()
	// Closed says that a connection is closed.
	Closed()
	// Reopened says that the connection is not the first one. lost says that the
	// one before had ended by itself, and was not closed for want of use.
	Reopened(lost bool)
	// Replaced says that the server came back as another: see bridge.ErrReplaced.
	Replaced()
	// Deaf says that the connection does not hear for now what the server says by
	// itself.
	Deaf()
	// Heard is told what the server says by itself.
	Heard(n *jsonrpc.Message)
	// Ended says that the lane opens no connection any more.
	Ended()
}

// laneState says whether a lane's connection is open, and why not.
type laneState int

const (
	laneAsleep laneState = iota // there is none: nobody has needed one, or not for long
	laneOpen
	laneDeaf  // it is open, and does not hear what the server says by itself
	laneLost  // it has ended by itself, or could not be opened, and no other one is open
	laneEnded // the lane was closed
)

// opening is one attempt to open the connection.
type opening struct {
	done chan struct{} // closed when the attempt has ended
	err  error
}

// wire is one connection of a lane, and the Client that its reader speaks to.
type wire struct {
	up   bridge.Upstream
	raw  bridge.Upstream // up without the breaker
	l    *lane
	asks atomic.Int64 // questions of the server's that name no call
	gone error        // guarded by l.mu

	worked atomic.Bool // a call has been answered

	joint joint // of those who listen, where they share a subscription
}

func newLane(r *route, from *bridge.Caller, rest bridge.Client, heard observer) *lane {
	l := &lane{route: r, caller: from, rest: rest, gate: r.breaker, heard: heard}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.force, l.hurry = context.WithCancel(context.Background())
	return l
}

// Server returns what the last handshake said, or nil before the first one.
func (l *lane) Server() *bridge.Greeting {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// State says whether the connection is open.
func (l *lane) State() laneState {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed != nil:
		return laneEnded
	case l.wire != nil:
		if d, ok := l.wire.raw.(bridge.Deafening); ok && d.Deaf() {
			return laneDeaf
		}
		return laneOpen
	case l.lost != nil:
		return laneLost
	}
	return laneAsleep
}

// presume notes what a server has said over other connections of the same
// client's, until it says it over this one.
func (l *lane) presume(s *bridge.Greeting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil && l.closed == nil {
		l.server = s
	}
}

// Call opens the connection if need be and makes the call. initialize is
// answered with what the handshake said.
func (l *lane) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "resources/subscribe" && l.full(r.URI()):
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", list.MaxSubscriptions), nil), nil
	case r.Method == "resources/unsubscribe" && l.forget(r.URI()):
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	}
	r.Header = pick(r.Header, l.route.o.Forward)
	m, err := l.call(ctx, r)
	if errors.Is(err, bridge.ErrUnsent) && ctx.Err() == nil {
		m, err = l.call(ctx, r) // the server cannot have acted on it (D0.8, R-050)
	}
	return m, err
}

// call makes the call once. A connection that turns out to be of no use is
// not used again.
func (l *lane) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "resources/unsubscribe" {
		defer l.remember(nil, r) // whatever comes of it, nobody wants the subscription back
	}
	w, err := l.enter(ctx)
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
	if r.Method == "initialize" {
		return jsonrpc.NewResult(nil, w.up.Server().Result), nil // the lane's may be gone by now
	}
	var m *jsonrpc.Message
	if r.Method == era.Listen {
		m, err = l.listen(ctx, w, r)
	} else {
		m, err = l.perform(ctx, w, r)
	}
	l.route.fared(err, len(r.Header) > 0 || len(l.caller.Header) > 0)
	if errors.Is(err, bridge.ErrUnsent) {
		w.Gone(err) // in case that the news of it have not come yet
	}
	if err == nil && !w.worked.Load() {
		w.worked.Store(true)
	}
	if err == nil && m.Error == nil && !l.remember(w, r) {
		m.Release()
		return nil, &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrUnsent, Public: "its connection has ended"} // it may as well not have been sent
	}
	return m, err
}

// perform makes the call on the wire.
func (l *lane) perform(ctx context.Context, w *wire, r *bridge.Request) (*jsonrpc.Message, error) {
	return l.route.b.tracing.Call(ctx, l.route.o.Name, w.up, r)
}

// pick returns what the allow-list forwards of h, under the names that the
// server knows. It is nil only where h is, or where there is no list: a client
// that sends nothing of it is not taken for another one that did.
func pick(h http.Header, list []bridge.Forward) http.Header {
	if h == nil || len(list) == 0 {
		return nil
	}
	out := http.Header{}
	for _, f := range list {
		if values := h[f.From]; len(values) > 0 {
			out[f.To] = values
		}
	}
	return out
}

// full reports whether there is no room for a subscription to one more URI.
func (l *lane) full(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.subs[uri]
	return !known && len(l.subs) >= list.MaxSubscriptions
}

// forget ends a subscription while there is no connection: the next one will
// not be told of it. It reports false when the server has to be told.
func (l *lane) forget(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.subs[uri]
	if !known || l.wire != nil || l.opening != nil || l.closed != nil {
		return false
	}
	delete(l.subs, uri)
	return true
}

// remember notes what a fresh connection has to be told again. It reports false
// when that is too late: the connection that was told is the lane's no more.
func (l *lane) remember(w *wire, r *bridge.Request) bool {
	switch r.Method {
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
	default:
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != w && r.Method != "resources/unsubscribe" {
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
func (l *lane) Notify(ctx context.Context, r *bridge.Request) error {
	r.Header = pick(r.Header, l.route.o.Forward)
	l.mu.Lock()
	if w := l.wire; w != nil {
		l.mu.Unlock()
		return w.up.Notify(ctx, r)
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
		l.route.b.dropped.Add(1)
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
func (l *lane) deliver() {
	w, err := l.enter(l.ctx)
	l.mu.Lock()
	notes := l.notes
	l.notes = nil
	l.mu.Unlock()
	if err != nil {
		return // it is logged where it happens
	}
	defer l.leave()
	for _, n := range notes {
		_ = w.up.Notify(l.ctx, n) // the loss is logged by the lane
	}
}

// spawn runs f in a goroutine that Close waits for. It reports false when the lane
// is closed.
func (l *lane) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return false
	}
	l.wg.Go(f)
	return true
}

// current returns the open connection, or nil.
func (l *lane) current() *wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire
}

// enter returns the open connection and counts the caller as using it until
// leave.
func (l *lane) enter(ctx context.Context) (*wire, error) {
	for {
		l.mu.Lock()
		switch {
		case l.closed != nil:
			defer l.mu.Unlock()
			return nil, l.closed
		case l.wire != nil:
			defer l.mu.Unlock()
			l.active++
			return l.wire, nil
		case l.opening == nil:
			o := &opening{done: make(chan struct{})}
			l.opening = o
			l.wg.Go(func() { l.open(o) })
		}
		o := l.opening
		l.mu.Unlock()
		ended := l.route.b.tracing.Opening(ctx, l.route.o.Name)
		select {
		case <-o.done:
			if ended(o.err); o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			ended(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
	}
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	if l.active > 0 || l.route.idle <= 0 && l.pulse == nil {
		return
	}
	l.used = time.Now()
	if l.route.idle > 0 && l.timer == nil && l.closed == nil {
		l.timer = time.AfterFunc(l.route.idle, l.doze)
	}
}

// need notes that somebody wants the connection to be there, or with -1 does so
// no more.
func (l *lane) need(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.needs += n; n > 0 && l.wire == nil {
		l.hold()
	}
	if n < 0 && l.route.idle > 0 && l.timer == nil && l.closed == nil {
		l.used = time.Now()
		l.timer = time.AfterFunc(l.route.idle, l.doze)
	}
}

// needed reports whether the connection has to be there although nobody uses
// it. The caller holds l.mu.
func (l *lane) needed() bool { return len(l.subs) > 0 || l.needs > 0 }

// doze closes a connection that nobody uses. It looks again later when
// somebody did in the meantime: cheaper than a timer that each call resets.
func (l *lane) doze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed != nil || l.wire == nil || l.active > 0 || l.needed() {
		return // leave, or the end of a subscription, arms the timer again
	}
	if left := l.route.idle - time.Since(l.used); left > 0 {
		l.timer = time.AfterFunc(left, l.doze)
		return
	}
	w := l.wire
	l.wire, l.lost = nil, nil
	l.route.log.Debug("connection closed: idle")
	l.retireSoon(w)
}

// retire closes a connection that is not the lane's any more.
func (l *lane) retire(w *wire) {
	l.heard.Closed()
	_ = w.up.Close(l.force) // the wire logs what matters
	l.route.released(l.caller.Principal)
}

// retireSoon does so in the background. The caller holds l.mu.
func (l *lane) retireSoon(w *wire) {
	left := l.route.leave.begin()
	l.wg.Go(func() {
		defer left()
		l.retire(w)
	})
}

// open makes one attempt.
func (l *lane) open(o *opening) {
	w, err := l.attempt()
	l.mu.Lock()
	l.opening, o.err = nil, err
	before := l.server
	var gone error
	switch {
	case errors.Is(err, bridge.ErrReplaced):
		l.wg.Go(func() { l.retire(w) })
	case err != nil:
	case l.closed != nil:
		o.err = l.closed
		l.retireSoon(w)
	case w.gone != nil: // it has ended between its handshake and now
		gone, o.err = w.gone, w.gone
		l.began = time.Now()
		l.lose(w)
	default:
		l.wire, l.began = w, time.Now()
		l.used = l.began
		l.watch()
	}
	l.mu.Unlock()
	if errors.Is(err, bridge.ErrReplaced) {
		l.heard.Replaced()
		l.rest.Gone(err)
		l.mu.Lock() // those who come from now on do not share this attempt, and know nothing of what was before
		if l.server == before {
			l.server = nil
		}
		l.mu.Unlock()
	}
	close(o.done)
	if gone != nil {
		l.route.failed(gone)
		l.mourn(gone)
	}
}

// nextStart returns when the connection may be opened again after a loss. The
// caller holds l.mu.
func (l *lane) nextStart() time.Time {
	again := l.ended
	if l.losses > 0 {
		again = again.Add(min(time.Second<<min(l.losses-1, 20), l.route.maxPause))
	}
	now, most := time.Now(), l.route.restarts
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

var _ bridge.Hearer = (*wire)(nil)

// Unheard implements Hearer.
func (w *wire) Unheard() { w.l.heard.Deaf() }

// Notify passes on what the server says by itself.
func (w *wire) Notify(n *jsonrpc.Message) {
	w.l.heard.Heard(n)
	w.l.rest.Notify(n)
}

// Room implements bridge.Roomy: what a server says on the lane takes room of the
// principal that it is for, if that is one alone.
func (w *wire) Room() bridge.Room {
	principal := w.l.caller.Principal
	if w.l.route.share == ShareAll {
		principal = ""
	}
	return w.l.route.b.Room(principal).Incoming()
}

// Ask passes on what the server asks.
func (w *wire) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	w.asks.Add(1)
	if w.l.asks == nil {
		return w.l.rest.Ask(q, reply)
	}
	return limits.Asking(w.l.rest, q, reply, w.l.asks)
}

// Close ends the connection for good.
func (l *lane) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = bridge.ErrShutdown
	}
	w := l.wire
	l.wire = nil
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.pulse != nil {
		l.pulse.Stop()
	}
	l.mu.Unlock()
	l.heard.Ended()
	l.cancel()
	stop := context.AfterFunc(ctx, l.hurry)
	defer stop()
	if w != nil {
		l.retire(w)
	}
	l.wg.Wait()
	l.hurry()
	return nil
}
