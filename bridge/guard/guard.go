// Package guard is the folder of the guards. They protect servers from overload, and callers from
// each other: breaker, cache, drain, limits and retry. It has the checks that their options share.
package guard

import (
	"fmt"
	"time"
)

// Faults are the values of some options that are out of bounds, each as "KEY RULE".
type Faults []error

// AtLeast adds a fault if v is below least. 0 is allowed: it means the default.
func (f *Faults) AtLeast(key string, v, least int64) {
	if v != 0 && v < least {
		*f = append(*f, fmt.Errorf("%s is %d: must be at least %d", key, v, least))
	}
}

// NotNegative adds a fault if v is negative.
func (f *Faults) NotNegative(key string, v time.Duration) {
	if v < 0 {
		*f = append(*f, fmt.Errorf("%s is %v: must not be negative", key, v))
	}
}
