package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/config"
)

// toy is an Adapter as a program has it: it unmarshals what it gets.
type toy struct {
	mu   sync.Mutex
	used []string // what calls were about, as the toy has read it
	odd  []string // where the members of a message say something else than its text
}

// Open implements bridge.Adapter.
func (t *toy) Open(_ context.Context, _ *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	return &toyUpstream{t}, nil
}

type toyUpstream struct{ a *toy }

// Server implements bridge.Upstream.
func (*toyUpstream) Server() *bridge.Greeting {
	const capabilities = `{"tools":{},"prompts":{},"completions":{},"resources":{}}`
	return &bridge.Greeting{Revision: "2025-11-25", Capabilities: []byte(capabilities),
		Result: []byte(`{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"toy","version":"1"}}`)}
}

// Call implements bridge.Upstream.
func (t *toyUpstream) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	var p struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Ref  struct {
			Name string `json:"name"`
		} `json:"ref"`
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if r.Params != nil {
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, err
		}
	}
	about := p.Name + p.URI + p.Ref.Name
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	if about != "" {
		t.a.used = append(t.a.used, r.Method+" "+about)
	}
	if r.Name() != p.Name || r.GivenName() != p.Name || r.URI() != p.URI || string(r.Whole()) != string(r.Params) {
		t.a.odd = append(t.a.odd, string(r.Params)+" beside "+r.Name()+" "+r.GivenName()+" "+r.URI()+" "+string(r.Whole()))
	}
	for key := range p.Meta {
		if strings.HasPrefix(key, "io.modelcontextprotocol/") {
			t.a.odd = append(t.a.odd, "a server with a handshake gets "+key)
		}
	}
	if r.Back != nil && r.Token() != nil {
		r.Back.Notify(jsonrpc.NewNotification("notifications/progress", []byte(`{"progressToken":`+gjson.GetBytes(r.Params, "_meta.progressToken").Raw+`,"progress":1}`)).Clone())
	}
	result := map[string]string{
		"tools/list":               `{"tools":[{"name":"double","inputSchema":{"type":"object"}},{"name":"secret","inputSchema":{"type":"object"}}]}`,
		"tools/call":               `{"content":[{"type":"text","text":"` + p.Name + `"}]}`,
		"prompts/list":             `{"prompts":[{"name":"tell"},{"name":"hidden"}]}`,
		"prompts/get":              `{"messages":[]}`,
		"completion/complete":      `{"completion":{"values":["` + p.Ref.Name + `"]}}`,
		"resources/list":           `{"resources":[{"uri":"toy://one","name":"one"}]}`,
		"resources/templates/list": `{"resourceTemplates":[]}`,
		"resources/read":           `{"contents":[]}`,
	}[r.Method]
	return jsonrpc.NewResult(r.ID, []byte(cmp.Or(result, "{}"))), nil
}

// Notify implements bridge.Upstream.
func (*toyUpstream) Notify(context.Context, *bridge.Request) error { return nil }

// Close implements bridge.Upstream.
func (*toyUpstream) Close(context.Context) error { return nil }

// A program's Adapter finds in Params the name that the access rules checked: the server's own, whatever
// clients call it. A denied tool never runs.
func TestOwnAdapterReadsItsNames(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		for path, prefix := range map[string]string{"/toy/mcp": "", "/mcp": "toy__"} {
			t.Run(revision+" "+path, func(t *testing.T) {
				t.Parallel()
				a := &toy{}
				c := config.Default()
				one, other := config.DefaultServer("toy", ""), config.DefaultServer("other", "")
				one.Adapter = a
				one.Tools = config.Rules{Deny: []string{"secret"}, Rename: map[string]string{"double": "secret"}}
				one.Prompts = config.Rules{Deny: []string{"hidden"}, Rename: map[string]string{"tell": "hidden"}}
				other.Adapter = inprocess.Shared("other", newFailing(), inprocess.Options{})
				c.Servers = []config.Server{one, other}
				if err := c.Validate(); err != nil {
					t.Fatal(err)
				}
				address, _ := serveAs(t, &c, slog.New(slog.DiscardHandler))
				told := make(chan any, 10)
				client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params.ProgressToken },
				})
				session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + address + path}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				call := &mcp.CallToolParams{Name: prefix + "secret", Arguments: map[string]any{"n": 1}}
				call.SetProgressToken("mine")
				if result, err := session.CallTool(t.Context(), call); err != nil || result.Content[0].(*mcp.TextContent).Text != "double" {
					t.Errorf("the tool that is called secret = %+v, %v, want double", result, err)
				} else if token := <-told; token != "mine" {
					t.Errorf("progress of %v, want mine", token)
				}
				if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: prefix + "double"}); err == nil {
					t.Errorf("double = %+v, want that there is no such tool", result)
				}
				if _, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: prefix + "hidden"}); err != nil {
					t.Error(err)
				}
				completed, err := session.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: prefix + "hidden"}, Argument: mcp.CompleteParamsArgument{Name: "a"}})
				if err != nil || completed.Completion.Values[0] != "tell" {
					t.Errorf("completion = %+v, %v, want of tell", completed, err)
				}
				if _, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "toy://one"}); err != nil {
					t.Error(err)
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				if want := []string{"tools/call double", "prompts/get tell", "completion/complete tell", "resources/read toy://one"}; !slices.Equal(a.used, want) || len(a.odd) > 0 {
					t.Errorf("the adapter has read %q, want %q; %q", a.used, want, a.odd)
				}
			})
		}
	}
}
