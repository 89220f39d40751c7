package health_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
)

// host tries a server whose circuit is closed.
type host struct {
	wg  sync.WaitGroup
	try func(from *bridge.Caller)
}

func (h *host) Go(f func()) bool        { h.wg.Go(f); return true }
func (h *host) Try(from *bridge.Caller) { h.try(from) }
func (h *host) MaxPause() time.Duration { return 4 * time.Second }
func (h *host) Left() time.Duration     { return 0 }

// A server that cannot be had is tried with growing pauses while somebody waits
// for it, and who waits is told once that it works again.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		h := &host{}
		defer h.wg.Wait()
		defer end()
		began := time.Now()
		var tries []time.Duration
		s := health.New(health.Options{Log: slog.New(slog.DiscardHandler), Life: life, Host: h})
		h.try = func(from *bridge.Caller) {
			if tries = append(tries, time.Since(began)); len(tries) == 4 {
				s.Greeted(from.Principal, &bridge.Greeting{Revision: "2025-11-25"})
			}
		}
		s.Failed(errors.New("no"))
		told, gone := 0, 0
		s.Await(&bridge.Caller{Principal: "p"}, func() { told++ })
		s.Await(&bridge.Caller{Principal: "p"}, func() { gone++ })()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 11 * time.Second}
		if !slices.Equal(tries, want) || told != 1 || gone != 0 {
			t.Errorf("tried after %v, want %v; told %d times, and %d times who waits no more", tries, want, told, gone)
		}
		if g := s.Greeting("p"); g == nil || s.Greeting("q") != nil || s.Speaks() != "2025-11-25" || s.Failing() != nil {
			t.Errorf("it works, but it is known as %v, speaks %q, and fails with %v", g, s.Speaks(), s.Failing())
		}
	})
}

// What is no fault of the server's does not make it fail, and a failure counts for
// a minute.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := health.New(health.Options{Log: slog.New(slog.DiscardHandler)})
		for _, err := range []error{
			&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOverloaded},
			&bridge.Error{Kind: bridge.ErrUnavailable, Err: bridge.ErrOpen},
			&bridge.Error{Kind: bridge.ErrTimeout},
			&bridge.Error{Kind: bridge.ErrRejected},
			nil,
		} {
			if s.CallDone(err, false); s.Failing() != nil {
				t.Errorf("%v makes it fail", err)
			}
		}
		for headers, fails := range map[bool]bool{true: false, false: true} { // one caller's wrong token says nothing about others
			s := health.New(health.Options{Log: slog.New(slog.DiscardHandler)})
			if s.CallDone(&bridge.Error{Kind: bridge.ErrCredentials}, headers); (s.Failing() != nil) != fails {
				t.Errorf("credentials are refused, with headers of the caller %t: %v", headers, s.Failing())
			}
		}
		s.CallDone(&bridge.Error{Kind: bridge.ErrUnavailable, Public: "gone"}, false)
		if st := s.Status(); s.Failing() == nil || st.Usable || st.Failures != 1 {
			t.Errorf("a server out of reach: %+v", st)
		}
		time.Sleep(time.Minute + 1)
		if st := s.Status(); s.Failing() != nil || !st.Usable || st.Failure == nil {
			t.Errorf("a minute later: %+v", st)
		}
		s.CallDone(nil, false)
		if st := s.Status(); st.Failure != nil || st.Last == nil {
			t.Errorf("when it has answered: %+v", st)
		}
	})
}

// What servers have said is kept of many callers, and not of all that there ever were.
func TestGreetings(t *testing.T) {
	s := health.New(health.Options{Log: slog.New(slog.DiscardHandler)})
	for n := range 5000 {
		s.Greeted(strconv.Itoa(n), &bridge.Greeting{})
	}
	kept := 0
	for n := range 5000 {
		if s.Greeting(strconv.Itoa(n)) != nil {
			kept++
		}
	}
	if kept != 4096 || s.Greeting("4999") == nil || s.Greeting("0") != nil {
		t.Errorf("%d are kept; the last %t, the first %t", kept, s.Greeting("4999") != nil, s.Greeting("0") != nil)
	}
}
