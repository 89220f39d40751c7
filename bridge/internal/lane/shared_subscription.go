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

// gatherFor is the time before a larger attempt replaces the current attempt: subscribers often come together.
const gatherFor = 50 * time.Millisecond

// outcome is the result of a subscription.
type outcome struct {
	m   *jsonrpc.Message
	err error
}

// These limits bound shared subscriptions.
const (
	maxTopics      = 2 * subscribe.MaxSubscriptions // topics of one subscriber
	maxFilterBytes = 4 << 20                        // the topics of all subscribers of a connection, in bytes
)

// sharedSubscription is the only subscription at a modern server over a connection whose calls have no streams of
// their own. There is never a second subscription, because some servers have only one for each connection: a new one
// replaces the old one, and the end of either ends both. When a subscriber needs more topics, the bridge cancels the
// current attempt, awaits its end, and requests all topics in another attempt. It notifies earlier subscribers of
// everything that may have changed in between.
type sharedSubscription struct {
	c *conn

	mu          sync.Mutex // guards the rest, and the order of notifications
	subscribers map[*subscriber]struct{}
	topics      map[topic]int // counts the subscribers of each topic
	size        int           // of topics, in bytes
	current     *attempt      // the attempt in flight, or nil
	running     bool          // a goroutine executes run
	oneByOne    bool          // run adds one subscriber for each attempt, because the server rejected several at once
	unconfirmed bool          // the server did not confirm the end of a cancelled subscription
}

// These constants bound the wait for the end of a cancelled attempt, before the next one begins. A busy server may
// need seconds to read the cancellation; otherwise it might end the next subscription. A server that did not confirm
// the last end gets the shorter time.
const (
	endTimeout      = 5 * time.Second
	shortEndTimeout = time.Second
)

// subscriber is a client's part of the shared subscription.
type subscriber struct {
	r            bridge.Request // outlives the call
	topics       map[topic]struct{}
	uris         []string     // the resource URIs among topics
	other        bool         // some topics are unknown to the bridge
	in           *attempt     // the attempt that requests its topics, or nil
	acknowledged bool         // the client got its acknowledgement
	end          chan outcome // gets one result
}

// attempt is one request for the shared subscription, and the Client of that request.
type attempt struct {
	bridge.Nobody
	j         *sharedSubscription
	topics    map[topic]struct{}
	only      *subscriber // the only subscriber, whose request is sent unchanged; nil if there are several
	stop      context.CancelCauseFunc
	ack       *jsonrpc.Message   // the server's acknowledgement; nil until it arrives
	granted   map[topic]struct{} // topics that the server acknowledged
	cancelled bool               // cancelled by the bridge
	timer     *time.Timer        // until a larger attempt replaces this attempt; nil if no larger one is needed
}

var _ bridge.Client = (*attempt)(nil)

// topic is one entry of a filter: an item of a string list, or the raw value of another member.
type topic struct {
	member, value string
	item          bool
}

// size returns the approximate size in memory, in bytes.
func (t *topic) size() int { return len(t.member) + len(t.value) + 64 }

// parseFilter returns the topics of a filter. Malformed members stay as they are: the server decides about them.
func parseFilter(filter gjson.Result) map[topic]struct{} {
	all := map[topic]struct{}{}
	filter.ForEach(func(name, value gjson.Result) bool {
		items := value.Array()
		switch {
		case value.Type == gjson.False, value.Type == gjson.Null:
		case value.IsArray() && !slices.ContainsFunc(items, func(v gjson.Result) bool { return v.Type != gjson.String }):
			for _, item := range items {
				all[topic{name.Str, item.Str, true}] = struct{}{}
			}
		default:
			all[topic{name.Str, value.Raw, false}] = struct{}{}
		}
		return true
	})
	return all
}

// formatFilter returns the filter of topics. If topics have different values for a member, true wins.
func formatFilter(asks iter.Seq[topic]) []byte {
	lists, members := map[string][]string{}, map[string]string{}
	for t := range asks {
		switch {
		case t.item:
			lists[t.member] = append(lists[t.member], rawjson.Quote(t.value))
		case members[t.member] == "" || t.value == "true":
			members[t.member] = t.value
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

func newSubscriber(r *bridge.Request) *subscriber {
	s := &subscriber{r: *r, end: make(chan outcome, 1)}
	s.r.Message = r.Clone()
	s.topics = parseFilter(gjson.GetBytes(s.r.Params, "notifications"))
	for t := range s.topics {
		switch t.member {
		case "toolsListChanged", "promptsListChanged", "resourcesListChanged", "taskIds":
		case "resourceSubscriptions":
			if t.item {
				s.uris = append(s.uris, t.value)
			}
		default:
			s.other = true
		}
	}
	slices.Sort(s.uris)
	return s
}

// wants reports whether the notification is surely for the subscriber. maybe says that the notification is for the
// subscriber if it is surely for no other subscriber.
func (s *subscriber) wants(m *jsonrpc.Message) (surely, maybe bool) {
	switch m.Method {
	case "notifications/resources/updated": // servers may write the URI differently
		return slices.ContainsFunc(s.uris, func(uri string) bool { return subscribe.Within(m.URI(), uri) }), len(s.uris) > 0
	case "notifications/tasks":
		_, surely = s.topics[topic{"taskIds", gjson.GetBytes(m.Params, "taskId").Str, true}]
		return surely, false
	case "notifications/message", "notifications/progress":
		return false, false
	}
	for _, k := range list.Announced {
		if k.Changed() == m.Method {
			_, surely = s.topics[topic{k.Topic(), "true", false}]
			return surely, false
		}
	}
	return s.other, true
}

// listen serves a client's subscription as a part of the shared subscription.
func (s *sharedSubscription) listen(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if !gjson.GetBytes(r.Whole(), "notifications").IsObject() {
		return jsonrpc.InvalidParams("params.notifications must be an object"), nil
	}
	p := newSubscriber(r)
	if len(p.topics) > maxTopics {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("params.notifications has too many entries", maxTopics), nil), nil
	}
	if no, err := s.join(p); no != nil || err != nil {
		return no, err
	}
	select {
	case o := <-p.end:
		return o.m, o.err
	case <-ctx.Done():
		s.leave(p)
		return nil, context.Cause(ctx)
	}
}

// join adds a subscriber, or returns the error for it.
func (s *sharedSubscription) join(p *subscriber) (no *jsonrpc.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		if s.running = s.c.l.Go(s.run); !s.running {
			return nil, bridge.ErrShutdown
		}
	}
	s.add(p)
	if len(s.subscribers) > 1 && s.size > maxFilterBytes {
		s.remove(p)
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("the subscriptions over one connection to the server have too many bytes together", maxFilterBytes), nil), nil
	}
	switch a := s.current; {
	case a == nil || a.cancelled:
	case a.covers(p):
		if p.in = a; a.ack != nil {
			a.acknowledge(p)
		}
	case a.ack != nil:
		a.replaceSoon()
	}
	return nil, nil
}

// leave removes a subscriber. After that, nothing is sent to the subscriber.
func (s *sharedSubscription) leave(p *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remove(p); len(s.subscribers) == 0 && s.current != nil {
		s.current.cancel()
	}
}

// add adds a subscriber. The caller holds s.mu.
func (s *sharedSubscription) add(p *subscriber) {
	s.subscribers[p] = struct{}{}
	for t := range p.topics {
		if s.topics[t]++; s.topics[t] == 1 {
			s.size += t.size()
		}
	}
}

// remove removes a subscriber, if it is still there. The caller holds s.mu.
func (s *sharedSubscription) remove(p *subscriber) {
	if _, in := s.subscribers[p]; !in {
		return
	}
	delete(s.subscribers, p)
	for t := range p.topics {
		if s.topics[t]--; s.topics[t] == 0 {
			delete(s.topics, t)
			s.size -= t.size()
		}
	}
}

// run makes one attempt after the other until there is no subscriber left.
func (s *sharedSubscription) run(context.Context) {
	for {
		a, r, ctx := s.next()
		if a == nil {
			return
		}
		m, err := s.c.l.subscription(ctx, s.c, r)
		a.stop(nil)
		s.ended(a, m, err)
	}
}

// next returns the next attempt, or nil if there is no subscriber.
func (s *sharedSubscription) next() (*attempt, *bridge.Request, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &attempt{j: s, topics: map[topic]struct{}{}}
	var one *subscriber // the subscriber whose request is the model
	parts, waiting := 0, 0
	for p := range s.subscribers {
		switch {
		case p.acknowledged:
		case s.oneByOne && waiting > 0:
			continue
		default:
			waiting++
		}
		if one == nil || !p.acknowledged {
			one = p
		}
		p.in = a
		maps.Copy(a.topics, p.topics)
		parts++
	}
	if one == nil {
		s.running = false
		return nil, nil, nil
	}
	s.oneByOne = s.oneByOne && waiting > 0
	r := &bridge.Request{
		Message:  one.r.Message,
		From:     one.r.From,
		Header:   one.r.Header,
		Identity: one.r.Identity,
		Back:     a,
		Awaited:  min(endTimeout, s.c.l.o.Handshake/2),
	}
	if s.unconfirmed {
		r.Awaited = shortEndTimeout
	}
	if a.only = one; parts > 1 {
		a.only = nil
		r.Message = jsonrpc.NewRequest(era.Listen, rawjson.Set(one.r.Params, "notifications", formatFilter(maps.Keys(a.topics))))
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancelCause(context.Background()) // the attempt belongs to no single client
	s.current = a
	return a, r, ctx
}

// ended settles the subscribers of an attempt that has ended.
func (s *sharedSubscription) ended(a *attempt, m *jsonrpc.Message, err error) {
	defer m.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	if a.timer != nil {
		a.timer.Stop()
	}
	var all, waiting []*subscriber
	for p := range s.subscribers {
		if p.in != a {
			continue
		}
		p.in = nil
		if all = append(all, p); !p.acknowledged {
			waiting = append(waiting, p)
		}
	}
	refused := errors.Is(err, bridge.ErrRejected) || err == nil && m.Error != nil
	switch {
	case a.cancelled: // the next attempt follows, if there are subscribers
		if a.ack != nil { // otherwise the request may not have been sent
			s.unconfirmed = err != nil
		}
		return
	case refused && len(waiting) > 1: // perhaps only one subscriber was the reason
		s.oneByOne = true
		return
	case refused && len(waiting) > 0: // earlier subscribers go on without them
		all = waiting
	}
	for _, p := range all {
		s.remove(p)
		switch {
		case err == nil:
			p.end <- outcome{m: m.Clone()}
		case p.acknowledged && errors.Is(err, bridge.ErrUnsent): // the last attempt was not sent, but one before it was
			p.end <- outcome{err: &bridge.Error{
				Server: s.c.l.o.Name,
				Kind:   bridge.ErrLost,
				Public: "its connection has ended",
			}}
		default:
			p.end <- outcome{err: err}
		}
	}
}

// covers reports whether the attempt has all topics of the subscriber. After the acknowledgement, list items that the
// server did not acknowledge are missing: another attempt requests them again. Other members never change.
func (a *attempt) covers(s *subscriber) bool {
	for topic := range s.topics {
		known := a.topics
		if topic.item && a.ack != nil {
			known = a.granted
		}
		if _, in := known[topic]; !in {
			return false
		}
	}
	return true
}

// replaceSoon cancels the attempt after gatherFor, to make a larger attempt. The caller holds a.j.mu.
func (a *attempt) replaceSoon() {
	if a.timer != nil {
		return
	}
	a.timer = time.AfterFunc(gatherFor, func() {
		a.j.mu.Lock()
		defer a.j.mu.Unlock()
		if a.timer = nil; a.j.current == a && a.j.waits() {
			a.cancel()
		}
	})
}

// waits reports whether a subscriber waits for the next attempt. The caller holds s.mu.
func (s *sharedSubscription) waits() bool {
	for p := range s.subscribers {
		if p.in == nil {
			return true
		}
	}
	return false
}

// cancel ends the attempt at the server. The caller holds a.j.mu.
func (a *attempt) cancel() {
	a.cancelled = true
	a.stop(bridge.ErrCancelled)
}

// Notify passes a notification to the subscribers of its topic.
func (a *attempt) Notify(m *jsonrpc.Message) {
	a.j.mu.Lock()
	defer a.j.mu.Unlock()
	if m.Method == era.Acknowledged {
		a.acknowledged(m)
		return
	}
	var sure, maybe []*subscriber
	for s := range a.j.subscribers {
		if s.in != a {
			continue
		}
		switch surely, may := s.wants(m); {
		case surely:
			sure = append(sure, s)
		case may:
			maybe = append(maybe, s)
		}
	}
	if len(sure) == 0 && !a.knows(m) {
		sure = maybe
	}
	for _, s := range sure {
		s.r.Back.Notify(m)
	}
}

// knows reports whether a notification is about a resource of the attempt, perhaps for a subscriber that has
// left. The caller holds a.j.mu.
func (a *attempt) knows(m *jsonrpc.Message) bool {
	for topic := range a.topics {
		if topic.member == "resourceSubscriptions" && topic.item && subscribe.Within(m.URI(), topic.value) {
			return true
		}
	}
	return false
}

// acknowledged stores the server's acknowledgement and passes it on. The caller holds a.j.mu.
func (a *attempt) acknowledged(m *jsonrpc.Message) {
	if a.ack != nil {
		return
	}
	a.ack = m.Clone()
	a.granted = parseFilter(gjson.GetBytes(a.ack.Params, "notifications"))
	maps.DeleteFunc(a.granted, func(one topic, _ struct{}) bool {
		_, asked := a.topics[one]
		return !asked
	})
	for s := range a.j.subscribers {
		switch {
		case s.in != a:
		case s.acknowledged:
			a.notifyMissed(s)
		default:
			a.acknowledge(s)
		}
	}
	if a.j.waits() {
		a.replaceSoon()
	}
}

// acknowledge acknowledges a client's subscription. The caller holds a.j.mu.
func (a *attempt) acknowledge(s *subscriber) {
	s.acknowledged = true
	if s == a.only {
		s.r.Back.Notify(a.ack)
		return
	}
	had := maps.Clone(s.topics)
	maps.DeleteFunc(had, func(one topic, _ struct{}) bool { return !a.grants(one) })
	s.r.Back.Notify(jsonrpc.NewNotification(era.Acknowledged, rawjson.Set(a.ack.Params, "notifications", formatFilter(maps.Keys(had)))).Clone())
}

// grants reports whether the server acknowledged the topic.
func (a *attempt) grants(one topic) bool {
	_, ok := a.granted[one]
	return ok
}

// notifyMissed notifies a subscriber of possible changes between two attempts. The caller holds a.j.mu.
func (a *attempt) notifyMissed(s *subscriber) {
	for _, k := range list.Announced {
		one := topic{k.Topic(), "true", false}
		if _, asked := s.topics[one]; asked && a.grants(one) {
			s.r.Back.Notify(jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
	for _, uri := range s.uris {
		if a.grants(topic{"resourceSubscriptions", uri, true}) {
			s.r.Back.Notify(subscribe.Updated(uri))
		}
	}
}
