package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Client is a bridge.Client that records received messages, in order. The zero value is ready for
// use.
type Client struct {
	mu        sync.Mutex // guards the rest
	said      []string
	questions []Question
	withdrawn []string // the ids of questions
	gone      []error
	changed   chan struct{} // closed at the next change
}

var _ bridge.Client = (*Client)(nil)

// Question is a question of the server.
type Question struct {
	Line  string                 // as on the wire
	Reply func(*jsonrpc.Message) // answers it
}

// Notify implements bridge.Client.
func (c *Client) Notify(m *jsonrpc.Message) {
	c.change(func() { c.said = append(c.said, Text(m)) })
}

// Ask implements bridge.Client.
func (c *Client) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	line := Text(m)
	c.change(func() { c.questions = append(c.questions, Question{line, reply}) })
	return func(why string) { c.change(func() { c.withdrawn = append(c.withdrawn, line+" "+why) }) }
}

// Gone implements bridge.Client.
func (c *Client) Gone(err error) { c.change(func() { c.gone = append(c.gone, err) }) }

func (c *Client) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Said returns the notifications so far, one line each.
func (c *Client) Said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

// Gones returns the errors of all calls of Gone so far.
func (c *Client) Gones() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.gone...)
}

// Questions returns how many questions were put so far.
func (c *Client) Questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.questions)
}

// WaitSaid waits until there are n notifications and returns all.
func (c *Client) WaitSaid(t testing.TB, n int) []string {
	t.Helper()
	c.wait(t, "notifications", func() bool { return len(c.said) >= n })
	return c.Said()
}

// WaitGone waits for the end of the connection.
func (c *Client) WaitGone(t testing.TB) error {
	t.Helper()
	c.wait(t, "the connection's end", func() bool { return len(c.gone) > 0 })
	return c.Gones()[0]
}

// WaitQuestion waits for the nth question, from 0.
func (c *Client) WaitQuestion(t testing.TB, n int) Question {
	t.Helper()
	c.wait(t, "a question", func() bool { return len(c.questions) > n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions[n]
}

// WaitWithdrawn waits until n questions were withdrawn and returns their lines,
// each followed by a space and the reason.
func (c *Client) WaitWithdrawn(t testing.TB, n int) []string {
	t.Helper()
	c.wait(t, "a withdrawal", func() bool { return len(c.withdrawn) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.withdrawn...)
}

// wait waits until so returns true. It calls so with the lock held.
func (c *Client) wait(t testing.TB, what string, so func() bool) {
	t.Helper()
	for {
		c.mu.Lock()
		if so() {
			c.mu.Unlock()
			return
		}
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		t.Logf("waiting for %s", what)
		<-changed
	}
}

// Text returns a whole message as one line.
func Text(m *jsonrpc.Message) string {
	if m == nil {
		return ""
	}
	return string(m.Append(nil, m.ID, nil))
}

// Parse parses a message.
func Parse(t testing.TB, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%.200q): %v", text, err)
	}
	return m
}

// Outcome is the result of a call.
type Outcome struct {
	Answer string // empty when none came
	Err    error  // nil when an answer came
}

// Result returns the result of the answer as it was on the wire.
func (o Outcome) Result(t testing.TB) string {
	t.Helper()
	if o.Err != nil || o.Answer == "" {
		t.Fatalf("the call ended with %.300q, %v, want an answer", o.Answer, o.Err)
	}
	m := Parse(t, o.Answer)
	if m.Result == nil {
		t.Fatalf("the answer is %.300q, want a result", o.Answer)
	}
	return string(m.Result)
}

// Call makes a call and waits for its end.
func Call(ctx context.Context, t testing.TB, up bridge.Upstream, back bridge.Client, text string) Outcome {
	t.Helper()
	return <-Go(ctx, t, up, back, text)
}

// Go makes a call in the background. The channel receives its outcome.
func Go(ctx context.Context, t testing.TB, up bridge.Upstream, back bridge.Client, text string) <-chan Outcome {
	t.Helper()
	m, ch := Parse(t, text), make(chan Outcome, 1)
	go func() {
		a, err := up.Call(ctx, &bridge.Request{Message: m, Back: back})
		o := Outcome{Text(a), err}
		a.Release()
		ch <- o
	}()
	return ch
}

// Caller is a caller with a client of 2025-11-25. more, if not empty, are further members of the
// params of initialize.
func Caller(more string) *bridge.Caller {
	if more != "" {
		more = "," + more
	}
	capabilities := `{"roots":{},"sampling":{},"x-new":{"n":12345678901234567890}}`
	return &bridge.Caller{
		Revision: "2025-11-25", Capabilities: []byte(capabilities),
		Params: []byte(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"test","version":"1","x":1.0}` + more + `}`),
	}
}

// Open opens a connection and closes it at the test's end.
func Open(t testing.TB, a bridge.Adapter, rest bridge.Client) bridge.Upstream {
	t.Helper()
	return OpenFor(t, a, Caller(""), rest)
}

// OpenFor opens a connection on behalf of from and closes it at the test's end.
func OpenFor(t testing.TB, a bridge.Adapter, from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // for Open only
	defer cancel()
	up, err := a.Open(ctx, from, rest)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = up.Close(context.Background()) })
	return up
}

// Seen returns the messages that the server has received so far, one line each.
func Seen(t testing.TB, up bridge.Upstream) []string {
	t.Helper()
	r := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":0,"method":"test/seen","params":{"seen":true}}`).Result(t)
	var said struct {
		Seen []json.RawMessage `json:"seen"`
	}
	if err := json.Unmarshal([]byte(r), &said); err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(said.Seen))
	for i, one := range said.Seen {
		lines[i] = string(one)
	}
	return lines
}

// WaitServer waits until the server has received a notification or an answer that contains text.
// text must not need quoting.
func WaitServer(t testing.TB, up bridge.Upstream, text string) {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":0,"method":"test/await","params":{"await":`+string(quoted)+`}}`).Result(t)
}

// find returns the first line that contains all parts.
func find(lines []string, parts ...string) string {
	for _, line := range lines {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return line
		}
	}
	return ""
}

// lost reports whether err means that the connection ended during the call.
func lost(err error) bool { return errors.Is(err, bridge.ErrLost) }
