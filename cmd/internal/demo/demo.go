// Package demo is a small MCP server inside the program. It shows what clients and the bridge do, without anything
// else installed.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/server"
)

// Serve serves one client on a pair of streams, until in or ctx ends.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := New().Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// tool is a tool of the demonstration. call checks the bounds of the arguments.
type tool struct {
	name, about, schema string
	call                func(ctx context.Context, r *mcp.CallToolRequest, a *arguments) ([]mcp.Content, error)
}

// arguments are the arguments of all tools.
type arguments struct {
	Message  string  `json:"message"`
	A        float64 `json:"a"`
	B        float64 `json:"b"`
	Lines    int     `json:"lines"`
	Duration float64 `json:"duration"` // in seconds
	Steps    int     `json:"steps"`
}

// These constants bound what one call may ask for.
const (
	maxLines    = 100_000
	maxDuration = 600 // seconds
	maxSteps    = 1000
)

var tools = []tool{
	{
		name:   "echo",
		about:  "Returns the message",
		schema: `{"type":"object","properties":{"message":{"type":"string","description":"Message to return"}},"required":["message"]}`,
		call:   echo,
	},
	{
		name:   "get-sum",
		about:  "Adds two numbers",
		schema: `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`,
		call:   sum,
	},
	{
		name:   "get-tiny-image",
		about:  "Returns a small PNG image",
		schema: `{"type":"object"}`,
		call:   tinyImage,
	},
	{
		name:   "long-text",
		about:  "Returns a text of many numbered lines",
		schema: `{"type":"object","properties":{"lines":{"type":"integer","minimum":1,"maximum":100000,"default":1000}}}`,
		call:   longText,
	},
	{
		name:  "slow",
		about: "Takes its time, and reports progress",
		schema: `{"type":"object","properties":{"duration":{"type":"number","description":"Seconds in all","minimum":0,"maximum":600,"default":10},` +
			`"steps":{"type":"integer","minimum":1,"maximum":1000,"default":5}}}`,
		call: slow,
	},
}

// New returns the server.
func New() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "mcp-bridge demo", Version: server.Version()}, &mcp.ServerOptions{
		Instructions: "This server is a demonstration. Nothing that it does has an effect.",
	})
	for _, t := range tools {
		s.AddTool(&mcp.Tool{
			Name:        t.name,
			Description: t.about,
			InputSchema: json.RawMessage(t.schema),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)},
		}, t.handle)
	}
	s.AddResource(&mcp.Resource{
		URI:         "demo://about",
		Name:        "about",
		Description: "What this server is",
		MIMEType:    "text/plain",
	}, about)
	s.AddPrompt(&mcp.Prompt{
		Name:        "greeting",
		Description: "Asks for a greeting",
		Arguments:   []*mcp.PromptArgument{{Name: "name", Description: "Whom to greet", Required: true}},
	}, greeting)
	return s
}

func (t *tool) handle(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := arguments{Lines: 1000, Duration: 10, Steps: 5}
	var content []mcp.Content
	var err error
	if len(r.Params.Arguments) > 0 {
		err = json.Unmarshal(r.Params.Arguments, &a)
	}
	if err == nil {
		content, err = t.call(ctx, r, &a)
	}
	if err != nil {
		return &mcp.CallToolResult{Content: text(err.Error()), IsError: true}, nil
	}
	return &mcp.CallToolResult{Content: content}, nil
}

func text(s string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: s}} }

func echo(_ context.Context, _ *mcp.CallToolRequest, a *arguments) ([]mcp.Content, error) {
	return text("Echo: " + a.Message), nil
}

func sum(_ context.Context, _ *mcp.CallToolRequest, a *arguments) ([]mcp.Content, error) {
	return text(fmt.Sprintf("The sum of %v and %v is %v.", a.A, a.B, a.A+a.B)), nil
}

func tinyImage(context.Context, *mcp.CallToolRequest, *arguments) ([]mcp.Content, error) {
	const side = 32
	picture := image.NewRGBA(image.Rect(0, 0, side, side))
	for x := range side {
		for y := range side {
			picture.Set(x, y, color.RGBA{uint8(x * 8), uint8(y * 8), 160, 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		return nil, err
	}
	return []mcp.Content{&mcp.ImageContent{Data: b.Bytes(), MIMEType: "image/png"}}, nil
}

func longText(_ context.Context, _ *mcp.CallToolRequest, a *arguments) ([]mcp.Content, error) {
	if a.Lines < 1 || a.Lines > maxLines {
		return nil, fmt.Errorf("lines is %d: must be from 1 to %d", a.Lines, maxLines)
	}
	var b strings.Builder
	for i := range a.Lines {
		fmt.Fprintf(&b, "This is line %d of %d.\n", i+1, a.Lines)
	}
	return text(b.String()), nil
}

func slow(ctx context.Context, r *mcp.CallToolRequest, a *arguments) ([]mcp.Content, error) {
	if a.Steps < 1 || a.Steps > maxSteps || !(a.Duration >= 0 && a.Duration <= maxDuration) {
		return nil, fmt.Errorf("steps must be from 1 to %d, and duration from 0 to %d", maxSteps, maxDuration)
	}
	token := r.Params.GetProgressToken()
	for i := range a.Steps {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(a.Duration / float64(a.Steps) * float64(time.Second))):
		}
		if token == nil {
			continue
		}
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(i + 1),
			Total:         float64(a.Steps),
		}); err != nil {
			return nil, err
		}
	}
	return text(fmt.Sprintf("Done, after %v s in %d steps.", a.Duration, a.Steps)), nil
}

func about(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
		URI:      "demo://about",
		MIMEType: "text/plain",
		Text:     "A demonstration server inside mcp-bridge. Start it with: mcp-bridge run -- mcp-bridge demo\n",
	}}}, nil
}

func greeting(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{
		Role:    "user",
		Content: &mcp.TextContent{Text: "Greet " + r.Params.Arguments["name"] + " in one friendly sentence."},
	}}}, nil
}
