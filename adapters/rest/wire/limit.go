package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Fault says why a call got no answer. A client may know the text.
type Fault struct {
	Text  string
	After time.Duration // when to try again; 0 when that is not known
}

func (f *Fault) Error() string {
	if f.After <= 0 {
		return f.Text
	}
	return f.Text + "; try again in " + seconds(f.After)
}

// seconds writes a time to wait, rounded up.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d s", max(1, int(math.Ceil(d.Seconds()))))
}

// enter waits until the call may be under way. leave is called when it is not
// any more.
func (s *Source) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.room <- struct{}{}:
		return func() { <-s.room }, nil
	default:
	}
	select {
	case s.room <- struct{}{}:
		return func() { <-s.room }, nil
	case <-ctx.Done():
		return nil, &Fault{Text: fmt.Sprintf("was not sent: %d calls to this API are under way, which is as many as are allowed", cap(s.room))}
	}
}

// step waits until the next request may be sent.
func (s *Source) step(ctx context.Context) error {
	if s.pace == nil {
		return nil
	}
	r := s.pace.Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
		r.Cancel()
		return &Fault{Text: fmt.Sprintf("was not sent: the limit of %s for requests to this API is reached", s.o.Rate), After: wait}
	}
	if err := sleep(ctx, wait); err != nil {
		r.Cancel()
		return err
	}
	return nil
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errExcluded settles a request that says nothing about the server.
var errExcluded = errors.New("not the server's fault")

// maxHosts bounds the breakers. The hosts come from the document.
const maxHosts = 64

// breakers keeps hosts that fail again and again from being called.
type breakers struct {
	failures int
	pause    time.Duration

	mu     sync.Mutex // guards byHost
	byHost map[string]*breaker
}

type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[any]

	mu     sync.Mutex // guards opened
	opened time.Time
}

// allow returns how the outcome of a request to a host is told: nil, the fault,
// or errExcluded.
func (b *breakers) allow(host string) (settle func(error), err error) {
	if b.failures < 0 {
		return func(error) {}, nil
	}
	one := b.of(host)
	done, err := one.Allow()
	if err == nil {
		return done, nil
	}
	one.mu.Lock()
	left := b.pause - time.Since(one.opened)
	one.mu.Unlock()
	return nil, &Fault{Text: "was not sent: the API has failed again and again and is left alone for a while", After: max(left, time.Second)}
}

func (b *breakers) of(host string) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, ok := b.byHost[host]; ok {
		return one
	}
	if b.byHost == nil || len(b.byHost) >= maxHosts {
		b.byHost = map[string]*breaker{}
	}
	one := &breaker{}
	one.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Timeout:     b.pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(b.failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, errExcluded) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				one.mu.Lock()
				one.opened = time.Now()
				one.mu.Unlock()
			}
		},
	})
	b.byHost[host] = one
	return one
}

// verdict is what an answer says about the host: only 5xx are failures, and of
// those not the ones that are about this request alone.
func verdict(status int) error {
	if status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
		return fmt.Errorf("status %d", status)
	}
	return nil
}
