package lane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/deadline"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// A connection that has worked is opened again at once when it is lost, with the
// next call: it has answered a call, or has been open for so long that whatever
// has ended it is no fault of its beginning. Other losses, and openings that
// fail, are followed by pauses: 1, 2, 4 … 60 s.
const (
	stable       = 5 * time.Minute
	settled      = time.Second     // a session that is forgotten sooner was not worth much
	patientUntil = 5 * time.Second // a caller waits this long rather than be refused
)

// attempt waits until another start is allowed, opens a connection and
// restores what the session had set. With ErrReplaced there is a connection, too.
//
// Two things can forbid it. The back-off is about this connection, and how often
// it was started; the gate about the server, whose connections have failed
// again and again: then none is opened, however new.
func (l *Lane) attempt() (*conn, error) {
	if err := l.gate.Pass(l.ctx, l.from()); err != nil {
		return nil, err
	}
	if err := l.backOff(); err != nil {
		return nil, err
	}
	turn, stop := context.WithTimeoutCause(l.ctx, l.o.Handshake, &bridge.Error{Server: l.o.Name, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
		Public: "too many of its connections are being opened"})
	defer stop()
	within := l.o.Handshake
	bounded, bounds := l.o.Adapter.(bridge.BoundsOpenings)
	if bounds {
		within += bounded.BoundsOpenings()
	}
	release, err := l.o.Budget.admit(turn, l.caller.Principal, bounds)
	if err != nil {
		return nil, err // no fault of the server's
	}
	opened, err := l.gate.Opening(l.ctx, l.from()) // others have tried meanwhile
	if err != nil {
		release()
		l.o.Budget.release(l.caller.Principal)
		return nil, err
	}
	ctx, cancel := deadline.WithTimeout(l.ctx, within, &bridge.Error{Server: l.o.Name, Kind: bridge.ErrUnavailable,
		Public: fmt.Sprintf("it did not finish its handshake within %v", l.o.Handshake)})
	defer cancel()
	c := &conn{l: l}
	c.joint = joint{c: c, sharers: map[*sharer]struct{}{}, wanted: map[interest]int{}}
	c.raw, err = l.connect(ctx, c)
	release()
	if bridge.Exhausted(err) {
		err = &bridge.Error{Server: l.o.Name, Kind: errNoRoom, Err: err, After: time.Second, Public: "the bridge has no room for another connection: it has too many files or processes open, or too little memory"}
	}
	c.up = whole(c.raw, opened(c, c.raw, err))
	if err == nil {
		l.observer.Opened()
		if err = l.restore(ctx, c); err != nil {
			l.o.Health.Learned(l.caller.Principal, c.up.Server()) // it works, as another
			return c, err
		}
	}
	if err != nil {
		l.o.Budget.release(l.caller.Principal)
		l.failed(err)
		return nil, err
	}
	l.o.Health.Learned(l.caller.Principal, c.up.Server())
	l.o.Health.Opened()
	return c, nil
}

// failed notes that the server could not be opened, unless the attempt was
// given up because nobody needs it any more, or failed by what the caller had
// forwarded, or shows of its own: one wrong token is no failure of the server for others.
func (l *Lane) failed(err error) {
	if errors.Is(err, bridge.ErrNoWorker) { // the next call may find one at once
		l.o.Health.Lacked(err)
		return
	}
	l.mu.Lock()
	closed := l.closed != nil
	if !closed {
		l.lost, l.ended = err, time.Now()
		l.losses++
	}
	l.mu.Unlock()
	switch own := (len(l.caller.Header) > 0 || bridge.Personal(l.o.Forward)) && errors.Is(err, bridge.ErrCredentials); {
	case closed, own:
	case errors.Is(err, errNoRoom):
		l.o.Health.Lacked(err)
	default:
		l.o.Health.Failed(err)
	}
}

// backOff waits as long as the last loss demands. It refuses at once when that
// is too long to wait for, so that no caller hangs.
func (l *Lane) backOff() error {
	l.mu.Lock()
	lost, wait := l.lost, time.Until(l.nextStart())
	l.mu.Unlock()
	if lost == nil {
		return nil
	}
	if wait > patientUntil {
		return &bridge.Error{Server: l.o.Name, Kind: bridge.ErrUnavailable, After: wait,
			Public: fmt.Sprintf("it keeps failing; the next start is tried in %v (%s)", wait.Round(time.Second), public(lost))}
	}
	if wait > 0 && backoff.For(l.ctx, wait) != nil {
		return bridge.ErrShutdown
	}
	if !forgot(lost) {
		l.mu.Lock()
		l.reopens = append(l.reopens, time.Now())
		l.mu.Unlock()
	}
	l.o.Health.Restarted()
	return nil
}

// forgot reports whether a connection was lost because the server has forgotten
// its session: that is not to fail.
func forgot(err error) bool {
	return errors.Is(err, bridge.ErrUnsent) && !errors.Is(err, bridge.ErrLost)
}

// public returns what a client may know of err.
func public(err error) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return e.Public
	}
	return "it failed"
}

// restore tells a fresh connection what the one before had been told, and the
// session what may have changed.
func (l *Lane) restore(ctx context.Context, c *conn) error {
	l.mu.Lock()
	before, lost := l.server, l.lost
	level, subs := l.level, slices.Collect(maps.Keys(l.subs))
	l.mu.Unlock()
	if before != nil && !before.Keeps(c.up.Server()) {
		return &bridge.Error{Server: l.o.Name, Kind: bridge.ErrLost, Err: bridge.ErrReplaced, Public: "it came back with another revision or fewer capabilities: initialize again"}
	}
	if level != nil {
		l.tell(ctx, c, "logging/setLevel", level)
	}
	for _, uri := range subs {
		l.tell(ctx, c, "resources/subscribe", []byte(`{"uri":`+rawjson.Quote(uri)+`}`))
	}
	l.mu.Lock()
	l.server, l.lost = c.up.Server(), nil
	l.mu.Unlock()
	if before != nil {
		l.observer.Reopened(lost != nil)
	}
	if before != nil && lost != nil {
		l.o.Log.Warn("connection opened again", "err", lost)
		for _, k := range list.Announced {
			if k.Announces(c.up.Server().Capabilities) {
				l.client.Notify(jsonrpc.NewNotification(k.Changed(), nil))
			}
		}
		if l.caller.Modern() || l.o.Shared { // a client without a session cannot know that its subscription was interrupted
			for _, uri := range subs {
				l.client.Notify(subscribe.Updated(uri))
			}
		}
	}
	return nil
}

// tell makes a call of the bridge's own. A server that refuses what it had
// accepted before is worth a warning and no more.
func (l *Lane) tell(ctx context.Context, c *conn, method string, params []byte) {
	a, err := c.raw.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: l.caller})
	if err == nil && a.Error != nil {
		err = errors.New(string(a.Error))
	}
	if err != nil {
		l.o.Log.Warn("could not restore", "method", method, "err", err)
	}
	a.Release()
}

// lose notes that the connection has ended by itself. The caller holds l.mu,
// and calls mourn without it.
func (l *Lane) lose(c *conn) {
	now := time.Now()
	switch open := now.Sub(l.began); {
	case c.worked.Load(), open >= stable:
		l.losses = 0
	case forgot(c.gone) && open >= settled: // the server works
	default:
		l.losses++
	}
	l.lost, l.ended = c.gone, now
	l.retireSoon(c)
	l.hold()
}

// hold sees to it that the connection is opened again if it is needed. The
// caller holds l.mu.
func (l *Lane) hold() {
	if l.needed() && !l.holding && l.closed == nil && !l.o.Settings.Load().EndWithServer {
		l.holding = true
		l.wg.Go(l.holdOn)
	}
}

// mourn tells those who have to know that the connection has ended.
func (l *Lane) mourn(err error) {
	l.o.Log.Warn("connection lost", "err", err) // of one session: it says nothing about others
	l.o.Health.Lost(err)
	if l.o.Settings.Load().EndWithServer {
		l.client.Gone(err)
	}
}

// patience is how long a needed connection is tried for before those who need it
// are told: see Ends.GivenUp.
const patience = 5 * time.Minute

// holdOn opens the connection for the sake of the subscriptions, which are a
// need as a call is. It tries as often as it takes.
func (l *Lane) holdOn() {
	began := time.Now()
	for {
		l.mu.Lock()
		if l.conn != nil || !l.needed() || l.closed != nil {
			l.holding = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if _, err := l.enter(l.ctx); err == nil {
			l.leave()
			continue
		}
		if l.givenUp != nil && time.Since(began) >= patience {
			l.givenUp()
		}
		l.mu.Lock()
		wait := time.Until(l.nextStart())
		l.mu.Unlock()
		_ = backoff.For(l.ctx, max(wait, time.Second, l.gate.Left()))
	}
}

// Gone notes that the connection has ended. The next call opens another one.
func (c *conn) Gone(err error) { c.leaves(err, false) }

// GoneIdle implements Conn.
func (c *conn) GoneIdle(err error) bool { return c.leaves(err, true) }

// leaves notes that the connection has ended; with idle, only if it is open and no call is
// under way.
func (c *conn) leaves(err error, idle bool) bool {
	l := c.l
	l.mu.Lock()
	if idle && (l.conn != c || l.active > 0) {
		l.mu.Unlock()
		return false
	}
	c.gone = err
	if l.conn != c {
		l.mu.Unlock()
		return false // not open yet, or not ours any more: open and retire see to it
	}
	l.conn = nil // so it is not closed: Close takes the connection
	l.carried(nil)
	l.lose(c)
	l.mu.Unlock()
	l.mourn(err)
	return true
}
