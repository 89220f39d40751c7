package wire

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
)

// The server's settings apply to the circuits of hosts.
func TestBreakerSettings(t *testing.T) {
	late := func(*http.Request) (*http.Response, error) {
		time.Sleep(3 * time.Second)
		return status(200), nil
	}
	for _, test := range []struct {
		name  string
		o     breaker.Options
		steps []any
		calls int
		sent  int // of these
	}{
		{"default", breaker.Options{}, []any{503}, 20, 5},
		{"off", breaker.Options{Off: true}, []any{503}, 50, 50},
		{"failures", breaker.Options{Failures: 9}, []any{503}, 20, 9},
		{"a 500 is an answer", breaker.Options{Failures: 3}, []any{500}, 50, 50},
		{"a 500 between failures", breaker.Options{Failures: 3, Calls: 100}, []any{503, 503, 500, 503, 503, 500, 200}, 50, 50},
		{"percent", breaker.Options{Failures: 100, Percent: 50, Calls: 10}, []any{503, 200, 503, 200, 503, 200, 503, 200, 503, 503, 200}, 20, 10},
		{"not so many percent", breaker.Options{Failures: 100, Percent: 70, Calls: 10}, []any{503, 200, 503, 200, 503, 200, 503, 200, 503, 503, 200}, 20, 20},
		{"slow", breaker.Options{Failures: 2, Slow: 2 * time.Second}, []any{late}, 5, 2},
		{"slower", breaker.Options{Failures: 2, Slow: 4 * time.Second}, []any{late}, 5, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, f := scripted(t, Options{Attempts: 1, Breaker: test.o}, test.steps...)
			defer s.Close()
			for range test.calls {
				call(t, s, &Call{Tool: tool("GET", "/x")})
			}
			if len(f.at) != test.sent {
				t.Errorf("%s: %d of %d calls were sent, want %d", test.name, len(f.at), test.calls, test.sent)
			}
		})
	}
}

// The pause doubles with each failed probe, up to two minutes.
func TestBreakerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Attempts: 1, Breaker: breaker.Options{Failures: 1, Pause: 50 * time.Second}}, 503)
		defer s.Close()
		for _, want := range []int{50, 100, 120, 120} {
			call(t, s, &Call{Tool: tool("GET", "/x")})
			if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); !contains(got, fmt.Sprintf("try again in %d s", want)) {
				t.Errorf("%s, want %d s", got, want)
			}
			time.Sleep(time.Duration(want) * time.Second)
		}
		if len(f.at) != 4 {
			t.Errorf("%d requests", len(f.at))
		}
	})
}

// A call counts once, however often its request is made. Calls that fail together count once too.
func TestBreakerTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Breaker: breaker.Options{Failures: 3}}, refusedConn)
		defer s.Close()
		for range 5 {
			call(t, s, &Call{Tool: tool("GET", "/x")})
		}
		if len(f.at) != 9 {
			t.Errorf("%d requests of 3 calls with 3 attempts", len(f.at))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Attempts: 1, Breaker: breaker.Options{Failures: 2, Calls: 1000}}, func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return status(503), nil
		})
		defer s.Close()
		for range 3 {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { call(t, s, &Call{Tool: tool("GET", "/x")}) })
			}
			wg.Wait()
		}
		if len(f.at) != 20 {
			t.Errorf("%d requests of twice ten", len(f.at))
		}
	})
}

// A caller that probes a host may leave: then the next one probes.
func TestBreakerTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := scripted(t, Options{Attempts: 1, Breaker: breaker.Options{Failures: 1}}, 503, hang, 200)
		defer s.Close()
		call(t, s, &Call{Tool: tool("GET", "/x")})
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.Call(ctx, &Call{Tool: tool("GET", "/x")}) })
		synctest.Wait()
		if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); !strings.Contains(got, "circuit breaker is open") {
			t.Errorf("while it is tried: %s", got)
		}
		cancel()
		wg.Wait()
		if got := said(call(t, s, &Call{Tool: tool("GET", "/x")})); got != "{}" || len(f.at) != 3 {
			t.Errorf("after that: %s, %d requests", got, len(f.at))
		}
	})
}

// The host of one more circuit than there may be takes the place of the one that was not used for the longest time:
// open circuits of others stay open.
func TestBreakerHosts(t *testing.T) {
	b := newBreakers(breaker.Options{Failures: 1}, slog.New(slog.DiscardHandler))
	ask := func(host string, outcome error) bool {
		settle, err := b.allow(host)
		if err == nil {
			settle(outcome)
		}
		return err == nil
	}
	ask("fails", errTimeout)
	for i := range 3 * maxHosts {
		if !ask(fmt.Sprint("host", i), nil) {
			t.Errorf("host %d is held back", i)
		}
		if ask("fails", nil) {
			t.Fatalf("after %d other hosts the circuit is forgotten", i+1)
		}
	}
	if n := b.byHost.Len(); n != maxHosts {
		t.Errorf("%d circuits, want %d", n, maxHosts)
	}
}
