package httpio

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter sets the header Retry-After to d in seconds. It rounds up, so that no client comes too early, to at least
// 1.
func RetryAfter(h http.Header, d time.Duration) {
	seconds := (d + time.Second - 1) / time.Second
	h.Set("Retry-After", strconv.FormatInt(max(1, int64(seconds)), 10))
}
