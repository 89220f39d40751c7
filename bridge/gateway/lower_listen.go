package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// watch is a resource that some subscriptions want to hear about: the server is
// told of the first and of the last of them.
type watch struct {
	turn    chan struct{} // held while the server is told: subscribing takes turns
	listens map[*list.Listener]struct{}
	users   int // that hold or wait for turn, or are in listens
}

// maxSubscribing bounds how many resources of one subscription the server is
// told of at once.
const maxSubscribing = 8

var errSubscribing = errors.New("the server did not subscribe in time")

// listen serves a subscription: what changes there are, the connection tells
// (protocol.md D1.6). It lasts until ctx ends or the server is gone for good.
func (l *lower) listen(ctx context.Context, r *bridge.Request, s *legacy) (*jsonrpc.Message, error) {
	wants, fault := list.ReadWanted(r.Whole())
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	end := jsonrpc.NewResult(nil, []byte("{}"))
	ln := list.NewListener(r.Back, list.Wanted{Changes: map[string]bool{}})
	if l.once { // nothing lasts that could tell of changes
		ln.Acknowledge(&ln.Wants)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if _, err := l.lane.enter(ctx); err != nil {
		return nil, err
	}
	l.lane.need(1)
	defer l.lane.need(-1)
	l.lane.leave()
	if now := l.lane.Server(); now != nil {
		s = l.legacy(now)
	}
	for _, k := range list.Announced {
		if wants.Changes[k.Changed()] && k.Announces(s.Capabilities) {
			ln.Wants.Changes[k.Changed()] = true
		}
	}
	l.mu.Lock()
	l.listens[ln] = struct{}{}
	l.mu.Unlock()
	defer l.unlisten(ln)
	if gjson.GetBytes(s.Capabilities, "resources.subscribe").Bool() {
		ln.Wants.URIs = l.watchAll(ctx, ln, wants.URIs)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	what := ln.Wants
	ln.Acknowledge(&what)
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.lost:
	case <-l.ctx.Done():
	}
	return end, nil
}

// watchAll subscribes to resources, and returns those of which the server has
// taken note in time.
func (l *lower) watchAll(ctx context.Context, ln *list.Listener, uris []string) (good []string) {
	short, stop := context.WithTimeoutCause(ctx, ackPatience, errSubscribing)
	defer stop()
	done := make([]bool, len(uris))
	turns := make(chan struct{}, maxSubscribing)
	var wg sync.WaitGroup
	for i, uri := range uris {
		wg.Go(func() {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-short.Done():
				return
			}
			done[i] = l.watch(short, ln, uri)
		})
	}
	wg.Wait()
	for i, uri := range uris {
		if done[i] {
			good = append(good, uri)
		}
	}
	return good
}

// watch subscribes to a resource, of which the server is told if nobody has yet.
func (l *lower) watch(ctx context.Context, ln *list.Listener, uri string) bool {
	w := l.enterWatch(ctx, uri)
	if w == nil {
		return false
	}
	defer l.leaveWatch(uri, w, true)
	l.mu.Lock()
	known := len(w.listens) > 0
	w.listens[ln] = struct{}{} // now: what changes right behind the answer is not to be missed
	l.mu.Unlock()
	if known || l.subscribe(ctx, "resources/subscribe", uri) {
		return true
	}
	l.mu.Lock()
	delete(w.listens, ln)
	l.mu.Unlock()
	if ctx.Err() != nil { // the server may take note of it yet
		l.lane.spawn(func() { l.unwatch(ln, uri) })
	}
	return false
}

func (l *lower) subscribe(ctx context.Context, method, uri string) bool {
	a, err := l.up.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, []byte(`{"uri":`+rawjson.Quote(uri)+`}`)), From: l.lane.caller})
	ok := err == nil && a.Error == nil
	if err == nil {
		a.Release()
	}
	return ok
}

// enterWatch waits for the right to tell the server about a resource; nil when
// ctx ends first.
func (l *lower) enterWatch(ctx context.Context, uri string) *watch {
	l.mu.Lock()
	w := l.watched[uri]
	if w == nil {
		w = &watch{turn: make(chan struct{}, 1), listens: map[*list.Listener]struct{}{}}
		l.watched[uri] = w
	}
	w.users++
	l.mu.Unlock()
	select {
	case w.turn <- struct{}{}:
		return w
	case <-ctx.Done():
		l.leaveWatch(uri, w, false)
		return nil
	}
}

// leaveWatch forgets the resource when nobody is in it.
func (l *lower) leaveWatch(uri string, w *watch, hadTurn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hadTurn {
		<-w.turn
	}
	if w.users--; w.users == 0 && len(w.listens) == 0 && l.watched[uri] == w {
		delete(l.watched, uri)
	}
}

// unlisten ends a subscription. The server is told in the background.
func (l *lower) unlisten(ln *list.Listener) {
	l.mu.Lock()
	delete(l.listens, ln)
	l.mu.Unlock()
	for _, uri := range ln.Wants.URIs {
		l.lane.spawn(func() { l.unwatch(ln, uri) })
	}
}

// unwatch tells the server when nobody wants to hear of the resource any more.
func (l *lower) unwatch(ln *list.Listener, uri string) {
	ctx, stop := context.WithTimeoutCause(l.lane.ctx, ackPatience, errSubscribing)
	defer stop()
	w := l.enterWatch(ctx, uri)
	if w == nil {
		return
	}
	defer l.leaveWatch(uri, w, true)
	l.mu.Lock()
	delete(w.listens, ln)
	last := len(w.listens) == 0
	l.mu.Unlock()
	if last {
		l.subscribe(ctx, "resources/unsubscribe", uri)
	}
}

// changed tells those who listen of a change. Clients use several
// connections at once: a list that changes on one of them may be what any of them
// is given.
func (l *lower) changed(n *jsonrpc.Message) {
	if n.Method == "notifications/tools/list_changed" {
		l.circle.outdated()
	}
	to := map[*list.Listener]struct{}{}
	if n.Method != "notifications/resources/updated" {
		for _, other := range l.p.siblings(l) {
			other.mu.Lock()
			for ln := range other.listens {
				if ln.Wants.Changes[n.Method] {
					to[ln] = struct{}{}
				}
			}
			other.mu.Unlock()
		}
	} else {
		l.mu.Lock()
		for uri, w := range l.watched {
			if within(n.URI(), uri) {
				for ln := range w.listens {
					to[ln] = struct{}{}
				}
			}
		}
		l.mu.Unlock()
	}
	for ln := range to {
		ln.Hear(n)
	}
}

// within reports whether a resource is the one of that URI, or a part of it.
func within(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(whole, "/"))
}
