package httpio

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter sets the header of that name to d, in whole seconds: rounded up, so that no
// client comes too early, and at least 1.
func RetryAfter(h http.Header, d time.Duration) {
	seconds := (d + time.Second - 1) / time.Second
	h.Set("Retry-After", strconv.FormatInt(max(1, int64(seconds)), 10))
}
