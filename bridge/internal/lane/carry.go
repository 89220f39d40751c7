package lane

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
)

// connect opens a connection, or goes on with the one that another instance of the bridge
// has had for the session.
func (l *Lane) connect(ctx context.Context, c *conn) (bridge.Upstream, error) {
	from := l.from()
	if r, ok := l.o.Adapter.(bridge.Resumer); ok && l.stay != nil {
		if carry, above := l.stay.Carry(l.o.Name); carry != nil {
			up, err := r.Resume(ctx, from, c, carry, above)
			switch {
			case err == nil || l.o.Settings.Load().EndWithServer && l.ctx.Err() != nil:
				return up, err
			case l.o.Settings.Load().EndWithServer: // another connection would be another face (S-034)
				l.client.Gone(err)
				return nil, err
			}
			l.o.Log.Warn("the connection of another instance cannot be continued", "err", err)
		}
	}
	return l.o.Adapter.Open(ctx, from, c)
}

// carried notes what another instance needs to go on with the connection, which is open;
// nil means that there is none. The caller holds l.mu.
func (l *Lane) carried(up bridge.Upstream) {
	if l.stay == nil {
		return
	}
	var carry []byte
	if p, ok := up.(bridge.Portable); ok {
		carry = p.Carry()
	}
	l.stay.Carried(l.o.Name, carry)
}
