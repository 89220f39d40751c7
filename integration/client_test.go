//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// legacy is the newest revision with a handshake.
const legacy = "2025-11-25"

// A target is where a client connects to: an address of a bridge, or the
// command of a server to talk to directly.
type target struct {
	transport string // streamable, sse or stdio
	url       string
	command   []string
	direct    bool // no bridge is in between
}

func (t target) open() mcp.Transport {
	switch t.transport {
	case "streamable":
		return &mcp.StreamableClientTransport{Endpoint: t.url}
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: t.url}
	case "stdio":
		patience := left() // a bridge has a child of its own to end
		if t.direct {
			patience = time.Second
		}
		return &mcp.CommandTransport{Command: exec.Command(t.command[0], t.command[1:]...), TerminateDuration: patience}
	}
	panic("unknown transport " + t.transport)
}

// A peer is a client of the Go SDK with everything that the server sent it.
type peer struct {
	client  *mcp.Client
	session *mcp.ClientSession
	direct  bool // no bridge is in between

	mu       sync.Mutex // guards what follows
	seen     []message
	grown    chan struct{} // closed and replaced when seen grows
	sampled  []*mcp.CreateMessageParams
	elicited []*mcp.ElicitParams
	onSample func(*mcp.CreateMessageParams) (*mcp.CreateMessageResult, error)
	onElicit func(*mcp.ElicitParams) (*mcp.ElicitResult, error)
}

// A message is a request or notification of the server, in the order in which
// the SDK dispatched them.
type message struct {
	method string
	params mcp.Params
}

func (m message) String() string { return fmt.Sprintf("%s %s", m.method, brief(m.params)) }

// These are for a method that the SDK has no function for.
type (
	emptyParams struct{ mcp.ParamsBase }
	emptyResult struct{ mcp.ResultBase }
)

func (e *emptyParams) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

const unknownMethod = "no/such/method"

// newPeer returns a client that is not connected. A plain one has no
// capabilities.
func newPeer(name string, plain bool) *peer {
	p := &peer{grown: make(chan struct{})}
	p.onSample = func(q *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
		return &mcp.CreateMessageResult{
			Role: "assistant", Model: "model-of-the-client", StopReason: "endTurn",
			Content: &mcp.TextContent{Text: "answer to " + promptOf(q)},
		}, nil
	}
	p.onElicit = func(*mcp.ElicitParams) (*mcp.ElicitResult, error) { return &mcp.ElicitResult{Action: "cancel"}, nil }

	options := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if !plain {
		options.Capabilities = &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Sampling:    &mcp.SamplingCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		}
		options.CreateMessageHandler = func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			p.mu.Lock()
			p.sampled = append(p.sampled, r.Params)
			answer := p.onSample
			p.mu.Unlock()
			return answer(r.Params)
		}
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			p.mu.Lock()
			p.elicited = append(p.elicited, r.Params)
			answer := p.onElicit
			p.mu.Unlock()
			return answer(r.Params)
		}
	}
	p.client = mcp.NewClient(&mcp.Implementation{Name: name, Version: "1.0.0"}, options)
	p.client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			p.mu.Lock()
			p.seen = append(p.seen, message{method, r.GetParams()})
			close(p.grown)
			p.grown = make(chan struct{})
			p.mu.Unlock()
			return next(ctx, method, r)
		}
	})
	if err := mcp.AddSendingCustomMethod[*emptyParams, *emptyResult](p.client, unknownMethod); err != nil {
		panic(err)
	}
	return p
}

// connect opens the session, by the handshake of the given revision, or by
// whatever the SDK does by default if that is empty.
func (p *peer) connect(t *testing.T, w target, revision string) *peer {
	t.Helper()
	session, err := p.client.Connect(t.Context(), w.open(), &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect by %s: %v", w.transport, err)
	}
	p.session, p.direct = session, w.direct
	return p
}

func (p *peer) close(t *testing.T) {
	t.Helper()
	// Without a bridge the error is the exit code of a server that had to be
	// told twice, which is not what the script is about.
	if err := p.session.Close(); err != nil && !p.direct {
		t.Errorf("close the session: %v", err)
	}
}

// mark is a place in what was seen, for since and next.
func (p *peer) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seen)
}

// since returns the messages after from that match.
func (p *peer) since(from int, match func(message) bool) []message {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []message
	for _, m := range p.seen[from:] {
		if match(m) {
			found = append(found, m)
		}
	}
	return found
}

// next waits for the first message after from that matches.
func (p *peer) next(t *testing.T, from int, what string, match func(message) bool) message {
	t.Helper()
	found := p.collect(t, from, 1, what, match)
	return found[0]
}

// collect waits until at least n messages after from match.
func (p *peer) collect(t *testing.T, from, n int, what string, match func(message) bool) []message {
	t.Helper()
	late := time.After(left())
	for {
		p.mu.Lock()
		grown := p.grown
		p.mu.Unlock()
		found := p.since(from, match)
		if len(found) >= n {
			return found
		}
		select {
		case <-grown:
		case <-late:
			all := p.since(from, func(message) bool { return true })
			t.Fatalf("%s: %d, want %d; %d messages came, the last of them %v",
				what, len(found), n, len(all), all[max(0, len(all)-10):])
		}
	}
}

// tool calls a tool and returns its result, which may be a failure.
func (p *peer) tool(t *testing.T, name string, args map[string]any) *mcp.CallToolResult {
	t.Helper()
	r, err := p.call(t, name, args)
	if err != nil {
		t.Fatalf("tool %s: %v", name, err)
	}
	return r
}

func (p *peer) call(t *testing.T, name string, args map[string]any) (*mcp.CallToolResult, error) {
	if args == nil {
		args = map[string]any{} // a nil map would go out as null, which is not what absence means
	}
	return p.session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
}

// text calls a tool that must succeed and returns the text of its content.
func (p *peer) text(t *testing.T, name string, args map[string]any) string {
	t.Helper()
	r := p.tool(t, name, args)
	if r.IsError {
		t.Fatalf("tool %s failed: %s", name, textOf(r))
	}
	return textOf(r)
}

func textOf(r *mcp.CallToolResult) string {
	var texts []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func promptOf(q *mcp.CreateMessageParams) string {
	if text, ok := q.Messages[0].Content.(*mcp.TextContent); ok {
		return text.Text
	}
	return ""
}

// brief is v as JSON for a message to a person.
func brief(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(text) > 300 {
		return string(text[:300]) + "…"
	}
	return string(text)
}

func textURI(n int) string { return fmt.Sprintf("demo://resource/dynamic/text/%d", n) }

// same compares what went through JSON with what is written in the test.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := roundTrip(got), roundTrip(want); !reflect.DeepEqual(g, w) {
		t.Errorf("%s = %s, want %s", what, brief(got), brief(want))
	}
}

func roundTrip(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var back any
	json.Unmarshal(text, &back)
	return back
}

func contains(t *testing.T, what, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("%s = %q, want %q in it", what, got, want)
		}
	}
}

func includes(t *testing.T, what string, got []string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !slices.Contains(got, want) {
			t.Errorf("%s: no %s in %v", what, want, got)
		}
	}
}

func updateOf(uri string) func(message) bool {
	return func(m message) bool {
		u, ok := m.params.(*mcp.ResourceUpdatedNotificationParams)
		return ok && u.URI == uri
	}
}

func (p *peer) subscribe(t *testing.T, uri string) {
	t.Helper()
	if err := p.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatalf("subscribe %s: %v", uri, err)
	}
}

func (p *peer) unsubscribe(t *testing.T, uri string) {
	t.Helper()
	if err := p.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Fatalf("unsubscribe %s: %v", uri, err)
	}
}

func (p *peer) setLevel(t *testing.T, level mcp.LoggingLevel) {
	t.Helper()
	if err := p.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		t.Fatalf("set level %s: %v", level, err)
	}
}

func toolNames(tools []*mcp.Tool) []string {
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	return names
}
