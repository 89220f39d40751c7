//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package inprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
)

// handler is a tool without a schema of its own.
type handler func(ctx context.Context, r *mcp.CallToolRequest) (string, error)

// newServer makes a server with these tools.
func newServer(o *mcp.ServerOptions, tools map[string]handler) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "clock", Version: "1.2.3"}, o)
	for name, h := range tools {
		addTool(s, name, h)
	}
	return s
}

func addTool(s *mcp.Server, name string, h handler) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			said, err := h(ctx, r)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil
		})
}

// caller has a client with everything that servers can ask for.
func caller() *bridge.Caller {
	capabilities := `{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`
	return &bridge.Caller{
		Revision: "2025-11-25", Capabilities: []byte(capabilities),
		Params: []byte(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"test","version":"1"}}`),
	}
}

// open opens a connection and closes it at the test's end.
func open(t testing.TB, a *Adapter, rest bridge.Client) *session {
	t.Helper()
	up, err := a.Open(t.Context(), caller(), rest)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = up.Close(context.Background()) })
	return up.(*session)
}

// tool is the text of a call of a tool. more, if not empty, are further members
// of its params.
func tool(name, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":%q%s}}`, name, more)
}

// said is the text that a tool answers with.
func said(t testing.TB, o adaptertest.Outcome) string {
	t.Helper()
	var r struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal([]byte(o.Result(t)), &r); err != nil || len(r.Content) != 1 {
		t.Fatalf("the answer is %.300q, %v, want one content", o.Answer, err)
	}
	return r.Content[0].Text
}

// The connection has a session for any caller: a client without one is
// translated for, and the server can ask.
func TestModernCaller(t *testing.T) {
	s := newServer(&mcp.ServerOptions{Instructions: "ask for the time"}, map[string]handler{"roots": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		a, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return "", err
		}
		return a.Roots[0].URI, nil
	}})
	from := caller()
	from.Revision, from.Capabilities = "2026-07-28", []byte(`{"roots":{}}`)
	rest := &adaptertest.Client{}
	up, err := Shared("clock", s, quiet(Options{})).Open(t.Context(), from, rest)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer up.Close(context.Background())
	if got := up.Server(); got.Modern() || got.Revision != "2025-11-25" {
		t.Errorf("Revision = %q", got.Revision)
	}
	for _, want := range []string{`"name":"clock"`, `"instructions":"ask for the time"`, `"capabilities":{`} {
		if got := string(up.Server().Result); !strings.Contains(got, want) {
			t.Errorf("Result = %s, want %s in it", got, want)
		}
	}
	call := adaptertest.Go(t.Context(), t, up, nil, tool("roots", ""))
	rest.WaitQuestion(t, 0).Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///home"}]}}`))
	if got := said(t, <-call); got != "file:///home" {
		t.Errorf("the tool said %q", got)
	}
}

// progress comes back under the client's token, before the answer.
func TestProgress(t *testing.T) {
	s := newServer(nil, map[string]handler{"work": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1), Message: "step"}); err != nil {
				return "", err
			}
		}
		return "done", nil
	}})
	up := open(t, Shared("clock", s, quiet(Options{})), &adaptertest.Client{})
	back := &adaptertest.Client{}
	if got := said(t, adaptertest.Call(t.Context(), t, up, back, tool("work", `"_meta":{"progressToken":12345678901234567890}`))); got != "done" {
		t.Errorf("the tool said %q", got)
	}
	got := back.Said()
	if len(got) != 3 {
		t.Fatalf("progress = %q, want three reports before the answer", got)
	}
	for i, line := range got {
		if !strings.Contains(line, `"progressToken":12345678901234567890`) || !strings.Contains(line, fmt.Sprintf(`"progress":%d`, i+1)) {
			t.Errorf("report %d = %s", i, line)
		}
	}
}

// D0.1: what a tool asks the client comes as a question, and its answer, or
// error, reaches the tool.
func TestQuestions(t *testing.T) {
	s := newServer(nil, map[string]handler{
		"sample": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
			m, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 7, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "what time?"}}}})
			if err != nil {
				return "", err
			}
			return m.Model + ": " + m.Content.(*mcp.TextContent).Text, nil
		},
		"elicit": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
			e, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "which zone?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string"}}}`)})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(e.Action, " ", e.Content["zone"]), nil
		},
		"ping": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
			return "alive", r.Session.Ping(ctx, nil)
		},
	})
	for _, c := range []struct{ tool, method, answer, want string }{
		{"sample", "sampling/createMessage", `"result":{"role":"assistant","model":"m","content":{"type":"text","text":"noon"}}`, "m: noon"},
		{"sample", "sampling/createMessage", `"error":{"code":-1,"message":"user said no","data":{"n":1}}`, "user said no"},
		{"sample", "sampling/createMessage", `"error":{"code":"odd"}`, "odd"},
		{"elicit", "elicitation/create", `"result":{"action":"accept","content":{"zone":"UTC"}}`, "accept UTC"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			rest := &adaptertest.Client{}
			up := open(t, Shared("clock", s, quiet(Options{})), rest)
			call := adaptertest.Go(t.Context(), t, up, nil, tool(c.tool, ""))
			q := rest.WaitQuestion(t, 0)
			if !strings.Contains(q.Line, `"method":"`+c.method+`"`) {
				t.Errorf("the question is %s, want %s", q.Line, c.method)
			}
			q.Reply(adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,`+c.answer+`}`))
			if o := <-call; o.Err != nil || !strings.Contains(o.Answer, c.want) {
				t.Errorf("the tool said %s, %v, want %q in it", o.Answer, o.Err, c.want)
			}
		})
	}
	up := open(t, Shared("clock", s, quiet(Options{})), &adaptertest.Client{}) // no request is sent
	if got := said(t, adaptertest.Call(t.Context(), t, up, nil, tool("ping", ""))); got != "alive" {
		t.Errorf("the tool said %q", got)
	}
}

// a tool whose call is cancelled learns of it, and takes back what it
// has asked.
func TestCancel(t *testing.T) {
	began := make(chan struct{})
	ended := make(chan error, 1)
	s := newServer(nil, map[string]handler{
		"hang": func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
			close(began)
			<-ctx.Done()
			ended <- ctx.Err()
			return "", ctx.Err()
		},
		"ask": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
			_, err := r.Session.ListRoots(ctx, nil)
			ended <- err
			return "", err
		},
	})
	rest := &adaptertest.Client{}
	up := open(t, Shared("clock", s, quiet(Options{})), rest)
	ctx, cancel := context.WithCancelCause(t.Context())
	call := adaptertest.Go(ctx, t, up, nil, tool("hang", ""))
	<-began
	cancel(bridge.ErrCancelled)
	if o := <-call; o.Err == nil {
		t.Errorf("the call ended with %s", o.Answer)
	}
	if err := <-ended; err == nil {
		t.Error("the tool's context has not ended")
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	call = adaptertest.Go(ctx, t, up, nil, tool("ask", ""))
	rest.WaitQuestion(t, 0)
	cancel(bridge.ErrCancelled)
	<-call
	<-ended
	rest.WaitWithdrawn(t, 1)
}

// Levels, subscriptions and changes of lists work as over any transport, each
// for the session that wants them.
func TestNotifications(t *testing.T) {
	s := newServer(&mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	}, map[string]handler{"log": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "error"} {
			if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Data: "tick"}); err != nil {
				return "", err
			}
		}
		return "logged", nil
	}})
	s.AddResource(&mcp.Resource{URI: "clock://now", Name: "now"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "clock://now", Text: "noon"}}}, nil
	})
	a := Shared("clock", s, quiet(Options{}))
	first, second := &adaptertest.Client{}, &adaptertest.Client{}
	up, other := open(t, a, first), open(t, a, second)
	call := func(text string) { adaptertest.Call(t.Context(), t, up, nil, text).Result(t) }
	call(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`)
	call(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"clock://now"}}`)
	call(tool("log", ""))
	if got := first.Said(); len(got) != 1 || !strings.Contains(got[0], `"level":"error"`) {
		t.Errorf("log messages = %q, want the one above the level, before the answer", got)
	}
	if err := s.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "clock://now"}); err != nil {
		t.Fatal(err)
	}
	if got := first.WaitSaid(t, 2); !strings.Contains(got[1], `"notifications/resources/updated"`) || !strings.Contains(got[1], "clock://now") {
		t.Errorf("notifications = %q, want the update of the resource", got)
	}
	addTool(s, "new", func(context.Context, *mcp.CallToolRequest) (string, error) { return "", nil })
	if got := first.WaitSaid(t, 3); !strings.Contains(got[2], `"notifications/tools/list_changed"`) {
		t.Errorf("notifications = %q, want the change of the tools", got)
	}
	if got := second.WaitSaid(t, 1); len(got) != 1 || !strings.Contains(got[0], `"notifications/tools/list_changed"`) {
		t.Errorf("notifications to the session that has subscribed to nothing = %q", got)
	}
	if got := adaptertest.Call(t.Context(), t, other, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Result(t); !strings.Contains(got, `"name":"new"`) {
		t.Errorf("tools = %s", got)
	}
}

// Notifications of clients reach the server's handlers.
func TestClientNotifications(t *testing.T) {
	told := make(chan string, 2)
	s := newServer(&mcp.ServerOptions{
		InitializedHandler:      func(context.Context, *mcp.InitializedRequest) { told <- "initialized" },
		RootsListChangedHandler: func(context.Context, *mcp.RootsListChangedRequest) { told <- "roots" },
	}, nil)
	up := open(t, Shared("clock", s, quiet(Options{})), &adaptertest.Client{})
	adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"notifications/vendor/unknown","params":{"x":1}}`)
	adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	if got := []string{<-told, <-told}; !slices.Equal(got, []string{"initialized", "roots"}) {
		t.Errorf("told = %q", got)
	}
}

// A shared server has a session for each connection, and none afterwards.
func TestShared(t *testing.T) {
	s := newServer(nil, nil)
	a := Shared("clock", s, quiet(Options{}))
	var open []bridge.Upstream
	for range 200 {
		up, err := a.Open(t.Context(), caller(), &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, up)
	}
	if n := len(slices.Collect(s.Sessions())); n != len(open) {
		t.Errorf("%d sessions, want %d", n, len(open))
	}
	for _, up := range open {
		_ = up.Close(t.Context())
	}
	if n := len(slices.Collect(s.Sessions())); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}
