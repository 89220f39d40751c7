package wire

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/mcp-bridge/bridge/internal/backoff"
)

// Fault says why a call got no answer. Clients may see the text.
type Fault struct {
	Text  string
	After time.Duration // when to try again; 0 if unknown
}

func (f *Fault) Error() string {
	if f.After <= 0 {
		return f.Text
	}
	return f.Text + "; try again in " + seconds(f.After)
}

// seconds returns a duration as text, in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d s", max(1, int(math.Ceil(d.Seconds()))))
}

// enter waits until fewer than Options.Concurrent calls run. The caller calls leave when its call
// ends. If ctx ends first, the error is a Fault.
func (s *Source) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	default:
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, &Fault{Text: fmt.Sprintf("was not sent: %d calls to this API are under way, which is as many as are allowed", cap(s.slots))}
	}
}

// waitForRate waits until the rate allows the next request. If ctx would end first, it returns a
// Fault at once.
func (s *Source) waitForRate(ctx context.Context) error {
	if s.limiter == nil {
		return nil
	}
	r := s.limiter.Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		r.Cancel()
		return &Fault{Text: fmt.Sprintf("was not sent: the limit of %s for requests to this API is reached", s.o.Rate), After: wait}
	}
	if err := backoff.For(ctx, wait); err != nil {
		r.Cancel()
		return err
	}
	return nil
}
