package lane

import (
	"context"

	"github.com/mcp-bridge/bridge/bridge"
)

// connect opens a connection, or resumes the session's connection of another instance.
func (l *Lane) connect(ctx context.Context, c *conn) (bridge.Upstream, error) {
	from := l.from()
	if r, ok := l.o.Adapter.(bridge.Resumer); ok && l.stay != nil {
		if carry, above := l.stay.TakeResume(l.o.Name); carry != nil {
			up, err := r.Resume(ctx, from, c, carry, above)
			switch {
			case err == nil || l.o.Settings.Load().EndWithServer && l.ctx.Err() != nil:
				return up, err
			case l.o.Settings.Load().EndWithServer: // a new connection would be another client to the server (S-034)
				l.client.Gone(err)
				return nil, err
			}
			l.o.Log.Warn("cannot resume the connection of another instance", "err", err)
		}
	}
	return l.o.Adapter.Open(ctx, from, c)
}

// saveResume stores the data with which another instance can resume the connection. A nil up removes the data. The
// caller holds l.mu.
func (l *Lane) saveResume(up bridge.Upstream) {
	if l.stay == nil {
		return
	}
	var carry []byte
	if r, ok := up.(bridge.Resumable); ok {
		carry = r.ResumeData()
	}
	l.stay.SaveResume(l.o.Name, carry)
}
