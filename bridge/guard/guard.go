// Package guard is the folder of what guards servers, and callers from each
// other: breaker, cache, limits and retry. It has what their settings share.
package guard

import (
	"fmt"
	"time"
)

// Faults says which of some settings are out of bounds, each as "KEY RULE".
type Faults []error

// AtLeast notes a number below least, unless it is 0, which stands for the
// default.
func (f *Faults) AtLeast(key string, v, least int64) {
	if v != 0 && v < least {
		*f = append(*f, fmt.Errorf("%s is %d: must be at least %d", key, v, least))
	}
}

// NotNegative notes a negative time.
func (f *Faults) NotNegative(key string, v time.Duration) {
	if v < 0 {
		*f = append(*f, fmt.Errorf("%s is %v: must not be negative", key, v))
	}
}
