//go:build !linux

// Package orphans reaps processes that are nobody's.
package orphans

import "time"

// After has no meaning here.
const After = time.Second

// Reap does nothing: only Linux has containers in which we are process 1.
func Reap(time.Duration) (done func()) { return func() {} }
