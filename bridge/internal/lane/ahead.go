package lane

import (
	"cmp"
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// aheadIdle is how long a process that was started ahead waits for its connection, where
// connections are kept for ever.
const aheadIdle = 10 * time.Minute

// StartAhead starts the server before its first connection is opened, if it may and can
// be, and returns when a connection uses it or nothing of it is left. It ends with ctx,
// and when nobody has needed it for long. One that fails is not started again.
func (o *Options) StartAhead(ctx, force context.Context) {
	a, can := o.Adapter.(bridge.StartsAhead)
	if !o.Ahead || !can || !o.Budget.ahead() {
		return
	}
	defer o.Budget.cede()
	if _, err := o.Budget.total.start(ctx); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Idle, aheadIdle))
	defer cancel()
	switch err := a.StartAhead(ctx, force); {
	case bridge.Exhausted(err):
		o.Health.Lacked(err)
	case err != nil:
		o.Health.Failed(err)
	}
}
