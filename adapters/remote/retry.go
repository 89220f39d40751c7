package remote

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestAfter bounds what RetryAfter returns.
const longestAfter = 24 * time.Hour

// RetryAfter returns the time in the header Retry-After, which has seconds or a date (RFC 9110,
// 10.2.3). The time is in whole seconds, at most a day. ok reports whether the header is valid.
func RetryAfter(h http.Header) (after time.Duration, ok bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return min(time.Duration(s)*time.Second, longestAfter), true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	left := max(time.Until(at), 0) + time.Second - time.Nanosecond // rounds up, so that nobody returns too early
	return min(left.Truncate(time.Second), longestAfter), true
}
