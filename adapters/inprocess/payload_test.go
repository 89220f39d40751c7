//lint:file-ignore SA1019 logging and sampling are deprecated in 2026-07-28 and still part of everything.

package inprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
)

// arguments reach a tool as the bytes that the client sent, and
// what it returns comes back so, as far as the SDK lets it.
func TestPayload(t *testing.T) {
	const odd = `{"big":12345678901234567890,"float":1.0,"exp":1E+2,"neg":-0,"esc":"\u00e9\/","raw":"é😀","long":0.1000000000000000055511151231257827,"dup":1,"dup":2}`
	s := mcp.NewServer(&mcp.Implementation{Name: "n", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object","x-unknown":12345678901234567890}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if got := string(r.Params.Arguments); got != odd {
				t.Errorf("the tool got %s\nwant         %s", got, odd)
			}
			return &mcp.CallToolResult{StructuredContent: r.Params.Arguments, Content: []mcp.Content{}}, nil
		})
	up := open(t, Shared("n", s, quiet(Options{})), &adaptertest.Client{})
	if got := adaptertest.Call(t.Context(), t, up, nil, tool("echo", `"arguments":`+odd)).Result(t); !strings.Contains(got, `"structuredContent":`+odd) {
		t.Errorf("result = %s\nwant %s in it", got, odd)
	}
	if got := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Result(t); !strings.Contains(got, `"x-unknown":12345678901234567890`) {
		t.Errorf("tools = %s", got)
	}
	// JSON-RPC errors of the SDK's come as they are.
	if o := adaptertest.Call(t.Context(), t, up, nil, tool("none", "")); o.Err != nil || !strings.Contains(o.Answer, `"code":-32602`) {
		t.Errorf("an unknown tool: %s, %v", o.Answer, o.Err)
	}
	if o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`); o.Err != nil || !strings.Contains(o.Answer, `"code":-32601`) {
		t.Errorf("an unknown method: %s, %v", o.Answer, o.Err)
	}
}

// What the bridge cannot pass on costs the message, not the session, and a
// question is answered all the same. So it is with what a handler fails with.
func TestTooDeep(t *testing.T) {
	deep := json.RawMessage(strings.Repeat("[", 1500) + strings.Repeat("]", 1500))
	s := newServer(nil, map[string]handler{"deep": func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "error", Data: deep}); err != nil {
			return "", err
		}
		_, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 7, Messages: []*mcp.SamplingMessage{}, Metadata: deep})
		return fmt.Sprint(err), nil
	}})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "prompts/get" {
				return nil, &sdk.Error{Code: 7, Message: "deep", Data: deep}
			}
			return next(ctx, method, r)
		}
	})
	rest := &adaptertest.Client{}
	up := open(t, Shared("n", s, quiet(Options{})), rest)
	adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`).Result(t)
	for range 2 {
		if got := said(t, adaptertest.Call(t.Context(), t, up, nil, tool("deep", ""))); !strings.Contains(got, "cannot be passed on") {
			t.Errorf("the question ended with %q", got)
		}
		if o := adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`); o.Err != nil || !strings.Contains(o.Answer, "cannot be passed on") {
			t.Errorf("the call ended with %.200q, %v", o.Answer, o.Err)
		}
	}
	rest.NoGone(t)
	if got := rest.Said(); len(got) > 0 {
		t.Errorf("passed on: %.100q", got)
	}
}

// Headers that the server's allow-list forwards are where tools find them
// behind the SDK's own HTTP server.
func TestHeader(t *testing.T) {
	s := newServer(nil, map[string]handler{"tenant": func(_ context.Context, r *mcp.CallToolRequest) (string, error) {
		return r.Extra.Header.Get("X-Tenant"), nil
	}})
	up := open(t, Shared("n", s, quiet(Options{})), &adaptertest.Client{})
	m := adaptertest.Parse(t, tool("tenant", ""))
	a, err := up.Call(t.Context(), &bridge.Request{Message: m, Header: map[string][]string{"X-Tenant": {"blue"}}})
	if err != nil || !strings.Contains(string(a.Result), "blue") {
		t.Errorf("the tool said %s, %v", adaptertest.Text(a), err)
	}
	if got := said(t, adaptertest.Call(t.Context(), t, up, nil, tool("tenant", ""))); got != "" {
		t.Errorf("without a header the tool said %q", got)
	}
}
