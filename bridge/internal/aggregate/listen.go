package aggregate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// listeners holds the subscriptions of one principal to the aggregate. Notify passes on the changes that the
// aggregate itself announces, such as a server that came or went.
type listeners struct {
	bridge.Nobody
	mu  sync.Mutex // guards all
	all map[*subscribe.Listener]struct{}
}

var _ bridge.Client = (*listeners)(nil)

// Notify passes m to each subscription that includes it.
func (l *listeners) Notify(m *jsonrpc.Message) {
	l.mu.Lock()
	var to []*subscribe.Listener
	for listener := range l.all {
		if listener.Wants.Changes[m.Method] {
			to = append(to, listener)
		}
	}
	l.mu.Unlock()
	for _, one := range to {
		one.Notify(m)
	}
}

// ackPatience bounds how long the acknowledgement of a subscription waits for slow servers.
const ackPatience = 10 * time.Second

// maxPause is the longest pause between two attempts to subscribe at a server.
const maxPause = time.Minute

// listen serves a subscription until ctx ends. listen subscribes at each server for the server's share of the
// client's subscription.
func (s *session) listen(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	wants, fault := subscribe.ReadWanted(r.Params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	l := subscribe.NewListener(r.Back, wants)
	s.listeners.mu.Lock()
	s.listeners.all[l] = struct{}{}
	s.listeners.mu.Unlock()
	defer func() {
		s.listeners.mu.Lock()
		delete(s.listeners.all, l)
		s.listeners.mu.Unlock()
	}()
	ctx, stop := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.ctx, func() { stop(bridge.ErrShutdown) })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop(nil)

	now := s.current.Load()
	followed := map[*member]context.CancelFunc{}
	follow := func() (acks chan subscribe.Wanted) { // acks gets the acknowledgements of the servers
		share := s.shares(ctx, &wants)
		acks = make(chan subscribe.Wanted, len(share))
		for m, part := range share {
			if followed[m] != nil {
				continue
			}
			p := &partial{
				l:    l,
				m:    m,
				part: part,
				from: r.From,
				acks: acks,
			}
			ctx, stop := context.WithCancel(ctx)
			followed[m] = stop
			wg.Go(func() { p.run(ctx) })
		}
		return acks
	}
	acks := follow()
	timer := time.NewTimer(ackPatience)
	defer timer.Stop()
	what := subscribe.Wanted{Changes: wants.Changes}
	for left := cap(acks); left > 0; {
		select {
		case had := <-acks:
			what.URIs, what.Tasks = append(what.URIs, had.URIs...), append(what.Tasks, had.Tasks...)
			left--
		case <-timer.C:
			left = 0
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	l.Acknowledge(&what)
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-now.next: // servers came or went
		}
		now = s.current.Load()
		for m, stop := range followed {
			if now.of[m.s] != m {
				stop()
				delete(followed, m)
			}
		}
		follow()
	}
}

// shares splits wants by server.
func (s *session) shares(ctx context.Context, wants *subscribe.Wanted) map[*member]*subscribe.Wanted {
	all := map[*member]*subscribe.Wanted{}
	of := func(m *member) *subscribe.Wanted {
		if all[m] == nil {
			all[m] = &subscribe.Wanted{Changes: map[string]bool{}}
		}
		return all[m]
	}
	for _, k := range list.Announced {
		if !wants.Changes[k.Changed()] {
			continue
		}
		for _, m := range s.members() {
			if one := m.greeting(); one == nil || k.Announces(one.Capabilities) {
				of(m).Changes[k.Changed()] = true
			}
		}
	}
	for _, uri := range wants.URIs {
		if m := s.likelyOwner(ctx, uri); m != nil {
			of(m).URIs = append(of(m).URIs, uri)
		}
	}
	for _, id := range wants.Tasks {
		if m, own := s.ofTask(id); m != nil {
			of(m).Tasks = append(of(m).Tasks, own)
		}
	}
	return all
}

// partial is the share of a subscription that goes to one server.
type partial struct {
	bridge.Nobody
	l     *subscribe.Listener
	m     *member
	part  *subscribe.Wanted
	from  *bridge.Caller
	acks  chan<- subscribe.Wanted
	once  sync.Once
	begun atomic.Bool // the server acknowledged the current attempt
}

var _ bridge.Client = (*partial)(nil)

// run keeps a subscription at the server until ctx ends, the server refuses the subscription, or the server is
// removed. After each loss of the server, run pauses and subscribes again.
func (p *partial) run(ctx context.Context) {
	params := []byte(`{"notifications":` + string(p.part.Raw()) + `}`)
	for wait := time.Second; ; wait = min(2*wait, maxPause) {
		p.begun.Store(false)
		began := time.Now()
		m, err := p.m.call(ctx, &bridge.Request{
			Message: p.from.Request(era.Listen, params),
			From:    p.from,
			Back:    p,
		})
		refused := err == nil && m.Error != nil
		m.Release()
		p.acknowledged(subscribe.Wanted{}) // if the server has not acknowledged, listen stops waiting for it
		if ctx.Err() != nil {
			return
		}
		if refused || errors.Is(err, bridge.ErrUnknownServer) {
			p.m.s.Log.Debug("subscription refused")
			return
		}
		if p.begun.Load() && time.Since(began) > maxPause {
			wait = time.Second
		}
		if backoff.For(ctx, wait) != nil {
			return
		}
	}
}

// acknowledged passes the server's first acknowledgement to listen. first reports whether what is the first.
func (p *partial) acknowledged(what subscribe.Wanted) (first bool) {
	p.once.Do(func() {
		first = true
		p.acks <- what
	})
	return first
}

// Notify passes on a notification of the server.
func (p *partial) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/subscriptions/acknowledged":
		p.begun.Store(true)
	case "notifications/tasks":
		own := gjson.GetBytes(m.Params, "taskId").String()
		p.l.Notify(jsonrpc.NewNotification(m.Method, rawjson.SetFirst(m.Params, "taskId", []byte(rawjson.Quote(p.m.taskID(own))))))
		return
	default:
		p.m.outdate(m.Method)
		p.l.Notify(m)
		return
	}
	what, _ := subscribe.ReadWanted(m.Params) // an invalid list acknowledges nothing
	for i, own := range what.Tasks {
		what.Tasks[i] = p.m.taskID(own)
	}
	late := p.l.Acknowledged() // the client's acknowledgement did not wait for this server
	if p.acknowledged(what) && !late {
		return
	}
	what.Changes = p.part.Changes
	what.Missed(func(m *jsonrpc.Message) {
		p.m.s.Heard(m)
		p.l.Notify(m)
	})
}
