package lane

import (
	"cmp"
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// aheadIdle is how long a process that was started ahead waits for a connection, if Options.Idle is 0.
const aheadIdle = 10 * time.Minute

// StartAhead starts the server before its first connection, if settings and limits allow it. StartAhead returns when
// a connection uses the process or the process has ended. The process ends with ctx, or after the idle time without
// use. A process that fails is not started again.
func (o *Options) StartAhead(ctx, force context.Context) {
	s, can := o.Adapter.(bridge.StartsAhead)
	if !o.Ahead || !can || !o.Budget.reserveAhead() {
		return
	}
	defer o.Budget.cede()
	if _, err := o.Budget.total.start(ctx); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Idle, aheadIdle))
	defer cancel()
	switch err := s.StartAhead(ctx, force); {
	case bridge.Exhausted(err):
		o.Health.NoRoom(err)
	case err != nil:
		o.Health.Failed(err)
	}
}
