package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// acknowledged is the first thing that is said to a subscription.
const acknowledged = "notifications/subscriptions/acknowledged"

// relayListen serves a subscription with one at the server. When the connection
// is lost the server is asked again, and the client, whose subscription goes on,
// is told that what it listens to may have changed (protocol.md D4, R-113). It
// lasts until ctx or the server ends it, or the server stays away for too long.
func (l *lower) relayListen(ctx context.Context, up Upstream, r *Request, h *handles) (*jsonrpc.Message, error) {
	back := &relayed{back: r.Back, h: h}
	lost := time.Time{}
	for pause := time.Second; ; pause = min(2*pause, maxBackOff) {
		inner := *r
		inner.Back = back
		began := time.Now()
		a, err := up.Call(ctx, &inner)
		begun := back.interrupted()
		switch {
		case err == nil, ctx.Err() != nil, !begun:
			return a, err
		case !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnsent):
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
		now := time.Now()
		if now.Sub(began) >= maxBackOff {
			lost, pause = time.Time{}, time.Second
		}
		if lost.IsZero() {
			lost = now
		}
		if now.Sub(lost) >= givingUp {
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-l.lost:
			timer.Stop()
			return jsonrpc.NewResult(nil, []byte("{}")), nil
		}
	}
}

// relayed is the Client of a subscription at a modern server.
type relayed struct {
	back Client
	h    *handles

	mu    sync.Mutex // guards the rest
	begun bool       // the client has had the acknowledgement
	again bool       // the subscription was made anew since
}

var _ Client = (*relayed)(nil)

// interrupted notes that the subscription has ended at the server. It reports
// whether the client knows that it had begun.
func (c *relayed) interrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = c.begun
	return c.begun
}

// Notify passes on what the server says. The acknowledgement is passed on once;
// instead of a second one come the changes that may have been missed.
func (c *relayed) Notify(n *jsonrpc.Message) {
	c.mu.Lock()
	again := c.again && n.Method == acknowledged
	if n.Method == acknowledged {
		c.begun, c.again = true, false
	}
	c.mu.Unlock()
	if !again {
		c.back.Notify(c.h.named(n))
		return
	}
	had := gjson.GetBytes(n.Params, "notifications")
	for _, f := range flags {
		if had.Get(f.member).Bool() {
			c.back.Notify(jsonrpc.NewNotification(f.method, nil))
		}
	}
	for _, uri := range had.Get("resourceSubscriptions").Array() {
		c.back.Notify(jsonrpc.NewNotification("notifications/resources/updated", []byte(`{"uri":`+quote(uri.String())+`}`)).Clone())
	}
}

// Ask refuses: it is no call that anybody could be asked about.
func (c *relayed) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func() {
	return nobody{}.Ask(q, reply)
}

// Gone is of no interest: the call itself fails.
func (c *relayed) Gone(error) {}
