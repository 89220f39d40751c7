// Package backoff computes how long to wait before something is tried again, and
// waits.
package backoff

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends: then it returns why.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// Grown is the pause after so many failures in a row: first, and then each time
// twice as long, up to most.
func Grown(first, most time.Duration, failures int) time.Duration {
	return min(first<<min(max(failures-1, 0), 16), most)
}
