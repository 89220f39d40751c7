package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// An answer to one call in the response to another is dropped: no call
// gets the answer of another.
func TestUpstreamOthersAnswer(t *testing.T) {
	ids := make(chan string)
	second := make(chan struct{})
	s := newScript(t, &script{session: "s"})
	var n atomic.Int32
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		if n.Add(1) == 1 {
			ids <- id
			select {
			case <-second:
			case <-r.Context().Done():
			}
			plainly(w, id, `{"for":"first"}`)
			return
		}
		events(w)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"for\":\"second\"}}\n\n", <-ids)
		fmt.Fprintf(w, "data: [{\"jsonrpc\":\"2.0\",\"id\":\"x%s\",\"result\":{}}, 7, {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"own\":1}}]\n\n", id, id)
	}
	up, _ := s.connect(t, conn.Options{})
	first := adaptertest.Go(t.Context(), t, up, nil, ask)
	firstID := <-ids
	go func() { ids <- firstID }()
	if got := adaptertest.Call(t.Context(), t, up, nil, ask).Result(t); got != `{"own":1}` {
		t.Errorf("the second call: %s", got)
	}
	close(second)
	if got := (<-first).Result(t); got != `{"for":"first"}` {
		t.Errorf("the first call: %s", got)
	}
}

// Some servers only take a request, and answer it on the standalone stream.
func TestUpstreamElsewhere(t *testing.T) {
	taken := make(chan string, 1)
	s := newScript(t, &script{session: "s", post: func(w http.ResponseWriter, _ *http.Request, id string) { taken <- id; w.WriteHeader(202) }})
	lives := make(chan struct{})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		events(w)
		select {
		case id := <-taken:
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"else\":\"where\"}}\n\n", id)
			flush(w)
		case <-r.Context().Done():
		}
		select {
		case <-lives:
		case <-r.Context().Done():
		}
	}
	up, rest := s.connect(t, conn.Options{})
	if got := adaptertest.Call(t.Context(), t, up, nil, ask).Result(t); got != `{"else":"where"}` {
		t.Errorf("result %s", got)
	}
	// Without its answer, such a call ends with the connection.
	call := adaptertest.Go(t.Context(), t, up, nil, ask)
	s.wait(t, 2, "POST tools/call")
	gone := make(chan struct{})
	go func() { defer close(gone); _ = up.Close(t.Context()) }()
	if o := <-call; !errors.Is(o.Err, bridge.ErrLost) {
		t.Errorf("the call ended with %q, %v, want ErrLost", o.Answer, o.Err)
	}
	<-gone
	close(lives)
	if len(rest.Gones()) > 0 {
		t.Errorf("Gone %v", rest.Gones())
	}
}

// A server that cannot be connected to gets a few seconds to come up; what was
// not sent by then is unavailable, and was never sent.
func TestUpstreamUnreachable(t *testing.T) {
	t.Parallel() // it waits for seconds
	s := newScript(t, &script{post: echo})
	a, rest := adapter(t, s.URL, nil, conn.Options{}), &adaptertest.Client{}
	up := adaptertest.Open(t, a, rest)
	s.wait(t, 1, "GET")
	s.Close()
	a.Close() // no request must go to a connection whose end is not known yet: it would be lost
	began := time.Now()
	o := adaptertest.Call(t.Context(), t, up, nil, ask)
	if !errors.Is(o.Err, bridge.ErrUnavailable) || !strings.Contains(o.Err.Error(), "cannot be reached") {
		t.Errorf("the call ended with %q, %v, want ErrUnavailable", o.Answer, o.Err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("given up after %v", took)
	}
	if len(rest.Gones()) > 0 {
		t.Errorf("Gone %v: there is no session to lose", rest.Gones())
	}
}
