package stateless

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

const (
	maxPause    = time.Minute     // between attempts to renew a lost subscription
	giveUpAfter = 5 * time.Minute // the time after which a lost subscription ends
)

// caller is the part of an Upstream that relisten needs.
type caller interface {
	Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error)
}

// relisten serves a client's subscription by a subscription at the server. After a loss, relisten subscribes again
// and notifies the client of changes that the client may have missed (protocol.md D4, R-113). The subscription ends
// when ctx ends, the server ends it, or the server stays away for giveUpAfter. gone ends when the server is gone for
// good.
func relisten(ctx, gone context.Context, up caller, r *bridge.Request, h *handles) (*jsonrpc.Message, error) {
	wants, _ := subscribe.ReadWanted(r.Whole()) // a malformed request goes to the server, which rejects it
	back := &subscription{
		back:  r.Back,
		h:     h,
		wants: wants,
	}
	lost := time.Time{}
	for pause := time.Second; ; pause = min(2*pause, maxPause) {
		inner := *r
		inner.Back = back
		began := time.Now()
		m, err := up.Call(ctx, &inner)
		begun, heard := back.interrupted()
		switch {
		case err == nil, ctx.Err() != nil, !begun:
			return m, err
		case !errors.Is(err, bridge.ErrLost) && !errors.Is(err, bridge.ErrUnavailable) && !errors.Is(err, bridge.ErrUnsent) && !errors.Is(err, bridge.ErrOverloaded):
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
		now := time.Now()
		if heard && now.Sub(began) >= maxPause {
			lost, pause = time.Time{}, time.Second
		}
		if lost.IsZero() {
			lost = now
		}
		if now.Sub(lost) >= giveUpAfter {
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-gone.Done():
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
	}
}

// subscription is the Client of a subscription at a modern server.
type subscription struct {
	bridge.Nobody // no client can be asked about a subscription
	back          bridge.Client
	h             *handles
	wants         subscribe.Wanted // as requested from the server

	mu    sync.Mutex // guards the rest, and the order of what back gets
	begun bool       // the client got the acknowledgement
	again bool       // the subscription was renewed and not acknowledged since
	early []*jsonrpc.Message
}

var _ bridge.Client = (*subscription)(nil)

// interrupted records that the subscription ended at the server. begun reports whether the client has its
// acknowledgement. heard reports whether the server acknowledged the last attempt.
func (s *subscription) interrupted() (begun, heard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard = s.begun && !s.again
	s.again = s.begun
	return s.begun, heard
}

// wanted reports whether the client gets the notification. Unknown methods pass, because extensions may
// define subscriptions.
func (s *subscription) wanted(m *jsonrpc.Message) bool {
	switch m.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return s.wants.Changes[m.Method]
	case "notifications/resources/updated":
		return len(s.wants.URIs) > 0 // servers may write the URI differently, or name a part of the resource
	case "notifications/tasks":
		return slices.Contains(s.wants.Tasks, gjson.GetBytes(m.Params, "taskId").Str)
	case "notifications/message", "notifications/progress":
		return false
	}
	return true
}

// Notify passes on a notification after the acknowledgement. At most subscribe.MaxEarly notifications wait
// for the acknowledgement; further ones are dropped. The client gets only the first acknowledgement. In place of a
// later one, the client gets the changes that it may have missed.
func (s *subscription) Notify(m *jsonrpc.Message) {
	if !s.wanted(m) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method != era.Acknowledged && s.begun:
		s.back.Notify(s.h.toClient(m))
		return
	case m.Method != era.Acknowledged:
		if len(s.early) < subscribe.MaxEarly {
			s.early = append(s.early, m.Clone())
		}
		return
	case !s.again:
		s.begun = true
		s.back.Notify(s.h.toClient(m))
		for _, m := range s.early {
			s.back.Notify(s.h.toClient(m))
		}
		s.early = nil
		return
	}
	s.again = false
	had, _ := subscribe.ReadWanted(m.Params)
	had.Missed(func(m *jsonrpc.Message) {
		s.h.p.o.Server.Heard(m)
		s.back.Notify(m)
	})
}
