package streamable

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// A call that was given up keeps no forgotten session alive: nothing can be said
// to its server any more, and its stream may never end.
func TestUpstreamForgottenGivenUp(t *testing.T) {
	for _, queued := range []bool{false, true} { // before the session was forgotten, behind another message
		t.Run(fmt.Sprintf("queued %v", queued), func(t *testing.T) {
			s, n := &script{session: "s"}, 0
			s.post = func(w http.ResponseWriter, r *http.Request, id string) {
				if n++; n > 1 {
					w.WriteHeader(404)
					return
				}
				events(w)
				<-r.Context().Done()
			}
			bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				up := open(t, u, rest)
				if queued {
					s.note = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
					if err := up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"m"}`)}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := adaptertest.Go(ctx, t, up, nil, ask)
				synctest.Wait()
				giveUp := func() {
					cancel()
					synctest.Wait()
					if o := <-ended; !errors.Is(o.Err, context.Canceled) {
						t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
					}
				}
				if queued {
					giveUp()
				}
				if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
					t.Errorf("the other call ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
				}
				if !queued {
					giveUp()
				}
				force, hurry := context.WithCancel(context.Background())
				defer hurry()
				closed := make(chan struct{})
				go func() { defer close(closed); _ = up.Close(force) }()
				wiretest.Advance(time.Hour)
				select {
				case <-closed:
				default:
					t.Error("Close waits for a call that nobody waits for")
				}
				hurry()
				<-closed
			})
		})
	}
}

// A request that does not get through, once it was given up, holds up nothing
// else for ever. The server has not got it whole, and need not hear of it.
func TestUpstreamStuckRequest(t *testing.T) {
	s := &script{session: "s"}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		do := u.do
		u.do = func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("X-Stuck") != "" && r.ContentLength > 0 { // the peer accepts connections, and does not read
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return do(r)
		}
		up := open(t, u, rest)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := up.Call(ctx, &bridge.Request{Message: adaptertest.Parse(t, ask), Header: http.Header{"X-Stuck": {"1"}}})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		<-ended
		if err := up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"behind"}`), Header: http.Header{}}); err != nil {
			t.Fatal(err)
		}
		wiretest.Advance(time.Minute)
		synctest.Wait()
		if n := s.of("POST behind"); n != 1 {
			t.Errorf("%d messages behind it have arrived after a minute, want 1", n)
		}
		if n := s.of("POST notifications/cancelled"); n > 0 {
			t.Error("the server was told of a call that it never had")
		}
		_ = up.Close(t.Context())
	})
}

// A server that cannot be reached gets a few seconds to come up, and is then said to be unreachable, however short the
// time-out of the call: that the server did not answer would mean that it may have acted. A certificate that is not accepted
// does not become better by trying again.
func TestUpstreamUnreachableInTime(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name   string
		limits conn.Timeouts
		err    error
		least  int // attempts
		most   time.Duration
	}{
		{"no time-outs", conn.Timeouts{}, refused, 5, reachFor},
		{"a long one", conn.Timeouts{Idle: 5 * time.Minute}, refused, 5, reachFor},
		{"a short one", conn.Timeouts{Idle: 3 * time.Second}, refused, 2, 2 * time.Second},
		{"a short one for all", conn.Timeouts{Idle: time.Minute, Max: 2 * time.Second}, refused, 2, time.Second},
		{"a tiny one", conn.Timeouts{Idle: 50 * time.Millisecond}, refused, 2, 25 * time.Millisecond},
		{"a bad certificate", conn.Timeouts{}, &tls.CertificateVerificationError{Err: errors.New("unknown")}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, &script{session: "s"}, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				u.o.Timeouts = c.limits
				tries, do := 0, u.do
				u.do = func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("X-Refused") == "" {
						return do(r)
					}
					tries++
					return nil, c.err
				}
				up := open(t, u, rest)
				began := time.Now()
				_, err := up.Call(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, ask), Header: http.Header{"X-Refused": {"1"}}})
				if !errors.Is(err, bridge.ErrUnavailable) || errors.Is(err, bridge.ErrTimeout) {
					t.Errorf("the call ended with %v, want ErrUnavailable", err)
				}
				if took := time.Since(began); tries < c.least || (tries == 1) != (c.least == 1) || took > c.most || took < c.most/2 {
					t.Errorf("%d attempts within %v, want %d or more within %v", tries, took, c.least, c.most)
				}
				_ = up.Close(t.Context())
			})
		})
	}
}
