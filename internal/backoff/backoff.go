// Package backoff computes pauses between attempts, and waits.
package backoff

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It returns the cause of the end of ctx, or nil.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// Grown returns the pause after that many failures in a row. The first pause is first, and each further pause is twice
// as long, up to most.
func Grown(first, most time.Duration, failures int) time.Duration {
	return min(first<<min(max(failures-1, 0), 16), most)
}
