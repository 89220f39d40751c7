package remote_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
)

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for _, tc := range []struct {
			value string
			want  time.Duration
			ok    bool
		}{
			{"", 0, false}, {"soon", 0, false}, {"-1", 0, false}, {"1.5", 0, false},
			{"0", 0, true}, {" 7 ", 7 * time.Second, true}, {"99999999", 24 * time.Hour, true},
			{in(9 * time.Second), 9 * time.Second, true}, {in(-time.Hour), 0, true}, {in(1000 * time.Hour), 24 * time.Hour, true},
		} {
			if got, ok := remote.RetryAfter(http.Header{"Retry-After": {tc.value}}); got != tc.want || ok != tc.ok {
				t.Errorf("%q: %v, %t, want %v, %t", tc.value, got, ok, tc.want, tc.ok)
			}
		}
		date := in(2 * time.Second)
		time.Sleep(600 * time.Millisecond)
		if got, _ := remote.RetryAfter(http.Header{"Retry-After": {date}}); got != 2*time.Second {
			t.Errorf("1.4 s before the date: %v, which is too early", got)
		}
	})
}
