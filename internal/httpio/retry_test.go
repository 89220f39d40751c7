package httpio

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", time.Millisecond: "1", time.Second: "1",
		time.Second + 1: "2", 90 * time.Second: "90",
	} {
		h := http.Header{}
		if RetryAfter(h, d); h.Get("Retry-After") != want {
			t.Errorf("RetryAfter(%v) = %q, want %q", d, h.Get("Retry-After"), want)
		}
	}
}
