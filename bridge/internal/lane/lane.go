// Package lane keeps a connection to a server for its callers. A Lane opens the connection on demand, pings it,
// and closes it when it is idle. After a loss it opens another one. A fresh connection gets the log level and the resource
// subscriptions of the one before.
//
// A lane promises three things. A call uses one connection, and another one only if the server cannot have acted
// on it. A connection that keeps failing is opened again after growing pauses. Close waits for all that the lane
// has started.
//
// A Budget bounds the connections to a server, a Total those to all servers.
//
// A lane reports the events of its connection through Ends and Health.
package lane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/list"
)

// Lane is an Upstream that opens its connection on demand, and again after a loss or an idle close. It restores
// the log level and the subscriptions (protocol.md D3, R-187). It is one state machine under one lock: calls,
// subscriptions and losses decide whether it opens, waits or closes.
type Lane struct {
	o        *Options
	caller   *bridge.Caller
	client   bridge.Client
	observer Observer
	gate     Gate
	givenUp  func()          // may be nil
	stay     bridge.Handover // may be nil
	wg       sync.WaitGroup
	ctx      context.Context // ends when Close is called
	cancel   context.CancelFunc
	force    context.Context // ends when the time of Close is over
	hurry    context.CancelFunc

	mu          sync.Mutex       // guards the rest
	conn        *conn            // the open connection, or nil
	server      *bridge.Greeting // from the last handshake
	opening     *opening         // the attempt in flight, or nil
	closed      error
	active      int       // calls in flight
	lastUsed    time.Time // when the last call ended
	timer       *time.Timer
	pingTimer   *time.Timer         // until the next ping; nil without pings
	pingEvery   time.Duration       // the interval of pingTimer
	keepingOpen bool                // keepOpen is running
	queued      []*bridge.Request   // notifications that wait for the connection
	level       []byte              // params of the last logging/setLevel
	subs        map[string]struct{} // subscribed URIs
	users       int                 // users that need the connection open without calls
	lost        error               // why the last connection was lost; nil if it ended otherwise
	losses      int                 // losses in a row
	openedAt    time.Time           // when the open connection was opened
	lostAt      time.Time           // when the last connection was lost
	reopens     []time.Time         // when the connection was opened again, within the last minute
	latest      *identity.Identity  // the last identity that was forwarded, for the next opening
}

// opening is one attempt to open the connection.
type opening struct {
	done chan struct{} // closed when the attempt has ended
	err  error
}

// conn is one connection of a lane, and the Client of its reader.
type conn struct {
	up    bridge.Upstream
	raw   bridge.Upstream // up without the gate's wrappers
	l     *Lane
	asked atomic.Int64 // questions of the server that name no call
	gone  error        // why the connection ended; nil while it works; guarded by l.mu

	opened time.Time

	worked atomic.Bool // a call was answered

	shared sharedSubscription
}

var (
	_ bridge.Client = (*conn)(nil)
	_ bridge.Roomy  = (*conn)(nil)
	_ bridge.Tapped = (*conn)(nil)
	_ Conn          = (*conn)(nil)
)

// New returns a lane on behalf of from. New opens nothing yet.
func New(o *Options, from *bridge.Caller, ends Ends) *Lane {
	l := &Lane{
		o:        o,
		caller:   from,
		client:   ends.Client,
		observer: ends.Observer,
		gate:     ends.Gate,
		givenUp:  ends.GivenUp,
		stay:     ends.Handover,
		level:    ends.Level,
	}
	if l.gate == nil {
		l.gate = ungated{}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.force, l.hurry = context.WithCancel(context.Background())
	return l
}

// Caller returns the caller on whose behalf connections open.
func (l *Lane) Caller() *bridge.Caller { return l.caller }

// Server returns the greeting of the last handshake, or nil before the first one.
func (l *Lane) Server() *bridge.Greeting {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

func (l *Lane) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed != nil:
		return Ended
	case l.conn != nil:
		return Open
	case l.lost != nil:
		return Lost
	}
	return Idle
}

// Presume makes Server return the greeting of another connection, until this lane has its own.
func (l *Lane) Presume(g *bridge.Greeting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil && l.closed == nil {
		l.server = g
	}
}

// Call opens the connection if necessary and makes the call. If the server cannot have acted on the call, Call makes
// it once more. Call answers initialize from the handshake.
func (l *Lane) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "resources/subscribe" && l.full(r.URI()):
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("too many subscriptions", subscribe.MaxSubscriptions), nil), nil
	case r.Method == "resources/unsubscribe" && l.forget(r.URI()):
		return jsonrpc.NewResult(nil, []byte("{}")), nil
	}
	r = l.forwarded(r)
	m, err := l.call(ctx, r)
	if errors.Is(err, bridge.ErrUnsent) && ctx.Err() == nil {
		m, err = l.call(ctx, r) // the server cannot have acted on the call (D0.8, R-050)
	}
	return m, err
}

// forwarded returns the request with only those headers and claims that the allow-list forwards. forwarded stores the
// identity for the next opening.
func (l *Lane) forwarded(r *bridge.Request) *bridge.Request {
	if r.Header == nil && r.Identity == nil {
		return r
	}
	own := *r
	if own.Header, own.Identity = bridge.Forwarded(r.Header, r.Identity, l.o.Forward); own.Identity != nil {
		l.mu.Lock()
		l.latest = own.Identity
		l.mu.Unlock()
	}
	return &own
}

// from returns the caller for a new connection, with the last forwarded identity.
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

// call makes the call once. call drops a connection that turns out to be unusable.
func (l *Lane) call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "resources/unsubscribe" {
		defer l.remember(nil, r) // even if the call fails, the subscription is not restored
	}
	c, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	if r.Method == era.Listen { // a subscription needs the connection, and is no call in flight
		l.addUser(1)
		defer l.addUser(-1)
		l.leave()
	} else {
		defer l.leave()
	}
	if r.Opened != nil {
		r.Opened()
	}
	if r.Method == "initialize" {
		return jsonrpc.NewResult(nil, c.up.Server().Result), nil // the lane may have another greeting by now
	}
	if r.From != nil && r.From.Handover != nil { // the process may have been suspended since the call began
		if err := r.From.Handover.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	var m *jsonrpc.Message
	if r.Method == era.Listen {
		m, err = l.listen(ctx, c, r)
	} else {
		m, err = l.perform(ctx, c, r)
	}
	l.o.Health.CallDone(err, len(r.Header) > 0 || len(l.caller.Header) > 0 || bridge.Personal(l.o.Forward))
	if errors.Is(err, bridge.ErrUnsent) {
		c.Gone(err) // the connection may not have reported this yet
	}
	if err == nil && !c.worked.Load() {
		c.worked.Store(true)
	}
	if err == nil && m.Error == nil && !l.remember(c, r) { // the connection that got the request is gone: the request counts as not sent
		m.Release()
		return nil, &bridge.Error{
			Server: l.o.Name,
			Kind:   bridge.ErrUnsent,
			Public: "its connection has ended",
		}
	}
	return m, err
}

// perform makes the call on the connection.
func (l *Lane) perform(ctx context.Context, c *conn, r *bridge.Request) (*jsonrpc.Message, error) {
	var began time.Time
	if l.o.Sent != nil {
		began = time.Now()
	}
	m, err := l.o.Tracing.Call(ctx, l.o.Name, l.o.Address, c.up, r)
	if l.o.Sent != nil {
		why := err
		if err != nil && ctx.Err() != nil {
			why = context.Cause(ctx) // the end of ctx caused the error
		}
		l.o.Sent(report.Sent(l.o.Name, l.o.Address, c.up, began, r.Message, m, why))
	}
	if err == nil && m.Error != nil && r.Method == list.Templates.Method() {
		m = withoutTemplates(m, c.up.Server())
	}
	return m, err
}

// withoutTemplates returns an empty list in place of the error of a server that announces resources and does not know
// the method for templates. Many servers are like that, and some clients show such a server as failed.
func withoutTemplates(m *jsonrpc.Message, g *bridge.Greeting) *jsonrpc.Message {
	if gjson.GetBytes(m.Error, "code").Int() != jsonrpc.CodeMethodNotFound || !gjson.GetBytes(g.Capabilities, list.Templates.Capability()).Exists() {
		return m
	}
	result := `{"resourceTemplates":[]}`
	if g.Modern() {
		result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","resourceTemplates":[]}`
	}
	return m.Replaced([]byte(result))
}

// full reports whether one more URI would exceed the limit on subscriptions.
func (l *Lane) full(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.subs[uri]
	return !known && len(l.subs) >= subscribe.MaxSubscriptions
}

// forget ends a subscription while there is no connection, so that the next connection does not restore it. forget
// reports false if the server must get the request.
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

// SetLevel stores the params of logging/setLevel for the next connection. If there is a connection or the lane is
// closed, SetLevel reports false and stores nothing: the caller must send the request.
func (l *Lane) SetLevel(params []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil || l.opening != nil || l.closed != nil {
		return false
	}
	l.level = params
	return true
}

// remember stores the level or the subscription that a request sets, because a fresh connection must get it again. If
// c, which got the request, is no longer the lane's connection, remember stores nothing and reports false.
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

// These constants bound the notifications that wait for a connection. Notify drops any beyond them, because no caller
// waits for their outcome.
const (
	maxNotes     = 64
	maxNoteBytes = 1 << 20
)

// Notify sends a notification. If there is no connection, Notify opens one in the background.
func (l *Lane) Notify(ctx context.Context, r *bridge.Request) error {
	r = l.forwarded(r)
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
	for _, r := range l.queued {
		size += r.Len()
	}
	if len(l.queued) >= maxNotes || size > maxNoteBytes {
		l.o.Dropped.Add(1)
		return bridge.ErrOverloaded
	}
	mine := *r
	mine.Message = r.Clone()
	if l.queued = append(l.queued, &mine); len(l.queued) == 1 {
		l.wg.Go(l.deliver)
	}
	return nil
}

// deliver opens the connection and sends the waiting notifications.
func (l *Lane) deliver() {
	c, err := l.enter(l.ctx)
	l.mu.Lock()
	notes := l.queued
	l.queued = nil
	l.mu.Unlock()
	if err != nil {
		return // the error is logged at its origin
	}
	defer l.leave()
	for _, r := range notes {
		_ = c.up.Notify(l.ctx, r) // the lane logs the loss
	}
}

// Go runs f in a goroutine that Close awaits. Its ctx ends when Close begins. Go reports false if the lane is
// closed.
func (l *Lane) Go(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return false
	}
	l.wg.Go(func() { f(l.ctx) })
	return true
}

// Known returns the greeting of the connection, which it opens if necessary. attributes reports whether the
// connection attributes questions to calls.
func (l *Lane) Known(ctx context.Context) (g *bridge.Greeting, attributes bool, err error) {
	c, err := l.enter(ctx)
	if err != nil {
		return nil, false, err
	}
	defer l.leave()
	return c.up.Server(), c.attributes(), nil
}

// attributes reports whether the connection attributes questions to calls.
func (c *conn) attributes() bool {
	a, ok := c.raw.(bridge.Attributing)
	return ok && a.Attributes()
}

// Keep opens the connection if necessary. Until release is called, the lane keeps it open without calls, and
// opens it again after a loss.
func (l *Lane) Keep(ctx context.Context) (release func(), err error) {
	if _, err := l.enter(ctx); err != nil {
		return nil, err
	}
	l.addUser(1)
	l.leave()
	return func() { l.addUser(-1) }, nil
}

// enter opens the connection if necessary, and returns it. enter counts a call in flight until leave.
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
			if ctx.Err() != nil { // the loss of the connection may have ended ctx
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
	if l.conn != nil && l.pingEvery != l.o.Settings.Load().Ping {
		l.startPings()
	}
	if l.o.Idle <= 0 && l.pingTimer == nil {
		return
	}
	l.lastUsed = time.Now()
	if l.o.Idle > 0 && l.timer == nil && l.closed == nil {
		l.timer = time.AfterFunc(l.o.Idle, l.closeIdle)
	}
}

// addUser adds n to the users that need the connection open.
func (l *Lane) addUser(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users += n; n > 0 && l.conn == nil {
		l.reopen()
	}
	if n < 0 && l.o.Idle > 0 && l.timer == nil && l.closed == nil {
		l.lastUsed = time.Now()
		l.timer = time.AfterFunc(l.o.Idle, l.closeIdle)
	}
}

// needed reports whether the connection must be open even without calls. The caller holds l.mu.
func (l *Lane) needed() bool { return len(l.subs) > 0 || l.users > 0 }

// closeIdle closes an idle connection. If there were calls since the timer started, closeIdle sets the timer again,
// which is cheaper than a reset with each call.
func (l *Lane) closeIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed != nil || l.conn == nil || l.active > 0 || l.needed() {
		return // the method leave, or the end of a subscription, sets the timer again
	}
	if left := l.o.Idle - time.Since(l.lastUsed); left > 0 {
		l.timer = time.AfterFunc(left, l.closeIdle)
		return
	}
	c := l.conn
	l.conn, l.lost = nil, nil
	l.saveResume(nil)
	l.o.Log.Debug("connection closed: idle")
	l.retireSoon(c)
}

// retire closes a connection that the lane no longer uses.
func (l *Lane) retire(c *conn) {
	if l.stay != nil && l.stay.HandedOver() {
		if r, ok := c.raw.(bridge.Resumable); ok {
			r.Detach()
		}
	}
	_ = c.up.Close(l.force) // the connection logs important errors
	l.o.Budget.release(l.caller.Principal)
	if g := c.up.Server(); l.o.Closed != nil && g != nil && !g.Modern() {
		l.mu.Lock()
		gone := c.gone
		l.mu.Unlock()
		l.o.Closed(report.Session{
			Server:   l.o.Name,
			Revision: g.Revision,
			Address:  l.o.Address,
			Took:     time.Since(c.opened),
			Err:      gone,
		})
	}
}

// retireSoon calls retire in the background. The caller holds l.mu.
func (l *Lane) retireSoon(c *conn) {
	closed := l.o.Budget.Closing()
	l.wg.Go(func() {
		defer closed()
		l.retire(c)
	})
}

// open makes one attempt to open the connection, and closes o.done.
func (l *Lane) open(o *opening) {
	c, err := l.attempt()
	l.mu.Lock()
	l.opening, o.err = nil, err
	var gone error
	switch {
	case errors.Is(err, bridge.ErrReplaced):
		l.wg.Go(func() { l.retire(c) })
		l.opening = &opening{done: make(chan struct{})} // until observer and client have the notice of the replacement
	case err != nil:
	case l.closed != nil:
		o.err = l.closed
		l.retireSoon(c)
	case c.gone != nil: // the connection ended after its handshake
		gone, o.err = c.gone, c.gone
		l.openedAt = time.Now()
		l.markLost(c)
	default:
		l.conn, l.openedAt = c, time.Now()
		l.lastUsed = l.openedAt
		l.saveResume(c.raw)
		l.startPings()
	}
	l.mu.Unlock()
	if errors.Is(err, bridge.ErrReplaced) {
		l.observer.Replaced()
		l.client.Gone(err)
		l.mu.Lock() // from here on, callers do not get the old server
		told := l.opening
		l.server, l.opening = nil, nil
		l.mu.Unlock()
		close(told.done)
	}
	close(o.done)
	if gone != nil {
		l.o.Health.Failed(gone)
		l.notifyLost(gone)
	}
}

// nextStart returns when the connection may be opened again. The caller holds l.mu.
func (l *Lane) nextStart() time.Time {
	again := l.lostAt
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
	case n > most/2: // spread the remaining attempts, so that no caller waits for the rest of the minute
		later(l.reopens[n-1].Add(2 * time.Minute / time.Duration(most)))
	}
	return again
}

// Notify passes on a notification that belongs to no call.
func (c *conn) Notify(m *jsonrpc.Message) {
	c.l.observer.Notified(m)
	c.l.client.Notify(m)
}

// Room implements bridge.Roomy. Messages count against the lane's principal, unless principals share the lane.
func (c *conn) Room() bridge.Room {
	if c.l.o.Shared {
		return c.l.o.Bytes.Incoming("")
	}
	return c.l.o.Bytes.Incoming(c.l.caller.Principal)
}

// Tap implements bridge.Tapped.
func (c *conn) Tap() bridge.Tap {
	if c.l.o.Calls == nil {
		return nil
	}
	return c.l.o.Calls.Traffic.Wire(c.l.o.Name, c.l.caller.Principal)
}

// Ask passes on a question that belongs to no call.
func (c *conn) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.asked.Add(1)
	return c.l.client.Ask(m, reply)
}

// Close closes the lane and its connection, and waits for all goroutines of the lane. When ctx ends, Close forces the
// connection to close.
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
	if l.pingTimer != nil {
		l.pingTimer.Stop()
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
