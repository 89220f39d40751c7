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
	maxPause = time.Minute     // before a lost subscription is asked for again
	givingUp = 5 * time.Minute // after which a server that stays away is not asked any more
)

// caller is what of an Upstream listening needs.
type caller interface {
	Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error)
}

// relisten serves a subscription with one at the server. When the connection
// is lost the server is asked again, and the client, whose subscription goes on,
// is told that what it listens to may have changed (protocol.md D4, R-113). It
// lasts until ctx or the server ends it, or the server stays away for too long. The
// end of gone is that of the server.
func relisten(ctx, gone context.Context, up caller, r *bridge.Request, h *handles) (*jsonrpc.Message, error) {
	wants, _ := subscribe.ReadWanted(r.Whole()) // what is wrong with them, the server says
	back := &subscription{back: r.Back, h: h, wants: wants}
	lost := time.Time{}
	for pause := time.Second; ; pause = min(2*pause, maxPause) {
		inner := *r
		inner.Back = back
		began := time.Now()
		a, err := up.Call(ctx, &inner)
		begun, heard := back.interrupted()
		switch {
		case err == nil, ctx.Err() != nil, !begun:
			return a, err
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
		if now.Sub(lost) >= givingUp {
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

// subscription is the Client of one at a modern server.
type subscription struct {
	bridge.Nobody // it is no call that anybody could be asked about
	back          bridge.Client
	h             *handles
	wants         subscribe.Wanted // as the server was asked

	mu    sync.Mutex // guards the rest, and the order of what back gets
	begun bool       // the client has had the acknowledgement
	again bool       // the subscription was made anew since
	early []*jsonrpc.Message
}

var _ bridge.Client = (*subscription)(nil)

// interrupted notes that the subscription has ended at the server. It reports
// whether the client knows that it had begun, and whether the server had
// acknowledged it this time.
func (c *subscription) interrupted() (begun, heard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard = c.begun && !c.again
	c.again = c.begun
	return c.begun, heard
}

// wanted reports whether the client may be told. Of methods that we do
// not know, extensions may have made subscriptions.
func (c *subscription) wanted(n *jsonrpc.Message) bool {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return c.wants.Changes[n.Method]
	case "notifications/resources/updated":
		return len(c.wants.URIs) > 0 // which one it is about may be written otherwise, or be a part
	case "notifications/tasks":
		return slices.Contains(c.wants.Tasks, gjson.GetBytes(n.Params, "taskId").Str)
	case "notifications/message", "notifications/progress":
		return false
	}
	return true
}

// Notify passes on what the server says, after the acknowledgement. That
// is passed on once; instead of a second one come the changes that may have been
// missed.
func (c *subscription) Notify(n *jsonrpc.Message) {
	if !c.wanted(n) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n.Method != era.Acknowledged && c.begun:
		c.back.Notify(c.h.named(n))
		return
	case n.Method != era.Acknowledged:
		if len(c.early) < subscribe.MaxEarly {
			c.early = append(c.early, n.Clone())
		}
		return
	case !c.again:
		c.begun = true
		c.back.Notify(c.h.named(n))
		for _, e := range c.early {
			c.back.Notify(c.h.named(e))
		}
		c.early = nil
		return
	}
	c.again = false
	had, _ := subscribe.ReadWanted(n.Params)
	had.Missed(func(n *jsonrpc.Message) {
		c.h.p.o.Heard(n)
		c.back.Notify(n)
	})
}
