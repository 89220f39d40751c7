// Package backoff computes the wait before another attempt, and waits.
package backoff

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends, and returns the cause of that.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// Grown returns the pause after that many failures in a row. It begins with first and doubles up to
// most.
func Grown(first, most time.Duration, failures int) time.Duration {
	return min(first<<min(max(failures-1, 0), 16), most)
}
