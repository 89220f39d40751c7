//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on, and part of every revision.

// Eraclient is a client of one revision of the protocol, made with the Go SDK. It reads commands from stdin, one
// line of JSON each, and writes results to stdout. The script of the era matrix, eras/script.mjs, drives it
// (eras/gopeer.mjs).
//
//	eraclient REVISION streamable|sse URL
//	eraclient REVISION stdio COMMAND ARGS…
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const modern = "2026-07-28"

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: eraclient REVISION streamable|sse URL | eraclient REVISION stdio COMMAND ARGS…")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "eraclient:", err)
		os.Exit(1)
	}
}

// A line is a line of stdin: a command, or the answer to a question.
type line struct {
	ID     int
	Do     string // a method, or cancel, watch, unwatch or close
	Params json.RawMessage
	Target int // number of the command to cancel

	Answer int // number of a question
	Result json.RawMessage
	Error  *jsonrpc.Error
}

type client struct {
	revision string
	session  *mcp.ClientSession

	mu        sync.Mutex // guards the rest, and stdout
	questions map[int]chan line
	asked     int
	cancels   map[int]context.CancelFunc
	acked     []mcp.NotificationSubscriptions
	news      chan struct{} // closed and replaced when acked grows
}

func (c *client) say(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// ask writes a question of the server to stdout and waits for the answer on stdin.
func (c *client) ask(ctx context.Context, method string, params, into any) error {
	answered := make(chan line, 1)
	c.mu.Lock()
	c.asked++
	n := c.asked
	c.questions[n] = answered
	c.mu.Unlock()
	c.say(map[string]any{"ask": n, "method": method, "params": params})
	select {
	case l := <-answered:
		if l.Error != nil {
			return l.Error
		}
		return json.Unmarshal(l.Result, into)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func run(revision, transport string, where []string) error {
	c := &client{
		revision:  revision,
		questions: map[int]chan line{},
		cancels:   map[int]context.CancelFunc{},
		news:      make(chan struct{}),
	}
	var t mcp.Transport
	switch transport {
	case "streamable":
		t = &mcp.StreamableClientTransport{Endpoint: where[0]}
	case "sse":
		t = &mcp.SSEClientTransport{Endpoint: where[0]}
	default:
		t = &mcp.CommandTransport{Command: exec.Command(where[0], where[1:]...), TerminateDuration: 2 * time.Second}
	}
	m := mcp.NewClient(&mcp.Implementation{Name: "client-" + revision, Version: "1.0.0"}, c.options())
	m.AddRoots(&mcp.Root{URI: "file:///era/home", Name: "home"})
	m.AddReceivingMiddleware(c.watching)
	if err := mcp.AddSendingCustomMethod[*emptyParams, *emptyResult](m, "no/such/method"); err != nil {
		return err
	}
	var err error
	c.session, err = m.Connect(context.Background(), t, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return err
	}
	opened := c.session.InitializeResult()
	if opened.ProtocolVersion != revision {
		return fmt.Errorf("negotiated %s, want %s", opened.ProtocolVersion, revision)
	}
	c.say(map[string]any{"open": opened, "session": c.session.ID()})
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		switch {
		case l.Answer != 0:
			c.mu.Lock()
			answered := c.questions[l.Answer]
			delete(c.questions, l.Answer)
			c.mu.Unlock()
			answered <- l
		case l.Do == "cancel":
			c.mu.Lock()
			c.cancels[l.Target]()
			c.mu.Unlock()
		case l.Do == "close":
			return c.session.Close()
		default:
			ctx, cancel := context.WithCancel(context.Background())
			c.mu.Lock()
			c.cancels[l.ID] = cancel
			c.mu.Unlock()
			go c.do(ctx, l) // ends with the call or with the process
		}
	}
}

// options enables all features of the revision.
func (c *client) options() *mcp.ClientOptions {
	capabilities := &mcp.ClientCapabilities{
		RootsV2:  &mcp.RootCapabilities{ListChanged: c.revision < modern},
		Sampling: &mcp.SamplingCapabilities{},
	}
	o := &mcp.ClientOptions{
		Capabilities: capabilities,
		// In the modern era, the SDK listens if there is a handler.
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) {},
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) {},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {},
	}
	if c.revision >= "2025-06-18" {
		capabilities.Elicitation = &mcp.ElicitationCapabilities{}
		o.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			var result mcp.ElicitResult
			return &result, c.ask(ctx, "elicitation/create", r.Params, &result)
		}
	}
	if c.revision >= "2025-11-25" {
		capabilities.Sampling.Tools = &mcp.SamplingToolsCapabilities{}
		capabilities.Elicitation.Form = &mcp.FormElicitationCapabilities{}
		capabilities.Elicitation.URL = &mcp.URLElicitationCapabilities{}
		o.CreateMessageWithToolsHandler = func(ctx context.Context, r *mcp.CreateMessageWithToolsRequest) (*mcp.CreateMessageWithToolsResult, error) {
			var result mcp.CreateMessageWithToolsResult
			return &result, c.ask(ctx, "sampling/createMessage", r.Params, &result)
		}
	} else {
		o.CreateMessageHandler = func(ctx context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			var result mcp.CreateMessageResult
			return &result, c.ask(ctx, "sampling/createMessage", r.Params, &result)
		}
	}
	return o
}

// watching writes the server's notifications.
func (c *client) watching(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		c.say(map[string]any{"method": method, "params": r.GetParams()})
		if ack, ok := r.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok {
			c.mu.Lock()
			c.acked = append(c.acked, ack.Notifications)
			close(c.news)
			c.news = make(chan struct{})
			c.mu.Unlock()
		}
		return next(ctx, method, r)
	}
}

// acknowledged waits until the server has confirmed a subscription.
func (c *client) acknowledged(ctx context.Context, is func(mcp.NotificationSubscriptions) bool) error {
	for {
		c.mu.Lock()
		found, news := slices.ContainsFunc(c.acked, is), c.news
		c.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// do runs a command and writes its result.
func (c *client) do(ctx context.Context, l line) {
	result, err := c.outcome(ctx, l)
	said := map[string]any{"id": l.ID, "result": result}
	if err != nil {
		failure := map[string]any{"message": err.Error()}
		var e *jsonrpc.Error
		if errors.As(err, &e) {
			failure["code"], failure["data"] = e.Code, e.Data
		}
		said = map[string]any{"id": l.ID, "error": failure}
	}
	c.mu.Lock()
	c.cancels[l.ID]()
	delete(c.cancels, l.ID)
	c.mu.Unlock()
	c.say(said)
}

// emptyParams and emptyResult are for methods for which the SDK has no functions.
type (
	emptyParams struct{ mcp.ParamsBase }
	emptyResult struct{ mcp.ResultBase }
)

func (c *client) outcome(ctx context.Context, l line) (any, error) {
	s := c.session
	switch l.Do {
	case "ping":
		return nil, s.Ping(ctx, nil)
	case "tools/list":
		return call(ctx, l, s.ListTools)
	case "tools/call":
		return call(ctx, l, s.CallTool)
	case "resources/list":
		return call(ctx, l, s.ListResources)
	case "resources/templates/list":
		return call(ctx, l, s.ListResourceTemplates)
	case "resources/read":
		return call(ctx, l, s.ReadResource)
	case "prompts/list":
		return call(ctx, l, s.ListPrompts)
	case "prompts/get":
		return call(ctx, l, s.GetPrompt)
	case "completion/complete":
		return call(ctx, l, s.Complete)
	case "logging/setLevel":
		return call(ctx, l, none(s.SetLoggingLevel))
	case "no/such/method":
		return mcp.CallCustomMethod[*emptyParams, *emptyResult](ctx, s, l.Do, &emptyParams{})
	case "watch":
		var what struct {
			Lists bool
			URI   string
		}
		if err := json.Unmarshal(l.Params, &what); err != nil {
			return nil, err
		}
		if what.URI != "" {
			if err := s.Subscribe(ctx, &mcp.SubscribeParams{URI: what.URI}); err != nil {
				return nil, err
			}
		}
		if c.revision < modern {
			return nil, nil
		}
		return nil, c.acknowledged(ctx, func(n mcp.NotificationSubscriptions) bool {
			return what.Lists && n.ToolsListChanged && n.PromptsListChanged && n.ResourcesListChanged ||
				what.URI != "" && slices.Contains(n.ResourceSubscriptions, what.URI)
		})
	case "unwatch":
		return call(ctx, l, none(s.Unsubscribe))
	}
	return nil, fmt.Errorf("unknown: %q", l.Do)
}

func call[P any, R any](ctx context.Context, l line, f func(context.Context, *P) (R, error)) (any, error) {
	params := new(P)
	if l.Params != nil {
		if err := json.Unmarshal(l.Params, params); err != nil {
			return nil, err
		}
	}
	return f(ctx, params)
}

func none[P any](f func(context.Context, *P) error) func(context.Context, *P) (any, error) {
	return func(ctx context.Context, params *P) (any, error) { return nil, f(ctx, params) }
}
