//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on, and part of every revision.

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	png = decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	wav = decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEA")
)

func decode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err) // the text is part of the program
	}
	return b
}

// arguments are the arguments of all tools.
type arguments struct {
	Key     string
	Of      string
	Message string
	Region  string
	N       int
	Lines   [][2]string
	Kind    string
	Name    string
	URI     string
	Prompt  string
}

// schema returns an input schema with the given properties besides the key.
func schema(properties string) json.RawMessage {
	if properties != "" {
		properties = "," + properties
	}
	return json.RawMessage(`{"type":"object","properties":{"key":{"type":"string"}` + properties + `}}`)
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// add adds a tool that exists since a revision, and counts the tool's calls.
func (s *server) add(since string, tool *mcp.Tool, run func(context.Context, *mcp.CallToolRequest, arguments) (*mcp.CallToolResult, error)) {
	if !s.since(since) {
		return
	}
	if tool.InputSchema == nil {
		tool.InputSchema = schema("")
	}
	s.mcp.AddTool(tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args arguments
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		if r.Params.InputResponses == nil && r.Params.RequestState == "" {
			s.count(args.Key, func(r *ran) { r.Begun++ })
		}
		result, err := run(ctx, r, args)
		if err == nil && result.InputRequests == nil {
			s.count(args.Key, func(r *ran) { r.Ended++ })
		}
		return result, err
	})
}

// addTools adds the tools that do not ask the client.
func (s *server) addTools() {
	plain := func(since, name string, result func() *mcp.CallToolResult) {
		s.add(since, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, arguments) (*mcp.CallToolResult, error) {
			return result(), nil
		})
	}
	content := func(c mcp.Content) func() *mcp.CallToolResult {
		return func() *mcp.CallToolResult { return &mcp.CallToolResult{Content: []mcp.Content{c}} }
	}
	text := &mcp.Tool{Name: "text", InputSchema: schema(`"message":{"type":"string"}`)}
	if s.since(rev2) {
		text.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true}
	}
	if s.since(rev3) {
		text.Title = "Echo"
	}
	if s.since(rev4) {
		text.Icons = []mcp.Icon{{Source: "https://icons.example/echo.png"}}
	}
	s.add(rev1, text, func(_ context.Context, _ *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
		return said(args.Message), nil
	})
	s.mcp.AddTool(&mcp.Tool{Name: "count", InputSchema: schema(`"of":{"type":"string"}`)}, s.tell)
	plain(rev1, "image", content(&mcp.ImageContent{Data: png, MIMEType: "image/png"}))
	plain(rev2, "audio", content(&mcp.AudioContent{Data: wav, MIMEType: "audio/wav"}))
	plain(rev1, "embedded", content(&mcp.EmbeddedResource{
		Resource: &mcp.ResourceContents{
			URI:      "era://text/1",
			MIMEType: "text/plain",
			Text:     "text 1",
		},
	}))
	plain(rev3, "link", content(&mcp.ResourceLink{
		URI:         "era://text/2",
		Name:        "second",
		Description: "the second text",
	}))
	plain(rev1, "failing", func() *mcp.CallToolResult {
		r := said("it went wrong")
		r.IsError = true
		return r
	})
	structured := func(since, name, schema, value, text string) {
		tool := &mcp.Tool{Name: name, OutputSchema: json.RawMessage(schema)}
		s.add(since, tool, func(context.Context, *mcp.CallToolRequest, arguments) (*mcp.CallToolResult, error) {
			r := said(text)
			r.StructuredContent = json.RawMessage(value)
			return r, nil
		})
	}
	structured(rev3, "structured", `{"type":"object","properties":{"degrees":{"type":"number"}},"required":["degrees"]}`, `{"degrees":21.5}`, `{"degrees":21.5}`)
	structured(modern, "scalar", `{"type":"array","items":{"type":"integer"}}`, `[1,2,3]`, "three numbers")
	mirrored := &mcp.Tool{Name: "mirrored", InputSchema: schema(`"region":{"type":"string","x-mcp-header":"Region"}`)}
	s.add(modern, mirrored, func(_ context.Context, _ *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
		return said("in " + args.Region), nil
	})
	s.add(rev1, &mcp.Tool{Name: "steps", InputSchema: schema(`"n":{"type":"integer"}`)}, s.steps)
	s.add(rev1, &mcp.Tool{Name: "say", InputSchema: schema(`"lines":{"type":"array"}`)}, say)
	s.add(rev1, &mcp.Tool{Name: "wait"}, s.wait)
	s.add(rev1, &mcp.Tool{Name: "change", InputSchema: schema(`"kind":{"type":"string"},"name":{"type":"string"}`)}, s.change)
	s.add(rev1, &mcp.Tool{Name: "touch", InputSchema: schema(`"uri":{"type":"string"}`)},
		func(ctx context.Context, _ *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
			return said("touched"), s.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: args.URI})
		})
}

func (s *server) tell(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args arguments
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
		return nil, err
	}
	var text []byte
	s.count(args.Of, func(r *ran) { text, _ = json.Marshal(r) })
	return said(string(text)), nil
}

func (s *server) steps(ctx context.Context, r *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
	token := r.Params.GetProgressToken()
	for i := 1; i <= args.N && token != nil; i++ {
		p := &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(i),
			Total:         float64(args.N),
		}
		if s.since(rev2) {
			p.Message = fmt.Sprint("step ", i)
		}
		if err := r.Session.NotifyProgress(ctx, p); err != nil {
			return nil, err
		}
	}
	return said(fmt.Sprint(args.N, " steps")), nil
}

func say(ctx context.Context, r *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
	for _, line := range args.Lines {
		if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: mcp.LoggingLevel(line[0]), Data: line[1]}); err != nil {
			return nil, err
		}
	}
	return said("said"), nil
}

func (s *server) wait(ctx context.Context, r *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
	if token := r.Params.GetProgressToken(); token != nil {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1}); err != nil {
			return nil, err
		}
	}
	<-ctx.Done()
	s.count(args.Key, func(r *ran) { r.Cancelled++ })
	return nil, ctx.Err()
}

func (s *server) change(_ context.Context, _ *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
	switch args.Kind {
	case "tool":
		s.add(rev1, &mcp.Tool{Name: args.Name}, func(context.Context, *mcp.CallToolRequest, arguments) (*mcp.CallToolResult, error) {
			return said("new"), nil
		})
	case "prompt":
		s.mcp.AddPrompt(&mcp.Prompt{Name: args.Name}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, nil
		})
	case "resource":
		s.mcp.AddResource(&mcp.Resource{URI: "era://more/" + args.Name, Name: args.Name}, readText)
	}
	return said("changed"), nil
}

// lacks returns the answer to a call whose client lacks a capability.
func (s *server) lacks(capability string) (*mcp.CallToolResult, error) {
	message := "the client lacks " + capability
	if !s.since(modern) {
		r := said(message)
		r.IsError = true
		return r, nil
	}
	required := "{}"
	parts := strings.Split(capability, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		required = fmt.Sprintf("{%q:%s}", parts[i], required)
	}
	return nil, &jsonrpc.Error{
		Code: mcp.CodeMissingRequiredClientCapabilities, Message: message,
		Data: json.RawMessage(`{"requiredCapabilities":` + required + `}`),
	}
}
