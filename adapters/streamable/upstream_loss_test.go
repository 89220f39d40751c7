package streamable

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// When a session is forgotten, a call in flight may be answered yet: Close waits for it, until the context of Close ends, or
// nobody waits for the call any more.
func TestUpstreamForgottenUnderWay(t *testing.T) {
	for name, want := range map[string]error{
		"answered": nil, "Close in a hurry": bridge.ErrLost, "given up": context.Canceled, "given up before": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			var release chan struct{}
			s, posts := &script{session: "s"}, 0
			s.post = func(w http.ResponseWriter, r *http.Request, id string) {
				if posts++; posts > 1 {
					w.WriteHeader(404)
					return
				}
				events(w)
				select {
				case <-release:
				case <-r.Context().Done():
					return
				}
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"late\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"in\":\"time\"}}\n\n", id)
			}
			bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
				release = make(chan struct{}) // of the bubble
				up := open(t, u, rest)
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				if name == "given up before" { // the cancellation is behind another message
					s.note = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
					adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"m"}`)
				}
				call := adaptertest.Go(ctx, t, up, nil, ask)
				synctest.Wait()
				if name == "given up before" {
					giveUp()
					synctest.Wait()
				}
				if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
					t.Errorf("the other call ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
				}
				rest.WaitGone(t)
				force, hurry := context.WithCancel(context.Background())
				defer hurry()
				closed := make(chan struct{})
				go func() { defer close(closed); _ = up.Close(force) }()
				synctest.Wait()
				switch name {
				case "answered":
					close(release)
				case "Close in a hurry":
					hurry()
				case "given up":
					giveUp()
				}
				if o := <-call; !errors.Is(o.Err, want) || errors.Is(o.Err, bridge.ErrUnsent) || want == nil && o.Result(t) != `{"in":"time"}` {
					t.Errorf("the call ended with %q, %v, want %v", o.Answer, o.Err, want)
				}
				wiretest.Advance(time.Hour)
				select {
				case <-closed:
				default:
					t.Error("Close waits for a call that nobody waits for")
					hurry()
					<-closed
				}
				if got, n := rest.Said(), s.of("DELETE"); len(got) > 0 || n > 0 {
					t.Errorf("said after Gone: %q; %d DELETEs", got, n)
				}
			})
		})
	}
}

// the session is ended with DELETE, which the server may refuse, and
// which is bounded.
func TestUpstreamDelete(t *testing.T) {
	for _, c := range []struct {
		session string
		want    int
	}{{"", 0}, {"s", 1}} {
		s := newScript(t, &script{session: c.session, post: echo})
		up, _ := s.connect(t, conn.Options{})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _ = up.Close(t.Context()) })
		}
		all.Wait()
		if n := s.of("DELETE"); n != c.want {
			t.Errorf("session %q: %d DELETEs, want %d", c.session, n, c.want)
		}
		if o := adaptertest.Call(t.Context(), t, up, nil, ask); o.Err == nil {
			t.Errorf("a later call: %q", o.Answer)
		}
	}
}

// What the log says holds no secret, whatever goes wrong.
func TestUpstreamSecrets(t *testing.T) {
	t.Parallel() // it waits for seconds
	var log adaptertest.Log
	var n atomic.Int32
	s := newScript(t, &script{session: "secret-session"})
	s.post = func(w http.ResponseWriter, _ *http.Request, id string) {
		switch n.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			respond(500, "secret-body")(w, nil, id)
		case 3:
			events(w)
			fmt.Fprint(w, "data: secret-data\n\n")
		default:
			w.WriteHeader(404)
		}
	}
	s.note = func(w http.ResponseWriter, _ *http.Request) {
		if n.Load() > 0 {
			w.WriteHeader(400)
		}
	}
	u := adapter(t, s.URL+"/mcp?key=secret-query", map[string]string{"Authorization": "secret-header"}, conn.Options{Log: log.Logger()})
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, u, rest)
	var texts []string
	for range 4 {
		o := adaptertest.Call(t.Context(), t, up, nil, ask)
		if o.Err == nil {
			t.Fatalf("an answer: %q", o.Answer)
		}
		texts = append(texts, o.Err.Error())
		_ = up.Notify(t.Context(), &bridge.Request{Message: adaptertest.Parse(t, `{"jsonrpc":"2.0","method":"n"}`)})
	}
	texts = append(texts, rest.WaitGone(t).Error())
	_ = up.Close(t.Context())
	s.Close()
	_, err := u.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
	texts = append(texts, err.Error())
	for _, text := range append(texts, log.String()) {
		if strings.Contains(text, "secret") {
			t.Errorf("a secret in %q", text)
		}
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
