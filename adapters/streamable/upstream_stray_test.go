package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A call that is answered elsewhere leaves its POST alone for a moment, in which the server mostly responds: a POST
// that ends as its response comes closes a connection that may have the next call already. Then it ends the POST.
func TestUpstreamElsewhereFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, respond := make(chan string, 1), make(chan struct{})
		var ended, dialled atomic.Int32
		s := &script{session: "s", revision: "2025-11-25", more: make(chan struct{})}
		s.post = func(w http.ResponseWriter, r *http.Request, id string) {
			taken <- id
			select {
			case <-respond:
				w.WriteHeader(http.StatusAccepted)
			case <-r.Context().Done():
				ended.Add(1)
			}
		}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			events(w)
			for {
				select {
				case id := <-taken:
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
					flush(w)
				case <-r.Context().Done():
					return
				}
			}
		}
		u := inMemory(t, &dialled, &http.Server{Handler: s})
		up := adaptertest.Open(t, u, &adaptertest.Client{})
		synctest.Wait()
		before := dialled.Load()
		for range 3 {
			if got := adaptertest.Call(t.Context(), t, up, nil, ask).Result(t); got != "{}" {
				t.Errorf("result %s", got)
			}
			synctest.Wait()
			select {
			case respond <- struct{}{}:
			default: // it was ended
			}
			synctest.Wait()
		}
		if ended.Load() > 0 || dialled.Load() != before {
			t.Errorf("%d requests were ended, and %d connections opened", ended.Load(), dialled.Load()-before)
		}
		adaptertest.Call(t.Context(), t, up, nil, ask).Result(t)
		time.Sleep(2 * linger)
		synctest.Wait()
		if ended.Load() != 1 {
			t.Error("a request without a response was not ended")
		}
		if err := up.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a legacy server says and asks on the stream of a call is about that call;
// what it says and asks on the standalone stream may be about anything.
func TestUpstreamAttribution(t *testing.T) {
	say := func(w http.ResponseWriter, who string) {
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%q}}`+"\n\n", who)
		fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%q,"method":"roots/list"}`+"\n\n", who)
		flush(w)
	}
	var begin, release chan struct{}
	s := &script{session: "s"}
	s.get = func(w http.ResponseWriter, r *http.Request) {
		events(w)
		<-begin
		say(w, "general")
		<-r.Context().Done()
	}
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		events(w)
		say(w, r.Header.Get("X-Name"))
		<-release
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
	}
	bubble(t, s, func(t *testing.T, u *Upstream, rest *adaptertest.Client) {
		begin, release = make(chan struct{}), make(chan struct{})
		up := open(t, u, rest)
		if a, ok := up.(bridge.Attributing); !ok || !a.Attributes() {
			t.Error("the connection does not say so")
		}
		clients := map[string]*adaptertest.Client{"general": rest, "one": {}, "two": {}}
		var calls []<-chan adaptertest.Outcome
		for _, name := range []string{"one", "two"} {
			calls = append(calls, goWith(t, up, clients[name], http.Header{"X-Name": {name}}))
		}
		close(begin)
		for name, c := range clients {
			if said := c.WaitSaid(t, 1); len(said) != 1 || !strings.Contains(said[0], name) {
				t.Errorf("the client of %s heard %q", name, said)
			}
			q := c.WaitQuestion(t, 0)
			if !strings.Contains(q.Line, `"id":"`+name+`"`) || c.Questions() != 1 {
				t.Errorf("the client of %s was asked %s", name, q.Line)
			}
			q.Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`))
		}
		close(release)
		for _, call := range calls {
			(<-call).Result(t)
		}
		synctest.Wait()
		answers := ""
		for _, r := range s.requests() {
			answers += r.body
		}
		for name := range clients {
			if !strings.Contains(answers, `"id":"`+name+`","result"`) {
				t.Errorf("question %s has no answer: %s", name, answers)
			}
		}
		_ = up.Close(t.Context())
	})
}

// goWith makes a call with headers in the background.
func goWith(t testing.TB, up bridge.Upstream, back bridge.Client, header http.Header) <-chan adaptertest.Outcome {
	ch := make(chan adaptertest.Outcome, 1)
	m := adaptertest.Parse(t, ask)
	go func() {
		a, err := up.Call(t.Context(), &bridge.Request{Message: m, Back: back, Header: header})
		ch <- adaptertest.Outcome{Answer: adaptertest.Text(a), Err: err}
	}()
	return ch
}
