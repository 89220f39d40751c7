package lower

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// maxSubscribing bounds the concurrent resources/subscribe requests of one subscription.
const maxSubscribing = 8

// subscribePatience is how long a server gets to subscribe to resources. After that the subscription is
// acknowledged without them.
const subscribePatience = 10 * time.Second

var errSubscribing = errors.New("the server did not subscribe in time")

// listen serves a subscription from the connection's notifications (protocol.md D1.6). The subscription lasts until
// ctx ends or the server is gone for good.
func (t *Translator) listen(ctx context.Context, r *bridge.Request, l *legacy) (*jsonrpc.Message, error) {
	wants, fault := subscribe.ReadWanted(r.Whole())
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	end := jsonrpc.NewResult(nil, []byte("{}"))
	ln := subscribe.NewListener(r.Back, subscribe.Wanted{Changes: map[string]bool{}})
	if t.of.Once { // no connection lasts long enough to report changes
		ln.Acknowledge(&ln.Wants)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	release, err := t.line.Keep(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if now := t.line.Server(); now != nil {
		l = t.legacy(now)
	}
	for _, k := range list.Announced {
		if wants.Changes[k.Changed()] && k.Announces(l.Capabilities) {
			ln.Wants.Changes[k.Changed()] = true
		}
	}
	t.s.listen(t.of.Group, ln)
	defer t.unlisten(ln)
	if gjson.GetBytes(l.Capabilities, "resources.subscribe").Bool() {
		ln.Wants.URIs = t.watchAll(ctx, ln, wants.URIs)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	what := ln.Wants
	ln.Acknowledge(&what)
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.lost.Done():
	case <-t.ctx.Done():
	}
	return end, nil
}

// listen adds a subscription of a group.
func (s *Server) listen(group string, ln *subscribe.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listens[group] == nil {
		s.listens[group] = map[*subscribe.Listener]struct{}{}
	}
	s.listens[group][ln] = struct{}{}
}

func (s *Server) unlisten(group string, ln *subscribe.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.listens[group], ln); len(s.listens[group]) == 0 {
		delete(s.listens, group)
	}
}

// watchAll subscribes to resources, and returns the resources that the server accepted in time.
func (t *Translator) watchAll(ctx context.Context, ln *subscribe.Listener, uris []string) (good []string) {
	short, stop := context.WithTimeoutCause(ctx, subscribePatience, errSubscribing)
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
			done[i] = t.watch(short, ln, uri)
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

// watch subscribes to a resource. The server gets a request only for the first subscriber.
func (t *Translator) watch(ctx context.Context, ln *subscribe.Listener, uri string) bool {
	return t.watched.Add(ctx, uri, ln, func() bool {
		ok := t.subscribe(ctx, "resources/subscribe", uri)
		if !ok && ctx.Err() != nil { // the server may still accept the subscription
			t.line.Go(func(ctx context.Context) { t.unwatch(ctx, ln, uri) })
		}
		return ok
	})
}

func (t *Translator) subscribe(ctx context.Context, method, uri string) bool {
	m, err := t.line.Call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(method, subscribe.Params(uri)), From: t.line.Caller()})
	defer m.Release()
	return err == nil && m.Error == nil
}

// unlisten ends a subscription. The server's requests follow in the background.
func (t *Translator) unlisten(ln *subscribe.Listener) {
	t.s.unlisten(t.of.Group, ln)
	for _, uri := range ln.Wants.URIs {
		t.line.Go(func(ctx context.Context) { t.unwatch(ctx, ln, uri) })
	}
}

// unwatch ends the subscription to a resource at the server if no other subscriber is left.
func (t *Translator) unwatch(ctx context.Context, ln *subscribe.Listener, uri string) {
	ctx, stop := context.WithTimeoutCause(ctx, subscribePatience, errSubscribing)
	defer stop()
	t.watched.Remove(ctx, uri, ln, func() { t.subscribe(ctx, "resources/unsubscribe", uri) })
}

// changed passes a change to its subscriptions. A change of a list reaches all connections of the group,
// because any of them may serve the group's clients.
func (t *Translator) changed(m *jsonrpc.Message) {
	if m.Method == "notifications/tools/list_changed" {
		t.of.Tools.Outdated()
	}
	to := map[*subscribe.Listener]struct{}{}
	if m.Method != "notifications/resources/updated" {
		t.s.mu.Lock()
		for ln := range t.s.listens[t.of.Group] {
			if ln.Wants.Changes[m.Method] {
				to[ln] = struct{}{}
			}
		}
		t.s.mu.Unlock()
	} else {
		t.watched.Of(m.URI(), func(ln *subscribe.Listener) { to[ln] = struct{}{} })
	}
	for ln := range to {
		ln.Notify(m)
	}
}
