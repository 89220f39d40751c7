package lane

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// gatherFor is how long others who want to listen are waited for, before a joint
// subscription is made: they come in crowds.
const gatherFor = 50 * time.Millisecond

// outcome is how a subscription has ended.
type outcome struct {
	m   *jsonrpc.Message
	err error
}

// Limits on what may be asked for where subscriptions are shared.
const (
	maxInterests = 2 * subscribe.MaxSubscriptions // by one
	maxJoint     = 4 << 20                        // by all of a connection, in bytes
)

// joint is the one subscription of all who listen to a modern server over a
// connection where calls have no streams of their own. There are servers that
// keep one subscription for each connection: a newer one takes the place of an
// older one, and the end of any ends all. So there is never a second one. When
// somebody wants to hear of more, the present one is taken back, its end is
// awaited, and another one is made for all. What changes in between, nobody
// hears of: those who listened before are told that something may have changed
//
type joint struct {
	c *conn

	mu      sync.Mutex // guards the rest, and the order of what sharers are told
	sharers map[*sharer]struct{}
	wanted  map[interest]int // how many sharers ask for it
	size    int              // of wanted, in bytes
	now     *joined          // the subscription at the server, or nil
	running bool             // run is
	careful bool             // newcomers are let in one by one: of several at once, some were refused
	silent  bool             // the server did not say that a subscription has ended which was taken back
}

// How long the end of a subscription is waited for that was taken back. A server
// with much to do may need seconds for it, and would take the end for that of the
// next subscription. One that never says it is not waited for so long again.
const (
	endsWithin = 5 * time.Second
	silentFor  = time.Second
)

// sharer is a subscription of a client, which is a part of the joint one.
type sharer struct {
	r     bridge.Request // outlives the call
	asks  map[interest]struct{}
	uris  []string     // of asks
	other bool         // it asks for something that we do not know
	in    *joined      // what it is a part of, or nil
	begun bool         // it was acknowledged
	end   chan outcome // takes one: how it has ended
}

// joined is one joint subscription at the server, and the Client of its request.
type joined struct {
	bridge.Nobody
	j     *joint
	asked map[interest]struct{}
	only  *sharer // whose request it is, as it came; nil when it is made for several
	stop  context.CancelCauseFunc
	ack   *jsonrpc.Message      // nil until the server has acknowledged it
	had   map[interest]struct{} // what it has acknowledged
	over  bool                  // it was taken back
	timer *time.Timer           // until it is taken back for a larger one; nil when nobody waits for that
}

var _ bridge.Client = (*joined)(nil)

// interest is one thing that a filter asks for: an item of a member that is a list of
// texts, or the raw value of another member.
type interest struct {
	member, what string
	item         bool
}

// size is about what it takes in memory.
func (a *interest) size() int { return len(a.member) + len(a.what) + 64 }

// asksOf reads a filter. The server is left to judge what is not as it has to be.
func asksOf(filter gjson.Result) map[interest]struct{} {
	all := map[interest]struct{}{}
	filter.ForEach(func(name, value gjson.Result) bool {
		items := value.Array()
		switch {
		case value.Type == gjson.False, value.Type == gjson.Null:
		case value.IsArray() && !slices.ContainsFunc(items, func(v gjson.Result) bool { return v.Type != gjson.String }):
			for _, item := range items {
				all[interest{name.Str, item.Str, true}] = struct{}{}
			}
		default:
			all[interest{name.Str, value.Raw, false}] = struct{}{}
		}
		return true
	})
	return all
}

// filterOf makes a filter. Of values that cannot be joined, the proper one is
// taken.
func filterOf(asks iter.Seq[interest]) []byte {
	lists, members := map[string][]string{}, map[string]string{}
	for a := range asks {
		switch {
		case a.item:
			lists[a.member] = append(lists[a.member], rawjson.Quote(a.what))
		case members[a.member] == "" || a.what == "true":
			members[a.member] = a.what
		}
	}
	for member, items := range lists {
		slices.Sort(items)
		members[member] = "[" + strings.Join(items, ",") + "]"
	}
	out := []byte{'{'}
	for i, member := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, rawjson.Quote(member)...), ':'), members[member]...)
	}
	return append(out, '}')
}

func newSharer(r *bridge.Request) *sharer {
	p := &sharer{r: *r, end: make(chan outcome, 1)}
	p.r.Message = r.Clone()
	p.asks = asksOf(gjson.GetBytes(p.r.Params, "notifications"))
	for a := range p.asks {
		switch a.member {
		case "toolsListChanged", "promptsListChanged", "resourcesListChanged", "taskIds":
		case "resourceSubscriptions":
			if a.item {
				p.uris = append(p.uris, a.what)
			}
		default:
			p.other = true
		}
	}
	slices.Sort(p.uris)
	return p
}

// wants reports whether a notification is surely for the sharer, and whether it
// may be when it is for nobody surely.
func (p *sharer) wants(n *jsonrpc.Message) (surely, maybe bool) {
	switch n.Method {
	case "notifications/resources/updated": // the URI may be written otherwise
		return slices.ContainsFunc(p.uris, func(uri string) bool { return subscribe.Within(n.URI(), uri) }), len(p.uris) > 0
	case "notifications/tasks":
		_, surely = p.asks[interest{"taskIds", gjson.GetBytes(n.Params, "taskId").Str, true}]
		return surely, false
	case "notifications/message", "notifications/progress":
		return false, false
	}
	for _, k := range list.Announced {
		if k.Changed() == n.Method {
			_, surely = p.asks[interest{k.Interest(), "true", false}]
			return surely, false
		}
	}
	return p.other, true
}

// listen makes the call of a subscription as a part of the joint one.
func (j *joint) listen(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if !gjson.GetBytes(r.Whole(), "notifications").IsObject() {
		return jsonrpc.InvalidParams("params.notifications must be an object that says what to listen to"), nil
	}
	p := newSharer(r)
	if len(p.asks) > maxInterests {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("params.notifications asks for too much", maxInterests), nil), nil
	}
	if no, err := j.join(p); no != nil || err != nil {
		return no, err
	}
	select {
	case o := <-p.end:
		return o.m, o.err
	case <-ctx.Done():
		j.leave(p)
		return nil, context.Cause(ctx)
	}
}

// join adds a sharer, or says why it cannot.
func (j *joint) join(p *sharer) (no *jsonrpc.Message, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.running {
		if j.running = j.c.l.Go(j.run); !j.running {
			return nil, bridge.ErrShutdown
		}
	}
	j.add(p)
	if len(j.sharers) > 1 && j.size > maxJoint {
		j.remove(p)
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("all subscriptions over one connection to the server ask for too much: they have too many bytes", maxJoint), nil), nil
	}
	switch n := j.now; {
	case n == nil || n.over:
	case n.covers(p):
		if p.in = n; n.ack != nil {
			n.begin(p)
		}
	case n.ack != nil:
		n.outgrown()
	}
	return nil, nil
}

// leave ends a sharer, who is told nothing from then on.
func (j *joint) leave(p *sharer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.remove(p); len(j.sharers) == 0 && j.now != nil {
		j.now.takeBack()
	}
}

// add is remove's opposite. The caller holds j.mu.
func (j *joint) add(p *sharer) {
	j.sharers[p] = struct{}{}
	for a := range p.asks {
		if j.wanted[a]++; j.wanted[a] == 1 {
			j.size += a.size()
		}
	}
}

// remove forgets a sharer, if that has not happened. The caller holds j.mu.
func (j *joint) remove(p *sharer) {
	if _, in := j.sharers[p]; !in {
		return
	}
	delete(j.sharers, p)
	for a := range p.asks {
		if j.wanted[a]--; j.wanted[a] == 0 {
			delete(j.wanted, a)
			j.size -= a.size()
		}
	}
}

// run makes one subscription after the other, for as long as there are sharers.
func (j *joint) run(context.Context) {
	for {
		n, r, ctx := j.next()
		if n == nil {
			return
		}
		a, err := j.c.l.subscription(ctx, j.c, r)
		n.stop(nil)
		j.ended(n, a, err)
	}
}

// next begins another subscription, or returns nil when nobody wants any.
func (j *joint) next() (*joined, *bridge.Request, context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := &joined{j: j, asked: map[interest]struct{}{}}
	var one *sharer // whose request it is made of
	parts, waiting := 0, 0
	for p := range j.sharers {
		switch {
		case p.begun:
		case j.careful && waiting > 0:
			continue
		default:
			waiting++
		}
		if one == nil || !p.begun {
			one = p
		}
		p.in = n
		maps.Copy(n.asked, p.asks)
		parts++
	}
	if one == nil {
		j.running = false
		return nil, nil, nil
	}
	j.careful = j.careful && waiting > 0
	r := &bridge.Request{Message: one.r.Message, From: one.r.From, Header: one.r.Header, Identity: one.r.Identity, Back: n, Awaited: min(endsWithin, j.c.l.o.Handshake/2)}
	if j.silent {
		r.Awaited = silentFor
	}
	if n.only = one; parts > 1 {
		n.only = nil
		r.Message = jsonrpc.NewRequest(era.Listen, rawjson.Set(one.r.Params, "notifications", filterOf(maps.Keys(n.asked))))
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancelCause(context.Background()) // it is no one client's
	j.now = n
	return n, r, ctx
}

// ended sees to those whose subscription has ended at the server.
func (j *joint) ended(n *joined, a *jsonrpc.Message, err error) {
	defer a.Release()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now = nil
	if n.timer != nil {
		n.timer.Stop()
	}
	var all, waiting []*sharer
	for p := range j.sharers {
		if p.in != n {
			continue
		}
		p.in = nil
		if all = append(all, p); !p.begun {
			waiting = append(waiting, p)
		}
	}
	refused := errors.Is(err, bridge.ErrRejected) || err == nil && a.Error != nil
	switch {
	case n.over: // by us: another one follows, if anybody is left
		if n.ack != nil { // otherwise it need not have been asked for
			j.silent = err != nil
		}
		return
	case refused && len(waiting) > 1: // it need not be for the sake of all of them
		j.careful = true
		return
	case refused && len(waiting) > 0: // those before listen on without
		all = waiting
	}
	for _, p := range all {
		j.remove(p)
		switch {
		case err == nil:
			p.end <- outcome{m: a.Clone()}
		case p.begun && errors.Is(err, bridge.ErrUnsent): // but the one before was
			p.end <- outcome{err: &bridge.Error{Server: j.c.l.o.Name, Kind: bridge.ErrLost, Public: "its connection has ended"}}
		default:
			p.end <- outcome{err: err}
		}
	}
}

// covers reports whether there is no need to ask the server for the sake of a
// sharer. What it did not honour of lists is asked for again; what it honours of
// the rest does not change.
func (n *joined) covers(p *sharer) bool {
	for a := range p.asks {
		known := n.asked
		if a.item && n.ack != nil {
			known = n.had
		}
		if _, in := known[a]; !in {
			return false
		}
	}
	return true
}

// outgrown has the subscription replaced by a larger one soon: those who listen
// come in crowds. The caller holds j.mu.
func (n *joined) outgrown() {
	if n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(gatherFor, func() {
		n.j.mu.Lock()
		defer n.j.mu.Unlock()
		if n.timer = nil; n.j.now == n && n.j.waits() {
			n.takeBack()
		}
	})
}

// waits reports whether a sharer waits for the next subscription. The caller
// holds j.mu.
func (j *joint) waits() bool {
	for p := range j.sharers {
		if p.in == nil {
			return true
		}
	}
	return false
}

// takeBack ends the subscription at the server. The caller holds j.mu.
func (n *joined) takeBack() {
	n.over = true
	n.stop(bridge.ErrCancelled)
}

// Notify takes what the server says. Each sharer is told what he has asked for.
func (n *joined) Notify(m *jsonrpc.Message) {
	n.j.mu.Lock()
	defer n.j.mu.Unlock()
	if m.Method == era.Acknowledged {
		n.acknowledged(m)
		return
	}
	var sure, maybe []*sharer
	for p := range n.j.sharers {
		if p.in != n {
			continue
		}
		switch surely, may := p.wants(m); {
		case surely:
			sure = append(sure, p)
		case may:
			maybe = append(maybe, p)
		}
	}
	if len(sure) == 0 && !n.knows(m) {
		sure = maybe
	}
	for _, p := range sure {
		p.r.Back.Notify(m)
	}
}

// knows reports whether a notification is about a resource that was asked for,
// perhaps by somebody who has left. The caller holds j.mu.
func (n *joined) knows(m *jsonrpc.Message) bool {
	for a := range n.asked {
		if a.member == "resourceSubscriptions" && a.item && subscribe.Within(m.URI(), a.what) {
			return true
		}
	}
	return false
}

// acknowledged notes that the subscription has begun. The caller holds j.mu.
func (n *joined) acknowledged(m *jsonrpc.Message) {
	if n.ack != nil {
		return
	}
	n.ack = m.Clone()
	n.had = asksOf(gjson.GetBytes(n.ack.Params, "notifications"))
	maps.DeleteFunc(n.had, func(a interest, _ struct{}) bool {
		_, asked := n.asked[a]
		return !asked
	})
	for p := range n.j.sharers {
		switch {
		case p.in != n:
		case p.begun:
			n.missed(p)
		default:
			n.begin(p)
		}
	}
	if n.j.waits() {
		n.outgrown()
	}
}

// begin acknowledges a sharer's subscription. The caller holds j.mu.
func (n *joined) begin(p *sharer) {
	p.begun = true
	if p == n.only {
		p.r.Back.Notify(n.ack)
		return
	}
	had := maps.Clone(p.asks)
	maps.DeleteFunc(had, func(a interest, _ struct{}) bool { return !n.honours(a) })
	p.r.Back.Notify(jsonrpc.NewNotification(era.Acknowledged, rawjson.Set(n.ack.Params, "notifications", filterOf(maps.Keys(had)))).Clone())
}

// honours reports whether the server has acknowledged something that was asked
// for.
func (n *joined) honours(a interest) bool {
	_, ok := n.had[a]
	return ok
}

// missed tells a sharer what may have changed while there was no subscription.
// The caller holds j.mu.
func (n *joined) missed(p *sharer) {
	for _, k := range list.Announced {
		a := interest{k.Interest(), "true", false}
		if _, asked := p.asks[a]; asked && n.honours(a) {
			p.r.Back.Notify(jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
	for _, uri := range p.uris {
		if n.honours(interest{"resourceSubscriptions", uri, true}) {
			p.r.Back.Notify(subscribe.Updated(uri))
		}
	}
}
