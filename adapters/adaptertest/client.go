package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Client is a bridge.Client that records received messages, in order. The zero value is ready for
// use.
type Client struct {
	mu        sync.Mutex // guards the fields below
	said      []string   // notifications, as JSON
	questions []Question
	withdrawn []string      // as WaitWithdrawn returns them
	gone      []error       // the errors of Gone
	changed   chan struct{} // closed at the next change; nil if nobody waits
}

var _ bridge.Client = (*Client)(nil)

// Question is a question of the server.
type Question struct {
	Line  string                 // the whole message as JSON
	Reply func(*jsonrpc.Message) // answers the question
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

// NoGone checks that Gone was not called so far.
func (c *Client) NoGone(t testing.TB) {
	t.Helper()
	if gone := c.Gones(); len(gone) > 0 {
		t.Errorf("Gone(%v)", gone)
	}
}

// Questions returns the number of questions so far.
func (c *Client) Questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.questions)
}

// WaitSaid waits until there are at least n notifications, and returns all.
func (c *Client) WaitSaid(t testing.TB, n int) []string {
	t.Helper()
	c.wait(t, "notifications", func() bool { return len(c.said) >= n })
	return c.Said()
}

// WaitGone waits for a call of Gone, and returns its error.
func (c *Client) WaitGone(t testing.TB) error {
	t.Helper()
	c.wait(t, "the connection's end", func() bool { return len(c.gone) > 0 })
	return c.Gones()[0]
}

// WaitQuestion waits for the question with index n.
func (c *Client) WaitQuestion(t testing.TB, n int) Question {
	t.Helper()
	c.wait(t, "a question", func() bool { return len(c.questions) > n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions[n]
}

// WaitWithdrawn waits until at least n questions were withdrawn, and returns the lines of all, each
// followed by a space and the reason.
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

// Text returns a whole message as JSON on one line, or "" for nil.
func Text(m *jsonrpc.Message) string {
	if m == nil {
		return ""
	}
	return string(m.Append(nil, m.ID, nil))
}

// Parse parses a message. A fault ends the test.
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
	Answer string // as JSON; empty if none came
	Err    error  // nil if an answer came
}

// Result returns the raw result of the answer. An outcome without a result ends the test.
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

// Call makes the call text and waits for its outcome. back gets the call's progress, and may be nil.
func Call(ctx context.Context, t testing.TB, up bridge.Upstream, back bridge.Client, text string) Outcome {
	t.Helper()
	return <-Go(ctx, t, up, back, text)
}

// Go makes a call as Call does, in another goroutine. The channel receives the outcome.
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

// Notify sends the notification text. A fault ends the test.
func Notify(t testing.TB, up bridge.Upstream, text string) {
	t.Helper()
	if err := up.Notify(t.Context(), &bridge.Request{Message: Parse(t, text)}); err != nil {
		t.Fatalf("Notify(%s): %v", text, err)
	}
}

// Caller returns a caller with a client of 2025-11-25. more, unless empty, has further members for the
// params of initialize, as JSON without braces.
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

// Open opens a connection for a Caller, and closes the connection at the test's end.
func Open(t testing.TB, a bridge.Adapter, rest bridge.Client) bridge.Upstream {
	t.Helper()
	return OpenFor(t, a, Caller(""), rest)
}

// OpenFor opens a connection on behalf of from, and closes the connection at the test's end.
func OpenFor(t testing.TB, a bridge.Adapter, from *bridge.Caller, rest bridge.Client) bridge.Upstream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // ends after Open, which the connection must survive
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

// WaitServer waits until the server has received a notification or an answer that contains text, which
// must not have characters that JSON escapes.
func WaitServer(t testing.TB, up bridge.Upstream, text string) {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":0,"method":"test/await","params":{"await":`+string(quoted)+`}}`).Result(t)
}

// find returns the first line that contains all parts, or "".
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

// Log is a buffer for several writers, such as the handlers of a log.
type Log struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns what was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Logger returns a logger that writes to l, from level debug on.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
