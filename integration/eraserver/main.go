//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on, and part of every revision.

// Eraserver is a server of exactly one revision of the protocol, made with the Go SDK. It has the features of
// eras/features.mjs, for the same script.
//
//	eraserver REVISION stdio|sse|streamable
//
// Over HTTP, it chooses a port and prints its address.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// These constants are the revisions. They can be compared as text.
const (
	rev1   = "2024-11-05"
	rev2   = "2025-03-26"
	rev3   = "2025-06-18"
	rev4   = "2025-11-25"
	modern = "2026-07-28"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: eraserver REVISION stdio|sse|streamable")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "eraserver:", err)
		os.Exit(1)
	}
}

func run(revision, transport string) error {
	s := newServer(revision)
	if transport == "stdio" {
		return s.mcp.Run(context.Background(), &mcp.StdioTransport{})
	}
	get := func(*http.Request) *mcp.Server { return s.mcp }
	var handler http.Handler
	switch {
	case transport == "sse":
		handler = mcp.NewSSEHandler(get, nil)
	case revision == modern: // the SDK serves this revision only with a stateless handler
		handler = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	default:
		handler = mcp.NewStreamableHTTPHandler(get, nil)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("era %s at http://%s/mcp\n", revision, l.Addr())
	return http.Serve(l, handler)
}

// A server is the state that all its sessions share.
type server struct {
	revision string
	mcp      *mcp.Server

	mu   sync.Mutex      // guards runs
	runs map[string]*ran // by the key of the calls
}

// ran records the calls with one key.
type ran struct {
	Begun     int `json:"begun"`
	Ended     int `json:"ended"`
	Cancelled int `json:"cancelled"`
}

func (s *server) count(key string, note func(*ran)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[key] == nil {
		s.runs[key] = &ran{}
	}
	note(s.runs[key])
}

func (s *server) since(revision string) bool { return s.revision >= revision }

func newServer(revision string) *server {
	s := &server{revision: revision, runs: map[string]*ran{}}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "era-" + revision, Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "I speak " + revision + ".",
		PageSize:     6,
		// Declared from the beginning, although AddTool would declare the features later.
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true}, Logging: &mcp.LoggingCapabilities{},
		},
		CompletionHandler:         s.complete,
		SubscribeHandler:          func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		SupportedProtocolVersions: []string{revision},
	})
	s.mcp.AddReceivingMiddleware(s.asThen)
	s.addTools()
	s.addAskingTools()
	s.addResources()
	s.addPrompts()
	return s
}

// asThen changes the SDK's answers to the answers at the time of the revision.
func (s *server) asThen(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method == "initialize" && s.since(modern) { // the SDK accepts initialize in every revision
			return nil, &jsonrpc.Error{
				Code: mcp.CodeUnsupportedProtocolVersion, Message: "unsupported protocol version",
				Data: json.RawMessage(`{"supported":["` + s.revision + `"]}`),
			}
		}
		result, err := next(ctx, method, r)
		if opened, ok := result.(*mcp.InitializeResult); ok && err == nil && !s.since(rev2) {
			opened.Capabilities.Completions = nil // the revision has no such flag
		}
		var e *jsonrpc.Error
		if method == "resources/read" && !s.since(modern) && errors.As(err, &e) && e.Code == jsonrpc.CodeInvalidParams {
			err = &jsonrpc.Error{
				Code:    -32002,
				Message: e.Message,
				Data:    e.Data,
			}
		}
		return result, err
	}
}

func (s *server) addResources() {
	s.mcp.AddResource(&mcp.Resource{
		URI:      "era://text/1",
		Name:     "text 1",
		MIMEType: "text/plain",
	}, readText)
	s.mcp.AddResource(&mcp.Resource{
		URI:      "era://blob/1",
		Name:     "blob 1",
		MIMEType: "image/png",
	}, readBlob)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: "era://text/{n}",
		Name:        "texts",
		MIMEType:    "text/plain",
	}, readText)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: "era://blob/{n}",
		Name:        "blobs",
		MIMEType:    "image/png",
	}, readBlob)
}

func readText(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	n := strings.TrimPrefix(r.Params.URI, "era://text/")
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "text " + n}}}, nil
}

func readBlob(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "image/png", Blob: png}}}, nil
}

func (s *server) addPrompts() {
	s.mcp.AddPrompt(&mcp.Prompt{
		Name: "greet", Description: "a greeting",
		Arguments: []*mcp.PromptArgument{{Name: "who", Required: true}, {Name: "how"}},
	}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		how := r.Params.Arguments["how"]
		if how == "" {
			how = "Hello"
		}
		content := &mcp.TextContent{Text: fmt.Sprintf("%s, %s!", how, r.Params.Arguments["who"])}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: content}}}, nil
	})
	s.mcp.AddPrompt(&mcp.Prompt{Name: "media"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		messages := []*mcp.PromptMessage{{Role: "user", Content: &mcp.ImageContent{Data: png, MIMEType: "image/png"}}}
		if s.since(rev2) {
			messages = append(messages, &mcp.PromptMessage{Role: "user", Content: &mcp.AudioContent{Data: wav, MIMEType: "audio/wav"}})
		}
		return &mcp.GetPromptResult{Messages: messages}, nil
	})
}

func (s *server) complete(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	var values []string
	if r.Params.Argument.Name == "asks" {
		// In the modern era, a server must not send requests during this request.
		answer, err := r.Session.CreateMessage(ctx, sampling("complete"))
		if err != nil {
			values = append(values, fmt.Sprint("refused ", code(err)))
		} else {
			values = append(values, answer.Content.(*mcp.TextContent).Text)
		}
	} else {
		for _, v := range []string{"calmly", "cheerfully", "coldly"} {
			if strings.HasPrefix(v, r.Params.Argument.Value) {
				values = append(values, v)
			}
		}
		if c := r.Params.Context; c != nil && c.Arguments["who"] != "" {
			values = append(values, fmt.Sprintf("as %s likes it", c.Arguments["who"]))
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}

func code(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
