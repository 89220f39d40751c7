// Package guard is the folder of the guards, which protect servers from overload and callers from each other: breaker,
// cache, drain, limits and retry. The package itself holds the checks that the options of the guards share.
package guard

import (
	"fmt"
	"time"
)

// Faults are errors about options that are out of bounds, each of the form "KEY is VALUE: RULE".
type Faults []error

// AtLeast adds a fault if v is below least. 0 is allowed, since it means the default.
func (f *Faults) AtLeast(key string, v, least int64) {
	if v != 0 && v < least {
		*f = append(*f, fmt.Errorf("%s is %d: must be at least %d", key, v, least))
	}
}

func (f *Faults) NotNegative(key string, v time.Duration) {
	if v < 0 {
		*f = append(*f, fmt.Errorf("%s is %v: must not be negative", key, v))
	}
}
