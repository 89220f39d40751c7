//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// send writes a raw message.
func send(t *testing.T, conn mcp.Connection, raw string) {
	t.Helper()
	m, err := jsonrpc.DecodeMessage([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestMissingCapability(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		cs := connect(t, testSettings(), revision, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		for tool, capability := range map[string]string{
			"sampling-request":    `"sampling"`,
			"elicitation-request": `"elicitation"`,
			"list-roots":          `"roots"`,
		} {
			res := call(t, cs, tool, args{"prompt": "hi"})
			if !res.IsError || !strings.Contains(texts(res.Content), capability) {
				t.Errorf("%s: error %v, %q, want one that names %s", tool, res.IsError, texts(res.Content), capability)
			}
		}
	})
}

func TestURLElicitationOnly(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
	})
	res := call(t, cs, "elicitation-request", nil)
	if !res.IsError || !strings.Contains(texts(res.Content), `"elicitation.form"`) {
		t.Errorf("error %v, %q", res.IsError, texts(res.Content))
	}
}

func TestSampling(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		var asked *mcp.CreateMessageParams
		cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
			CreateMessageHandler: func(_ context.Context, req *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
				asked = req.Params
				return &mcp.CreateMessageResult{Model: "parrot", Role: "assistant", StopReason: "endTurn", Content: text("forty-two")}, nil
			},
		})
		got := succeed(t, cs, "sampling-request", args{"prompt": "why?", "maxTokens": 7})
		for _, want := range []string{"LLM sampling result:", `"parrot"`, `"forty-two"`} {
			if !strings.Contains(got, want) {
				t.Errorf("result %q lacks %s", got, want)
			}
		}
		if asked.MaxTokens != 7 || !strings.HasSuffix(asked.Messages[0].Content.(*mcp.TextContent).Text, "why?") {
			t.Errorf("the client was asked %+v", asked)
		}
	})
}

func TestSamplingRefused(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return nil, errors.New("the user said no")
		},
	})
	res := call(t, cs, "sampling-request", args{"prompt": "why?"})
	if !res.IsError || !strings.Contains(texts(res.Content), "the user said no") {
		t.Errorf("error %v, %q", res.IsError, texts(res.Content))
	}
}

func TestElicitation(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		for _, tt := range []struct {
			answer *mcp.ElicitResult
			want   string
		}{
			{&mcp.ElicitResult{Action: "accept", Content: args{"name": "Ada", "pets": 2, "color": "green", "newsletter": true}}, `"Ada"`},
			{&mcp.ElicitResult{Action: "decline"}, "declined"},
			{&mcp.ElicitResult{Action: "cancel"}, "cancelled"},
		} {
			t.Run(tt.answer.Action, func(t *testing.T) {
				cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						if fields := req.Params.RequestedSchema.(map[string]any)["properties"].(map[string]any); len(fields) != 8 {
							t.Errorf("the form has %d fields, want 8", len(fields))
						}
						return tt.answer, nil
					},
				})
				if got := succeed(t, cs, "elicitation-request", nil); !strings.Contains(got, tt.want) {
					t.Errorf("result %q lacks %s", got, tt.want)
				}
			})
		}
	})
}

func TestRoots(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		i := newInstance(testSettings())
		serverEnd, clientEnd := mcp.NewInMemoryTransports()
		if _, err := i.server.Connect(t.Context(), serverEnd, nil); err != nil {
			t.Fatal(err)
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		cs, err := client.Connect(t.Context(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer i.wg.Wait()
		defer cs.Close()
		if got, want := succeed(t, cs, "list-roots", nil), "The client has no roots."; got != want {
			t.Errorf("result %q, want %q", got, want)
		}
		client.AddRoots(&mcp.Root{URI: "file:///srv", Name: "served"}, &mcp.Root{URI: "file:///tmp"})
		want := "The client's roots:\n1. served: file:///srv\n2. unnamed: file:///tmp"
		if got := succeed(t, cs, "list-roots", nil); got != want {
			t.Errorf("result %q, want %q", got, want)
		}
	})
}
