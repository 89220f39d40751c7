package streamable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// kept keeps the headers of requests that pass.
type kept struct {
	http.Handler
	mu   sync.Mutex // guards seen
	seen []http.Header
}

func (k *kept) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.seen = append(k.seen, r.Header.Clone())
	k.mu.Unlock()
	k.Handler.ServeHTTP(w, r)
}

// methods returns what Mcp-Method said.
func (k *kept) methods() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, h := range k.seen {
		all = append(all, h.Get("Mcp-Method"))
	}
	return all
}

// Servers of the official Go SDK: a stateless one speaks both eras, and each
// caller gets its own; a stateful one speaks legacy revisions only.
func TestUpstreamModernSDK(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      mcp.StreamableHTTPOptions
		from   *bridge.Caller
		modern bool
	}{
		{"stateless", mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}, adaptertest.ModernCaller(), true},
		{"stateless json", mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true}, adaptertest.ModernCaller(), true},
		{"stateless, legacy client", mcp.StreamableHTTPOptions{Stateless: true}, adaptertest.Caller(""), false},
		{"stateful", mcp.StreamableHTTPOptions{}, adaptertest.ModernCaller(), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sdkServer()
			waiting := make(chan struct{}, 1)
			given := make(chan error, 1)
			object := json.RawMessage(`{"type":"object"}`)
			s.AddTool(&mcp.Tool{Name: "büchér", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "read"}}}, nil
			})
			s.AddTool(&mcp.Tool{Name: "wait", InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				waiting <- struct{}{}
				<-ctx.Done()
				given <- ctx.Err()
				return nil, ctx.Err()
			})
			k := &kept{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &c.o)}
			site := httptest.NewServer(k)
			t.Cleanup(site.Close)
			u := adapter(t, site.URL, nil, conn.Options{})
			up := adaptertest.OpenFor(t, u, c.from, &adaptertest.Client{})
			if got := up.Server().Modern(); got != c.modern {
				t.Fatalf("the server is taken for a modern one: %v", got)
			}
			text := func(method, params string) string {
				p := []byte(params)
				if c.modern {
					p = era.Inject(p, c.from.Meta().Members())
				}
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, p)
			}
			if got := adaptertest.Call(t.Context(), t, up, nil, text("tools/list", `{}`)).Result(t); !strings.Contains(got, `"büchér"`) || strings.Contains(got, `"resultType"`) != c.modern {
				t.Errorf("tools/list = %s", got)
			}
			if got := adaptertest.Call(t.Context(), t, up, nil, text("tools/call", `{"name":"echo","arguments":{"n":12345678901234567890}}`)).Result(t); !strings.Contains(got, "12345678901234567890") {
				t.Errorf("echo = %s", got)
			}
			if got := adaptertest.Call(t.Context(), t, up, nil, text("tools/call", `{"name":"büchér","arguments":{}}`)).Result(t); !strings.Contains(got, "read") {
				t.Errorf("büchér = %s", got)
			}
			if !c.modern {
				return
			}
			if o := adaptertest.Call(t.Context(), t, up, nil, text("no/such", `{}`)); o.Err != nil || !strings.Contains(o.Answer, "-32601") {
				t.Errorf("no/such = %s, %v", o.Answer, o.Err)
			}
			if !c.o.JSONResponse {
				back := &adaptertest.Client{}
				if got := adaptertest.Call(t.Context(), t, up, back, text("tools/call", `{"name":"progress","arguments":{},"_meta":{"progressToken":"p"}}`)).Result(t); !strings.Contains(got, "done") {
					t.Errorf("progress = %s", got)
				}
				if said := back.Said(); len(said) != 3 || !strings.Contains(said[0], `"progressToken":"p"`) {
					t.Errorf("progress = %q, want 3", said)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			call := adaptertest.Go(ctx, t, up, nil, text("tools/call", `{"name":"wait","arguments":{}}`))
			<-waiting
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Errorf("the tool ended with %v", err)
			}
			if o := <-call; !errors.Is(o.Err, context.Canceled) {
				t.Errorf("wait = %s, %v", o.Answer, o.Err)
			}
			if methods := k.methods(); slices.Contains(methods, "") || slices.Contains(methods, "notifications/cancelled") || methods[0] != "server/discover" {
				t.Errorf("the server received %q", methods)
			}
		})
	}
}

// A subscription to a server of the official Go SDK.
func TestUpstreamModernSDKListen(t *testing.T) {
	s := sdkServer()
	site := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(site.Close)
	from := adaptertest.ModernCaller()
	up := adaptertest.OpenFor(t, adapter(t, site.URL, nil, conn.Options{}), from, &adaptertest.Client{})
	back := &adaptertest.Client{}
	ctx, cancel := context.WithCancel(t.Context())
	listening := adaptertest.Go(ctx, t, up, back, `{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+
		string(era.Inject([]byte(`{"notifications":{"toolsListChanged":true}}`), from.Meta().Members()))+`}`)
	if said := back.WaitSaid(t, 1); !strings.Contains(said[0], "notifications/subscriptions/acknowledged") {
		t.Fatalf("said %q", said)
	}
	s.RemoveTools("poll")
	if said := back.WaitSaid(t, 2); !strings.Contains(said[1], "notifications/tools/list_changed") {
		t.Errorf("said %q", said)
	}
	cancel()
	if o := <-listening; !errors.Is(o.Err, context.Canceled) {
		t.Errorf("the subscription ended with %q, %v", o.Answer, o.Err)
	}
}
