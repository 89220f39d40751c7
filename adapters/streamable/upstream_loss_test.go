package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// When a session is forgotten, what is in flight may be answered yet: Close
// waits for it, until its context ends.
func TestUpstreamForgottenUnderWay(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprintf("answered %v", answered), func(t *testing.T) {
			release := make(chan struct{})
			s := newScript(t, &script{session: "s"})
			var n atomic.Int32
			s.post = func(w http.ResponseWriter, r *http.Request, id string) {
				if n.Add(1) > 1 {
					w.WriteHeader(404)
					return
				}
				events(w)
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", id)
				flush(w)
				select {
				case <-release:
				case <-r.Context().Done():
					return
				}
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"late\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"in\":\"time\"}}\n\n", id)
			}
			up, rest := s.connect(t, conn.Options{})
			back := &adaptertest.Client{}
			call := adaptertest.Go(t.Context(), t, up, back, ask)
			back.WaitSaid(t, 1)
			if o := adaptertest.Call(t.Context(), t, up, nil, ask); !errors.Is(o.Err, bridge.ErrUnsent) {
				t.Fatalf("the call ended with %q, %v, want ErrUnsent", o.Answer, o.Err)
			}
			rest.WaitGone(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			closed := make(chan struct{})
			go func() { defer close(closed); _ = up.Close(ctx) }()
			if answered {
				close(release)
				if got := (<-call).Result(t); got != `{"in":"time"}` {
					t.Errorf("result %s", got)
				}
			} else {
				cancel()
				if o := <-call; !errors.Is(o.Err, bridge.ErrLost) || errors.Is(o.Err, bridge.ErrUnsent) {
					t.Errorf("the call ended with %q, %v, want ErrLost", o.Answer, o.Err)
				}
			}
			<-closed
			if got := rest.Said(); len(got) > 0 {
				t.Errorf("said after Gone: %q", got)
			}
			if n := s.of("DELETE"); n > 0 {
				t.Errorf("%d DELETEs", n)
			}
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
	var log bytes.Buffer
	var mu sync.Mutex
	h := slog.NewTextHandler(writerFunc(func(b []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return log.Write(b) }), &slog.HandlerOptions{Level: slog.LevelDebug})
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
	u := adapter(t, s.URL+"/mcp?key=secret-query", map[string]string{"Authorization": "secret-header"}, conn.Options{Log: slog.New(h)})
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
	mu.Lock()
	defer mu.Unlock()
	for _, text := range append(texts, log.String()) {
		if strings.Contains(text, "secret") {
			t.Errorf("a secret in %q", text)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
