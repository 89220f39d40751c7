package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/inprocess"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// deaf is a stream that nobody reads.
type deaf struct{}

func (deaf) Send(replay.Event) bool { return true }

// a tool of the SDK's that blocks until its questions are answered, as
// legacy servers do, is used by a client that has no session. It runs once.
func TestLowerWithSDK(t *testing.T) {
	ran := 0
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		ran++
		form := map[string]any{"type": "object", "properties": map[string]any{"seat": map[string]any{"type": "string"}}}
		sure, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Sure?", RequestedSchema: form})
		if err != nil {
			return nil, nil, err
		}
		said, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Which?", RequestedSchema: form})
		if err != nil {
			return nil, nil, err
		}
		text := fmt.Sprint(sure.Action, " ", said.Action, " ", said.Content["seat"])
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "sdk", Adapter: inprocess.Shared("sdk", s, inprocess.Options{})}}})
	defer g.Close(context.Background())
	call := func(more string) gjson.Result {
		t.Helper()
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{}` + more +
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, no := gateway.NewStateless("sdk", "", m)
		if no != nil {
			t.Fatalf("NewStateless = %s", no.Error)
		}
		s.Back = deaf{}
		a, err := g.Call(t.Context(), m, *s)
		if err != nil {
			t.Fatal(err)
		}
		return gjson.ParseBytes(a.Append(nil, a.ID, nil)).Get("result")
	}
	const accept = `{"action":"accept","content":{"seat":"12A"}}`
	result := call("")
	for rounds := 0; result.Get("resultType").Str == "input_required"; rounds++ {
		if rounds > 2 {
			t.Fatalf("it goes on: %s", result)
		}
		var given []string
		result.Get("inputRequests").ForEach(func(key, _ gjson.Result) bool {
			given = append(given, fmt.Sprintf("%q:%s", key.Str, accept))
			return true
		})
		result = call(`,"inputResponses":{` + strings.Join(given, ",") + `},"requestState":` + result.Get("requestState").Raw)
	}
	if got := result.Get("content.0.text").Str; got != "accept accept 12A" || ran != 1 {
		t.Errorf("got %s after %d runs", result, ran)
	}
}
