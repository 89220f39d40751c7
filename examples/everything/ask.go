//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addAskingTools adds the tools that ask the client. All clients see these tools. A client without the capability gets
// an error that names the capability.
func (i *instance) addAskingTools() {
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "sampling-request",
		Title:       "Sampling request",
		Annotations: readOnly,
		Description: "Asks the client's language model and returns its answer",
		InputSchema: schema(`{"type":"object","properties":{"prompt":{"type":"string","description":"Prompt for the model"},"maxTokens":{"type":"integer","minimum":1,"default":100,"description":"Most tokens to generate"}},"required":["prompt"]}`),
	}, samplingRequest)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "elicitation-request",
		Title:       "Elicitation request",
		Annotations: readOnly,
		Description: "Asks the user to fill in a form and reports what the user did",
		InputSchema: schema(`{"type":"object"}`),
	}, elicitationRequest)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "list-roots",
		Title:       "List roots",
		Annotations: readOnly,
		Description: "Asks the client for its roots and lists them",
		InputSchema: schema(`{"type":"object"}`),
	}, listRoots)
}

// ask asks the client a question. For revision 2025-11-25, direct sends the question as a request of the server during
// the call. Revision 2026-07-28 forbids this: the call returns the question as its result, and the client calls again
// with the answer (SEP-2322). If ask returns a result, the tool must return that result.
func ask[R mcp.InputResponse](req *mcp.CallToolRequest, question mcp.InputRequest, direct func() (R, error)) (answer R, again *mcp.CallToolResult, err error) {
	if !isModern(req) {
		answer, err = direct()
		return answer, nil, err
	}
	const id = "question" // a tool asks only one question
	response, ok := req.Params.InputResponses[id]
	if !ok {
		return answer, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{id: question}}, nil
	}
	answer, ok = response.(R)
	if !ok {
		return answer, nil, fmt.Errorf("the answer is a %T, want a %T", response, answer)
	}
	return answer, nil, nil
}

// isModern reports whether the request names its revision, as revision 2026-07-28 requires. The initialize request does
// not decide, because a legacy client may ask for a newer revision than it gets.
func isModern(req *mcp.CallToolRequest) bool {
	revision, _ := req.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	return revision >= revisionModern
}

// capabilities returns the client's capabilities, never nil.
func capabilities(req *mcp.CallToolRequest) *mcp.ClientCapabilities {
	if c := req.ClientCapabilities(); c != nil {
		return c
	}
	return &mcp.ClientCapabilities{}
}

func lacks(capability string) error {
	return fmt.Errorf("the client lacks the capability %q, which this tool needs", capability)
}

type samplingArgs struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"maxTokens"`
}

func samplingRequest(ctx context.Context, req *mcp.CallToolRequest, in samplingArgs) (*mcp.CallToolResult, any, error) {
	if capabilities(req).Sampling == nil {
		return nil, nil, lacks("sampling")
	}
	question := &mcp.CreateMessageWithToolsParams{
		Messages: []*mcp.SamplingMessageV2{{
			Role:    "user",
			Content: []mcp.Content{text("Resource sampling-request context: %s", in.Prompt)},
		}},
		SystemPrompt: "You are a helpful test server.",
		MaxTokens:    in.MaxTokens,
		Temperature:  0.7,
	}
	answer, again, err := ask(req, question, func() (*mcp.CreateMessageWithToolsResult, error) {
		return req.Session.CreateMessageWithTools(ctx, question)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("sampling: %w", err)
	}
	if again != nil {
		return again, nil, nil
	}
	b, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	return content(text("LLM sampling result:\n%s", b)), nil, nil
}

// form has a field of each primitive type in revision 2025-06-18, so that every client with elicitation can show it.
const form = `{
  "type": "object",
  "properties": {
    "name": {"type": "string", "title": "Name", "description": "Your full name", "minLength": 1, "maxLength": 100},
    "email": {"type": "string", "title": "Email", "description": "Where to reach you", "format": "email"},
    "homepage": {"type": "string", "title": "Homepage", "format": "uri"},
    "birthday": {"type": "string", "title": "Birthday", "format": "date"},
    "color": {"type": "string", "title": "Favorite color", "enum": ["red", "green", "blue"], "enumNames": ["Red", "Green", "Blue"]},
    "pets": {"type": "integer", "title": "Number of pets", "minimum": 0, "maximum": 100},
    "height": {"type": "number", "title": "Height in meters", "minimum": 0, "maximum": 3},
    "newsletter": {"type": "boolean", "title": "Newsletter", "description": "Whether to send you one", "default": false}
  },
  "required": ["name"]
}`

func elicitationRequest(ctx context.Context, req *mcp.CallToolRequest, _ noArgs) (*mcp.CallToolResult, any, error) {
	can := capabilities(req).Elicitation
	if can == nil {
		return nil, nil, lacks("elicitation")
	}
	if can.Form == nil && can.URL != nil { // without both, form is meant, as before 2025-11-25
		return nil, nil, lacks("elicitation.form")
	}
	question := &mcp.ElicitParams{
		Mode:            "form",
		Message:         "Please provide inputs for the following fields:",
		RequestedSchema: schema(form),
	}
	answer, again, err := ask(req, question, func() (*mcp.ElicitResult, error) {
		return req.Session.Elicit(ctx, question)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("elicitation: %w", err)
	}
	if again != nil {
		return again, nil, nil
	}
	switch answer.Action {
	case "accept":
		b, err := json.MarshalIndent(answer.Content, "", "  ")
		if err != nil {
			return nil, nil, err
		}
		return content(text("The user provided the requested information:"), text("%s", b)), nil, nil
	case "decline":
		return content(text("The user declined to provide the requested information.")), nil, nil
	case "cancel":
		return content(text("The user cancelled the elicitation dialog.")), nil, nil
	}
	return nil, nil, fmt.Errorf("elicitation: unknown action %q", answer.Action)
}

func listRoots(ctx context.Context, req *mcp.CallToolRequest, _ noArgs) (*mcp.CallToolResult, any, error) {
	if capabilities(req).RootsV2 == nil {
		return nil, nil, lacks("roots")
	}
	answer, again, err := ask(req, &mcp.ListRootsParams{}, func() (*mcp.ListRootsResult, error) {
		return req.Session.ListRoots(ctx, nil)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("roots: %w", err)
	}
	if again != nil {
		return again, nil, nil
	}
	if len(answer.Roots) == 0 {
		return content(text("The client has no roots.")), nil, nil
	}
	var b strings.Builder
	b.WriteString("The client's roots:")
	for n, root := range answer.Roots {
		name := root.Name
		if name == "" {
			name = "unnamed"
		}
		fmt.Fprintf(&b, "\n%d. %s: %s", n+1, name, root.URI)
	}
	return content(text("%s", b.String())), nil, nil
}
