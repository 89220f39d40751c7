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
)

// If a lost connection had answered a call or was open for the time stable, the next call opens another one at once.
// After other losses and failed openings, pauses follow: 1, 2, 4 s and so on, up to Settings.MaxPause.
const (
	stable     = 5 * time.Minute
	minSession = time.Second     // a server that loses a session sooner counts as failing
	maxWait    = 5 * time.Second // a call that would wait longer fails at once
)

// attempt waits until another start is allowed, opens a connection and restores its settings. With ErrReplaced,
// attempt returns the connection too.
//
// The back-off forbids the attempt if this lane started too often. The gate forbids it if the server's connections
// kept failing, those of other lanes included.
func (l *Lane) attempt() (*conn, error) {
	if err := l.gate.Pass(l.ctx, l.from()); err != nil {
		return nil, err
	}
	if err := l.backOff(); err != nil {
		return nil, err
	}
	turn, stop := context.WithTimeoutCause(l.ctx, l.o.Handshake, &bridge.Error{
		Server: l.o.Name,
		Kind:   bridge.ErrUnavailable,
		Err:    bridge.ErrOverloaded,
		Public: "too many of its connections are being opened",
	})
	defer stop()
	within := l.o.Handshake
	bounded, bounds := l.o.Adapter.(bridge.BoundsOpenings)
	if bounds {
		within += bounded.BoundsOpenings()
	}
	release, err := l.o.Budget.admit(turn, l.caller.Principal, bounds)
	if err != nil {
		return nil, err // the server is not at fault
	}
	opened, err := l.gate.Opening(l.ctx, l.from()) // others may have failed meanwhile
	if err != nil {
		release()
		l.o.Budget.release(l.caller.Principal)
		return nil, err
	}
	ctx, cancel := deadline.WithTimeout(l.ctx, within, &bridge.Error{Server: l.o.Name, Kind: bridge.ErrUnavailable,
		Public: fmt.Sprintf("it did not finish its handshake within %v", l.o.Handshake)})
	defer cancel()
	c := &conn{l: l, opened: time.Now()}
	c.shared = sharedSubscription{
		c:           c,
		subscribers: map[*subscriber]struct{}{},
		topics:      map[topic]int{},
	}
	c.raw, err = l.connect(ctx, c)
	release()
	if bridge.Exhausted(err) {
		err = &bridge.Error{
			Server: l.o.Name,
			Kind:   errNoRoom,
			Err:    err,
			After:  time.Second,
			Public: "the bridge has no room for another connection: it has too many files or processes open, or too little memory",
		}
	}
	c.up = applyEdits(c.raw, opened(c, c.raw, err))
	if err == nil {
		if err = l.restore(ctx, c); err != nil {
			l.o.Health.Greeted(l.caller.Principal, c.up.Server()) // the server works, although it is another one now
			return c, err
		}
	}
	if err != nil {
		l.o.Budget.release(l.caller.Principal)
		l.failed(err)
		return nil, err
	}
	l.o.Health.Greeted(l.caller.Principal, c.up.Server())
	l.o.Health.Opened()
	return c, nil
}

// failed records that opening failed. failed ignores attempts of a closed lane. If the caller's own credentials were
// rejected, other callers are not affected.
func (l *Lane) failed(err error) {
	if errors.Is(err, bridge.ErrNoWorker) { // the next call may find a worker at once
		l.o.Health.NoRoom(err)
		return
	}
	l.mu.Lock()
	closed := l.closed != nil
	if !closed {
		l.lost, l.lostAt = err, time.Now()
		l.losses++
	}
	l.mu.Unlock()
	switch own := (len(l.caller.Header) > 0 || bridge.Personal(l.o.Forward)) && errors.Is(err, bridge.ErrCredentials); {
	case closed, own:
	case errors.Is(err, errNoRoom):
		l.o.Health.NoRoom(err)
	default:
		l.o.Health.Failed(err)
	}
}

// backOff waits as long as the last loss demands. backOff fails at once if the wait is longer than maxWait.
func (l *Lane) backOff() error {
	l.mu.Lock()
	lost, wait := l.lost, time.Until(l.nextStart())
	l.mu.Unlock()
	if lost == nil {
		return nil
	}
	if wait > maxWait {
		return &bridge.Error{
			Server: l.o.Name,
			Kind:   bridge.ErrUnavailable,
			After:  wait,
			Public: fmt.Sprintf("it keeps failing; the next start is tried in %v (%s)", wait.Round(time.Second), public(lost)),
		}
	}
	if wait > 0 && backoff.For(l.ctx, wait) != nil {
		return bridge.ErrShutdown
	}
	if !forgotSession(lost) {
		l.mu.Lock()
		l.reopens = append(l.reopens, time.Now())
		l.mu.Unlock()
	}
	l.o.Health.Restarted()
	return nil
}

// forgotSession reports whether the connection was lost because the server forgot its session. A forgotten session is
// not a failure.
func forgotSession(err error) bool {
	return errors.Is(err, bridge.ErrUnsent) && !errors.Is(err, bridge.ErrLost)
}

// public returns the part of err that clients may see.
func public(err error) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return e.Public
	}
	return "it failed"
}

// restore sends the settings of the last connection to a fresh one, and notifies the client of possible changes. If
// the server came back as another server, restore returns ErrReplaced.
func (l *Lane) restore(ctx context.Context, c *conn) error {
	l.mu.Lock()
	before, lost := l.server, l.lost
	level, subs := l.level, slices.Collect(maps.Keys(l.subs))
	l.mu.Unlock()
	if before != nil && !before.Keeps(c.up.Server()) {
		return &bridge.Error{
			Server: l.o.Name,
			Kind:   bridge.ErrLost,
			Err:    bridge.ErrReplaced,
			Public: "it came back with another revision or fewer capabilities: initialize again",
		}
	}
	if level != nil {
		l.send(ctx, c, "logging/setLevel", level)
	}
	for _, uri := range subs {
		l.send(ctx, c, "resources/subscribe", subscribe.Params(uri))
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
		for _, uri := range subs { // a client cannot detect an interruption
			l.client.Notify(subscribe.Updated(uri))
		}
	}
	return nil
}

// send makes a call on behalf of the bridge itself. send only logs a failure to restore settings that the server
// accepted before.
func (l *Lane) send(ctx context.Context, c *conn, method string, params []byte) {
	m, err := c.raw.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: l.caller})
	if err == nil && m.Error != nil {
		err = errors.New(string(m.Error))
	}
	if err != nil {
		l.o.Log.Warn("could not restore", "method", method, "err", err)
	}
	m.Release()
}

// markLost records that the connection ended by itself. The caller holds l.mu, and calls notifyLost after it
// unlocks.
func (l *Lane) markLost(c *conn) {
	now := time.Now()
	switch open := now.Sub(l.openedAt); {
	case c.worked.Load(), open >= stable:
		l.losses = 0
	case forgotSession(c.gone) && open >= minSession: // the server works
	default:
		l.losses++
	}
	l.lost, l.lostAt = c.gone, now
	l.retireSoon(c)
	l.reopen()
}

// reopen starts keepOpen if the connection is needed. The caller holds l.mu.
func (l *Lane) reopen() {
	if l.needed() && !l.keepingOpen && l.closed == nil && !l.o.Settings.Load().EndWithServer {
		l.keepingOpen = true
		l.wg.Go(l.keepOpen)
	}
}

// notifyLost reports the end of the connection to Health and the client.
func (l *Lane) notifyLost(err error) {
	l.o.Log.Warn("connection lost", "err", err) // concerns one session only
	l.o.Health.Lost(err)
	if l.o.Settings.Load().EndWithServer {
		l.client.Gone(err)
	}
}

// giveUpAfter is how long keepOpen tries before each failed attempt calls Ends.GivenUp.
const giveUpAfter = 5 * time.Minute

// keepOpen opens the connection while something needs it. keepOpen tries without limit.
func (l *Lane) keepOpen() {
	began := time.Now()
	for {
		l.mu.Lock()
		if l.conn != nil || !l.needed() || l.closed != nil {
			l.keepingOpen = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if _, err := l.enter(l.ctx); err == nil {
			l.leave()
			continue
		}
		if l.givenUp != nil && time.Since(began) >= giveUpAfter {
			l.givenUp()
		}
		l.mu.Lock()
		wait := time.Until(l.nextStart())
		l.mu.Unlock()
		_ = backoff.For(l.ctx, max(wait, time.Second, l.gate.Left()))
	}
}

// Gone records that the connection has ended. The next call opens another one.
func (c *conn) Gone(err error) { c.markGone(err, false) }

// GoneIdle implements Conn.
func (c *conn) GoneIdle(err error) bool { return c.markGone(err, true) }

// markGone records that the connection has ended. With idle, markGone does so only if the connection is open and no
// call is in flight. markGone reports whether the lane used the connection until now.
func (c *conn) markGone(err error, idle bool) bool {
	l := c.l
	l.mu.Lock()
	if idle && (l.conn != c || l.active > 0) {
		l.mu.Unlock()
		return false
	}
	c.gone = err
	if l.conn != c {
		l.mu.Unlock()
		return false // open or retire handles the end of this connection
	}
	l.conn = nil // so that Close does not retire the connection twice
	l.saveResume(nil)
	l.markLost(c)
	l.mu.Unlock()
	l.notifyLost(err)
	return true
}
