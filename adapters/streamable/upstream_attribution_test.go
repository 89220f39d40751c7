package streamable

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// What a legacy server says and asks on the stream of a call is about that call;
// what it says and asks on the standalone stream may be about anything.
func TestUpstreamAttribution(t *testing.T) {
	const question = `data: {"jsonrpc":"2.0","id":"%s","method":"roots/list"}` + "\n\n"
	const log = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}` + "\n\n"
	release, asked := make(chan struct{}), make(chan struct{})
	s := newScript(t, &script{session: "s"})
	s.get = func(w http.ResponseWriter, r *http.Request) {
		events(w)
		select {
		case <-asked:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, log+question, "general", "general")
		flush(w)
		<-r.Context().Done()
	}
	s.note = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) }
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		name := r.Header.Get("X-Name")
		events(w)
		fmt.Fprintf(w, log+question, name, name)
		flush(w)
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
	}
	up, rest := s.connect(t, conn.Options{})
	if a, ok := up.(bridge.Attributing); !ok || !a.Attributes() {
		t.Error("the connection does not say so")
	}
	names := []string{"one", "two"}
	var backs []*adaptertest.Client
	var calls []<-chan adaptertest.Outcome
	for _, name := range names {
		back := &adaptertest.Client{}
		calls = append(calls, goWith(t, up, back, http.Header{"X-Name": {name}}))
		backs = append(backs, back)
	}
	for i, name := range names {
		if said := backs[i].WaitSaid(t, 1); len(said) != 1 || !strings.Contains(said[0], name) {
			t.Errorf("the client of call %s heard %q", name, said)
		}
		q := backs[i].WaitQuestion(t, 0)
		if !strings.Contains(q.Line, `"id":"`+name+`"`) {
			t.Errorf("the client of call %s was asked %s", name, q.Line)
		}
		q.Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`))
	}
	close(asked)
	if said := rest.WaitSaid(t, 1); len(said) != 1 || !strings.Contains(said[0], "general") {
		t.Errorf("the connection's client heard %q", said)
	}
	rest.WaitQuestion(t, 0).Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`))
	close(release)
	for _, call := range calls {
		(<-call).Result(t)
	}
	answers := ""
	for _, r := range s.wait(t, 3, "POST") {
		answers += r.body
	}
	for _, id := range append(names, "general") {
		if !strings.Contains(answers, `"id":"`+id+`"`) {
			t.Errorf("question %s has no answer: %s", id, answers)
		}
	}
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
