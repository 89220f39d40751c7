package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// RunModern runs the parts of the suite for a modern server (2026-07-28). start returns an adapter
// that connects to a Modern [Server] of its own.
func RunModern(t *testing.T, start func(t *testing.T) bridge.Adapter) {
	play(t, start, modern(1<<20, 6))
}

// RunModernAgain is RunModern with fewer calls at once and without the largest messages, as RunAgain.
func RunModernAgain(t *testing.T, start func(t *testing.T) bridge.Adapter) {
	play(t, start, modern(64<<10+1, 1))
}

func modern(largest, each int) []part {
	return []part{
		{"Discovery", discovery},
		{"Payload", payload},
		{"LargePayload", largePayload(largest)},
		{"LineBreaks", lineBreaks},
		{"Errors", errorAnswers},
		{"Progress", progress},
		{"StrayAnswers", strayAnswers},
		{"Concurrent", concurrent(each)},
		{"Silence", silence},
		{"Listen", listening},
		{"Close", closingModern},
	}
}

// ModernCaller returns a caller with a client of 2026-07-28.
func ModernCaller() *bridge.Caller {
	c := Caller("")
	c.Revision = "2026-07-28"
	return c
}

// OpenModern opens a connection for a ModernCaller, and closes the connection at the test's end.
func OpenModern(t testing.TB, a bridge.Adapter, rest bridge.Client) bridge.Upstream {
	t.Helper()
	return OpenFor(t, a, ModernCaller(), rest)
}

// server/discover names the client, its result comes back unchanged, and nothing else
// is sent.
func discovery(t *testing.T, a bridge.Adapter) {
	for _, from := range []*bridge.Caller{ModernCaller(), Caller("")} {
		rest := &Client{}
		up := OpenFor(t, a, from, rest)
		g := up.Server()
		if !g.Modern() || g.Revision != "2026-07-28" {
			t.Errorf("Revision = %q, want 2026-07-28", g.Revision)
		}
		if got := string(g.Result); got != discoverResult {
			t.Errorf("Result = %s\nwant     %s", got, discoverResult)
		}
		if want := `{"tools":{"listChanged":true},"x-new":{"n":12345678901234567890}}`; string(g.Capabilities) != want {
			t.Errorf("Capabilities = %s, want %s", g.Capabilities, want)
		}
		seen := Seen(t, up)
		if line := find(seen, `"method":"server/discover"`, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`,
			`"io.modelcontextprotocol/clientCapabilities":{`, `"io.modelcontextprotocol/clientInfo":{"name":"test"`); line == "" {
			t.Errorf("the server received %q\nwant server/discover with who asks", seen)
		}
		if line := find(seen, `"notifications/initialized"`); line != "" {
			t.Errorf("the server received %s", line)
		}
		rest.NoGone(t)
		if err := up.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// B12: a modern server asks no questions, and its notifications belong to calls. The
// bridge ignores other messages, and answers none.
func silence(t *testing.T, a bridge.Adapter) {
	rest, back := &Client{}, &Client{}
	up := OpenModern(t, a, rest)
	const report = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`
	o := Call(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"},"say":[`+
		`{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}},`+
		strings.Replace(report, `"p"`, `"$token"`, 1)+`,`+
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"nobody's"}}}]}}`)
	o.Result(t)
	if said := back.Said(); !slices.Equal(said, []string{report}) {
		t.Errorf("the call's client heard %q, want the report", said)
	}
	for i, line := range Seen(t, up) {
		if !strings.Contains(line, `"method"`) {
			t.Errorf("message %d to the server is an answer: %s", i, line)
		}
	}
	if said := rest.Said(); len(said) > 0 {
		t.Errorf("the connection's client heard %q", said)
	}
	if n := rest.Questions() + back.Questions(); n > 0 {
		t.Errorf("%d questions were put", n)
	}
}

// B10: the events of a subscription go only to its subscriber, until the server's result ends it.
func listening(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := OpenModern(t, a, rest)
	const tagged = `{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"$id"},"n":%d}}`
	var backs []*Client
	var calls []<-chan Outcome
	for i := range 3 {
		back := &Client{}
		say := fmt.Sprintf(tagged, "notifications/subscriptions/acknowledged", i) + "," + fmt.Sprintf(tagged, "notifications/tools/list_changed", i)
		then := `,"then":"hang"`
		if i == 0 {
			then = ""
		}
		calls = append(calls, Go(t.Context(), t, up, back, `{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":{"notifications":{},"say":[`+say+`]`+then+`}}`))
		backs = append(backs, back)
	}
	for i, back := range backs {
		said := back.WaitSaid(t, 2)
		if len(said) != 2 || !strings.Contains(said[0], "acknowledged") || !strings.Contains(said[1], "list_changed") || !strings.Contains(said[1], fmt.Sprintf(`"n":%d`, i)) {
			t.Errorf("subscription %d heard %q", i, said)
		}
	}
	(<-calls[0]).Result(t)
	if said := rest.Said(); len(said) > 0 {
		t.Errorf("the connection's client heard %q", said)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, call := range calls[1:] {
		if o := <-call; o.Err == nil {
			t.Errorf("a subscription ended with %q, want an error", o.Answer)
		}
	}
}

// Close ends pending calls, causes no Gone, and may be called concurrently.
func closingModern(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := OpenModern(t, a, rest)
	var calls []<-chan Outcome
	for range 10 {
		calls = append(calls, Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"then":"hang"}}`))
	}
	if err := up.Notify(t.Context(), &bridge.Request{Message: jsonrpc.NewNotification("m", nil)}); err != nil {
		t.Errorf("Notify: %v", err)
	}
	Seen(t, up)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := up.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	for _, call := range calls {
		if o := <-call; o.Err == nil {
			t.Errorf("a pending call ended with %q, want an error", o.Answer)
		}
	}
	all.Wait()
	if o := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m"}`); o.Err == nil {
		t.Errorf("a later call ended with %q, want an error", o.Answer)
	}
	rest.NoGone(t)
}
