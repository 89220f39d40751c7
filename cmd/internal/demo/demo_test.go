package demo_test

import (
	"bytes"
	"context"
	"image/png"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/cmd/internal/demo"
)

// connect connects a client to the server until the test ends.
func connect(t *testing.T, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	ours, its := mcp.NewInMemoryTransports()
	served, err := demo.New().Connect(t.Context(), its, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = served.Wait()
	})
	return client
}

func TestTools(t *testing.T) {
	c := connect(t, nil)
	for _, test := range []struct {
		tool      string
		arguments map[string]any
		fails     bool
		want      string
	}{
		{"echo", map[string]any{"message": "hello"}, false, "Echo: hello"},
		{"get-sum", map[string]any{"a": 2, "b": 3.5}, false, "The sum of 2 and 3.5 is 5.5."},
		{"get-sum", map[string]any{"a": "x"}, true, "cannot unmarshal"},
		{"long-text", nil, false, "This is line 1000 of 1000.\n"},
		{"long-text", map[string]any{"lines": 0}, true, "lines is 0: must be from 1 to 100000"},
		{"slow", map[string]any{"steps": 0}, true, "steps must be from 1 to 1000"},
	} {
		got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: test.arguments})
		if err != nil {
			t.Errorf("%s: %v", test.tool, err)
			continue
		}
		if text := got.Content[0].(*mcp.TextContent).Text; got.IsError != test.fails || !strings.Contains(text, test.want) {
			t.Errorf("%s: fails %v, %.100q, want %v and %q", test.tool, got.IsError, text, test.fails, test.want)
		}
	}
	got, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "get-tiny-image"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(got.Content[0].(*mcp.ImageContent).Data)); err != nil {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []float64
		c := connect(t, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			steps = append(steps, r.Params.Progress/r.Params.Total)
		}})
		p := &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"steps": 4}}
		p.SetProgressToken("p")
		if got, err := c.CallTool(t.Context(), p); err != nil || got.IsError {
			t.Fatalf("%v, %v", got, err)
		}
		synctest.Wait()
		if len(steps) != 4 || steps[0] != 0.25 || steps[3] != 1 {
			t.Errorf("progress was %v", steps)
		}
	})
}

func TestResourceAndPrompt(t *testing.T) {
	c := connect(t, nil)
	if got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://about"}); err != nil || !strings.Contains(got.Contents[0].Text, "mcp-bridge run -- mcp-bridge demo") {
		t.Errorf("the resource is %v, %v", got, err)
	}
	if got, err := c.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greeting", Arguments: map[string]string{"name": "Ann"}}); err != nil || !strings.Contains(got.Messages[0].Content.(*mcp.TextContent).Text, "Greet Ann") {
		t.Errorf("the prompt is %v, %v", got, err)
	}
}
