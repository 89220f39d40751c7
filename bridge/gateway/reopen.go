package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
	"github.com/mcp-bridge/bridge/bridge/pause"
)

// A connection that has worked is opened again at once when it is lost, with the
// next call: it has answered a call, or has been open for so long that whatever
// has ended it is no fault of its beginning. Other losses, and openings that
// fail, are followed by pauses: 1, 2, 4 … 60 s.
const (
	maxBackOff   = 60 * time.Second
	stable       = 5 * time.Minute
	settled      = time.Second     // a session that is forgotten sooner was not worth much
	patientUntil = 5 * time.Second // a caller waits this long rather than be refused
)

// attempt waits until another start is allowed, opens a connection and
// restores what the session had set. With errAnother there is a connection, too.
//
// Two things can forbid it. The back-off is about this connection, and how often
// it was started; the breaker about the server, whose connections have failed
// again and again: then none is opened, however new.
func (l *lane) attempt() (*wire, error) {
	if err := l.gate.Pass(l.ctx, l.caller); err != nil {
		return nil, err
	}
	if err := l.backOff(); err != nil {
		return nil, err
	}
	turn, stop := context.WithTimeoutCause(l.ctx, l.route.handshake, &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded,
		Public: "too many of its connections are being opened"})
	defer stop()
	release, err := l.route.admit(turn, l.caller.Principal)
	if err != nil {
		return nil, err // no fault of the server's
	}
	opened, err := l.gate.Opening(l.ctx, l.caller, l.own) // others have tried meanwhile
	if err != nil {
		release()
		l.route.released(l.caller.Principal)
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.route.handshake, &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrUnavailable,
		Public: fmt.Sprintf("it did not finish its handshake within %v", l.route.handshake)})
	defer cancel()
	w := &wire{l: l}
	w.joint = joint{w: w, sharers: map[*sharer]struct{}{}, wanted: map[interest]int{}}
	w.raw, err = l.route.o.Adapter.Open(ctx, l.caller, w)
	release()
	if bridge.Exhausted(err) {
		err = &bridge.Error{Server: l.route.o.Name, Kind: errLack, Err: err, After: limits.Again, Public: "the bridge has no room for another connection: it has too many files or processes open, or too little memory"}
	}
	w.up = opened(w, w.raw, err)
	if err == nil {
		l.heard.Opened()
		if err = l.restore(ctx, w); err != nil {
			l.route.learned(l.caller.Principal, w.up.Server()) // it works, as another
			return w, err
		}
	}
	if err != nil {
		l.route.released(l.caller.Principal)
		l.failed(err)
		return nil, err
	}
	l.route.learned(l.caller.Principal, w.up.Server())
	l.route.tally.opened.Add(1)
	return w, nil
}

// failed notes that the server could not be opened, unless the attempt was
// given up because nobody needs it any more, or failed by what the caller had
// forwarded: one wrong token is no failure of the server for others.
func (l *lane) failed(err error) {
	l.mu.Lock()
	closed := l.closed != nil
	if !closed {
		l.lost, l.ended = err, time.Now()
		l.losses++
	}
	l.mu.Unlock()
	switch own := len(l.caller.Header) > 0 && errors.Is(err, bridge.ErrCredentials); {
	case closed, own:
	case errors.Is(err, errLack):
		l.route.lacks(err)
	default:
		l.route.failed(err)
	}
}

// backOff waits as long as the last loss demands. It refuses at once when that
// is too long to wait for, so that no caller hangs.
func (l *lane) backOff() error {
	l.mu.Lock()
	lost, wait := l.lost, time.Until(l.nextStart())
	l.mu.Unlock()
	if lost == nil {
		return nil
	}
	if wait > patientUntil {
		return &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrUnavailable, After: wait,
			Public: fmt.Sprintf("it keeps failing; the next start is tried in %v (%s)", wait.Round(time.Second), public(lost))}
	}
	if wait > 0 && pause.For(l.ctx, wait) != nil {
		return bridge.ErrShutdown
	}
	if !forgot(lost) {
		l.mu.Lock()
		l.reopens = append(l.reopens, time.Now())
		l.mu.Unlock()
	}
	l.route.tally.restarts.Add(1)
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
func (l *lane) restore(ctx context.Context, w *wire) error {
	l.mu.Lock()
	before, lost := l.server, l.lost
	level, subs := l.level, slices.Collect(maps.Keys(l.subs))
	l.mu.Unlock()
	if before != nil && !before.Keeps(w.up.Server()) {
		return &bridge.Error{Server: l.route.o.Name, Kind: bridge.ErrLost, Err: bridge.ErrReplaced, Public: "it came back with another revision or fewer capabilities: initialize again"}
	}
	if level != nil {
		l.tell(ctx, w, "logging/setLevel", level)
	}
	for _, uri := range subs {
		l.tell(ctx, w, "resources/subscribe", []byte(`{"uri":`+rawjson.Quote(uri)+`}`))
	}
	l.mu.Lock()
	l.server, l.lost = w.up.Server(), nil
	l.mu.Unlock()
	if before != nil {
		l.heard.Reopened(lost != nil)
	}
	if before != nil && lost != nil {
		l.route.log.Warn("connection opened again", "err", lost)
		for _, k := range list.Announced {
			if k.Announces(w.up.Server().Capabilities) {
				l.rest.Notify(jsonrpc.NewNotification(k.Changed(), nil))
			}
		}
		if l.caller.Modern() || l.route.share == ShareAll { // a client without a session cannot know that its subscription was interrupted
			for _, uri := range subs {
				l.rest.Notify(list.Updated(uri))
			}
		}
	}
	return nil
}

// tell makes a call of the bridge's own. A server that refuses what it had
// accepted before is worth a warning and no more.
func (l *lane) tell(ctx context.Context, w *wire, method string, params []byte) {
	a, err := w.raw.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, params), From: l.caller})
	if err == nil && a.Error != nil {
		err = errors.New(string(a.Error))
	}
	if err != nil {
		l.route.log.Warn("could not restore", "method", method, "err", err)
	}
	a.Release()
}

// lose notes that the connection has ended by itself. The caller holds l.mu,
// and calls mourn without it.
func (l *lane) lose(w *wire) {
	now := time.Now()
	switch open := now.Sub(l.began); {
	case w.worked.Load(), open >= stable:
		l.losses = 0
	case forgot(w.gone) && open >= settled: // the server works
	default:
		l.losses++
	}
	l.lost, l.ended = w.gone, now
	l.retireSoon(w)
	l.hold()
}

// hold sees to it that the connection is opened again if it is needed. The
// caller holds l.mu.
func (l *lane) hold() {
	if l.needed() && !l.holding && l.closed == nil && !l.route.o.EndWithServer {
		l.holding = true
		l.wg.Go(l.holdOn)
	}
}

// mourn tells those who have to know that the connection has ended.
func (l *lane) mourn(err error) {
	l.route.log.Warn("connection lost", "err", err) // of one session: it says nothing about others
	l.route.lost(err)
	if l.route.o.EndWithServer {
		l.rest.Gone(err)
	}
}

// givingUp is how long a needed connection is tried for before those who need it
// are told, if they want to know.
const givingUp = 5 * time.Minute

// holdOn opens the connection for the sake of the subscriptions, which are a
// need as a call is. It tries as often as it takes.
func (l *lane) holdOn() {
	began := time.Now()
	for {
		l.mu.Lock()
		if l.wire != nil || !l.needed() || l.closed != nil {
			l.holding = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if _, err := l.enter(l.ctx); err == nil {
			l.leave()
			continue
		}
		if l.give != nil && time.Since(began) >= givingUp {
			l.give()
		}
		l.mu.Lock()
		wait := time.Until(l.nextStart())
		l.mu.Unlock()
		_ = pause.For(l.ctx, max(wait, time.Second, l.gate.Left()))
	}
}

// Gone notes that the connection has ended. The next call opens another one.
func (w *wire) Gone(err error) {
	l := w.l
	l.mu.Lock()
	w.gone = err
	if l.wire != w {
		l.mu.Unlock()
		return // not open yet, or not ours any more: open and retire see to it
	}
	l.wire = nil // so it is not closed: Close takes the wire
	l.lose(w)
	l.mu.Unlock()
	l.mourn(err)
}
