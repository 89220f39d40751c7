package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// maxListened bounds the resources of one subscription (protocol.md F).
const maxListened = 256

// subscribed is what a client wants to hear about (2026-07-28, subscriptions).
type subscribed struct {
	changes map[string]bool // the list_changed notifications, by method
	uris    []string
}

// flags are the members that ask for list_changed notifications.
var flags = []struct{ member, capability, method string }{
	{"toolsListChanged", "tools", "notifications/tools/list_changed"},
	{"promptsListChanged", "prompts", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "resources", "notifications/resources/list_changed"},
}

// wishes reads what a request to listen asks for. The text says what is wrong
// with it.
func wishes(params []byte) (w subscribed, fault string) {
	all := gjson.GetBytes(params, "notifications")
	if !all.IsObject() {
		return w, "params.notifications must be an object that says what to listen to"
	}
	w.changes = map[string]bool{}
	for _, f := range flags {
		if all.Get(f.member).Bool() {
			w.changes[f.method] = true
		}
	}
	list := all.Get("resourceSubscriptions")
	if list.Exists() && !list.IsArray() {
		return w, "params.notifications.resourceSubscriptions must be an array of URIs"
	}
	seen := map[string]bool{}
	for _, uri := range list.Array() {
		if uri.Type != gjson.String {
			return w, "params.notifications.resourceSubscriptions must be an array of URIs"
		}
		if !seen[uri.Str] {
			seen[uri.Str] = true
			w.uris = append(w.uris, uri.Str)
		}
	}
	if len(w.uris) > maxListened {
		return w, limitText("params.notifications.resourceSubscriptions has too many URIs", maxListened)
	}
	return w, ""
}

// raw returns what is listened to as a request asks for it, and as its
// acknowledgement repeats it.
func (w *subscribed) raw() []byte {
	out := []byte("{}")
	for _, f := range flags {
		if w.changes[f.method] {
			out = put(out, f.member, []byte("true"))
		}
	}
	if len(w.uris) > 0 {
		list := []byte("[")
		for i, uri := range w.uris {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(list, quote(uri)...)
		}
		out = put(out, "resourceSubscriptions", append(list, ']'))
	}
	return out
}

func (w *subscribed) empty() bool { return len(w.changes)+len(w.uris) == 0 }

// listeners are the subscriptions of one principal to all servers as one. They
// are told what belongs to none of the servers: that one has come or gone.
type listeners struct {
	mu  sync.Mutex // guards all
	all map[*listener]struct{}
}

var _ Client = (*listeners)(nil)

// Notify tells those who want to hear it.
func (e *listeners) Notify(n *jsonrpc.Message) {
	e.mu.Lock()
	var to []*listener
	for l := range e.all {
		if l.wants.changes[n.Method] {
			to = append(to, l)
		}
	}
	e.mu.Unlock()
	for _, l := range to {
		l.hear(n)
	}
}

// Ask refuses: there is no call that it could be about.
func (e *listeners) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func() {
	return nobody{}.Ask(q, reply)
}

// Gone is of no interest: those who listen go on.
func (e *listeners) Gone(error) {}

// listener is one subscription to all servers as one.
type listener struct {
	back  Client
	wants subscribed

	mu    sync.Mutex // guards the rest, and the order of what back gets
	begun bool       // it was acknowledged
	early []*jsonrpc.Message
}

// hear passes on a notification, once the subscription was acknowledged
//
func (l *listener) hear(n *jsonrpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.begun:
		l.back.Notify(n)
	case len(l.early) < maxListened+len(flags):
		l.early = append(l.early, n.Clone())
	}
}

// acknowledge says what is listened to, and what has happened meanwhile.
func (l *listener) acknowledge(what *subscribed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back.Notify(jsonrpc.NewNotification("notifications/subscriptions/acknowledged", []byte(`{"notifications":`+string(what.raw())+`}`)))
	for _, n := range l.early {
		l.back.Notify(n)
	}
	l.begun, l.early = true, nil
}

// ackPatience is how long a subscription waits for slow servers before it is
// acknowledged without them.
const ackPatience = 10 * time.Second

// listen serves a subscription: each server is listened to for what it has of
// what is wanted. It lasts until ctx ends.
func (g *merge) listen(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	wants, fault := wishes(r.Params)
	if fault != "" {
		return invalidParams(fault), nil
	}
	l := &listener{back: r.Back, wants: wants}
	g.ears.mu.Lock()
	g.ears.all[l] = struct{}{}
	g.ears.mu.Unlock()
	defer func() {
		g.ears.mu.Lock()
		delete(g.ears.all, l)
		g.ears.mu.Unlock()
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer context.AfterFunc(g.ctx, func() { stop(ErrShutdown) })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop(nil)

	share := g.shares(ctx, &wants)
	heard := make(chan []string, len(share)) // the resources that each server has acknowledged
	for m, part := range share {
		f := &following{l: l, m: m, part: part, from: r.From, heard: heard}
		wg.Go(func() { f.run(ctx) })
	}
	timer := time.NewTimer(ackPatience)
	defer timer.Stop()
	what := subscribed{changes: wants.changes}
	for left := len(share); left > 0; {
		select {
		case uris := <-heard:
			what.uris = append(what.uris, uris...)
			left--
		case <-timer.C:
			left = 0
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	l.acknowledge(&what)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// shares says which server is listened to for what.
func (g *merge) shares(ctx context.Context, wants *subscribed) map[*member]*subscribed {
	all := map[*member]*subscribed{}
	of := func(m *member) *subscribed {
		if all[m] == nil {
			all[m] = &subscribed{changes: map[string]bool{}}
		}
		return all[m]
	}
	for _, f := range flags {
		if !wants.changes[f.method] {
			continue
		}
		for _, m := range g.members {
			if s := m.r.said(); s == nil || gjson.GetBytes(s.Capabilities, f.capability+".listChanged").Bool() {
				of(m).changes[f.method] = true
			}
		}
	}
	for _, uri := range wants.uris {
		m := g.owner(ctx, resources, uri)
		for i := 0; m == nil && i < len(g.members); i++ {
			if g.members[i].catalog.like(uri) {
				m = g.members[i]
			}
		}
		if m != nil {
			of(m).uris = append(of(m).uris, uri)
		}
	}
	return all
}

// following is the part of a subscription that one server has.
type following struct {
	l     *listener
	m     *member
	part  *subscribed
	from  *Caller
	heard chan<- []string
	once  sync.Once
}

var _ Client = (*following)(nil)

// run listens to the server until ctx ends. When the server is lost it is
// listened to again as soon as it is there.
func (f *following) run(ctx context.Context) {
	params := []byte(`{"notifications":` + string(f.part.raw()) + `}`)
	for pause := time.Second; ; pause = min(2*pause, maxBackOff) {
		began := time.Now()
		a, err := f.m.call(ctx, &Request{Message: f.from.request(listen, params), From: f.from, Back: f})
		refused := err == nil && a.Error != nil
		a.Release()
		f.acknowledged(nil) // if it was not: there is nothing to wait for
		if ctx.Err() != nil {
			return
		}
		if refused || errors.Is(err, ErrUnknownServer) {
			f.m.r.log.Debug("it cannot be listened to")
			return
		}
		if time.Since(began) > maxBackOff {
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// acknowledged passes on which resources the server has acknowledged. It
// reports whether that was the first time.
func (f *following) acknowledged(uris []string) (first bool) {
	f.once.Do(func() {
		first = true
		f.heard <- uris
	})
	return first
}

// Notify takes what the server says.
func (f *following) Notify(n *jsonrpc.Message) {
	if n.Method != "notifications/subscriptions/acknowledged" {
		f.m.outdate(n.Method)
		f.l.hear(n)
		return
	}
	var uris []string
	for _, uri := range gjson.GetBytes(n.Params, "notifications.resourceSubscriptions").Array() {
		uris = append(uris, uri.String())
	}
	if f.acknowledged(uris) {
		return
	}
	for _, c := range flags { // something may have been missed
		if f.part.changes[c.method] {
			f.l.hear(jsonrpc.NewNotification(c.method, nil))
		}
	}
	for _, uri := range uris {
		f.l.hear(jsonrpc.NewNotification("notifications/resources/updated", []byte(`{"uri":`+quote(uri)+`}`)).Clone())
	}
}

// Ask refuses: it is no call that anybody could be asked about.
func (f *following) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func() {
	return nobody{}.Ask(q, reply)
}

// Gone is of no interest: the call itself fails.
func (f *following) Gone(error) {}
