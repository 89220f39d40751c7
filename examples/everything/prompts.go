package main

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func (i *instance) addPrompts() {
	i.server.AddPrompt(&mcp.Prompt{
		Name:        "simple-prompt",
		Title:       "Simple prompt",
		Description: "A prompt without arguments",
	}, simplePrompt)
	i.server.AddPrompt(&mcp.Prompt{
		Name:        "args-prompt",
		Title:       "Arguments prompt",
		Description: "A prompt with a required and an optional argument",
		Arguments: []*mcp.PromptArgument{
			{Name: "city", Description: "Name of the city", Required: true},
			{Name: "state", Description: "Name of the state"},
		},
	}, argsPrompt)
	i.server.AddPrompt(&mcp.Prompt{
		Name:        "completable-prompt",
		Title:       "Team management",
		Description: "A prompt whose second argument's completion depends on the first",
		Arguments: []*mcp.PromptArgument{
			{Name: "department", Description: "Department", Required: true},
			{Name: "name", Description: "Somebody in that department", Required: true},
		},
	}, completablePrompt)
	i.server.AddPrompt(&mcp.Prompt{
		Name:        "resource-prompt",
		Title:       "Resource prompt",
		Description: "A prompt that embeds a resource",
		Arguments: []*mcp.PromptArgument{
			{Name: "resourceType", Description: "text or blob", Required: true},
			{Name: "resourceId", Description: "Index of the resource, from 1", Required: true},
		},
	}, resourcePrompt)
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// required returns the named arguments. The SDK does not check them.
func required(req *mcp.GetPromptRequest, names ...string) ([]string, error) {
	var values []string
	for _, name := range names {
		value := req.Params.Arguments[name]
		if value == "" {
			return nil, invalid("prompt %s: argument %q is missing", req.Params.Name, name)
		}
		values = append(values, value)
	}
	return values, nil
}

func userSays(c ...mcp.Content) *mcp.GetPromptResult {
	res := &mcp.GetPromptResult{}
	for _, c := range c {
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
	}
	return res
}

func simplePrompt(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return userSays(text("This is a simple prompt without arguments.")), nil
}

func argsPrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	values, err := required(req, "city")
	if err != nil {
		return nil, err
	}
	place := values[0]
	if state := req.Params.Arguments["state"]; state != "" {
		place += ", " + state
	}
	return userSays(text("What's weather in %s?", place)), nil
}

func completablePrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	values, err := required(req, "department", "name")
	if err != nil {
		return nil, err
	}
	return userSays(text("Please promote %s to the head of the %s team.", values[1], values[0])), nil
}

func resourcePrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	values, err := required(req, "resourceType", "resourceId")
	if err != nil {
		return nil, err
	}
	kind, index := values[0], positive(values[1])
	if kind != typeText && kind != typeBlob {
		return nil, invalid("prompt %s: resourceType is %q: must be %s or %s", req.Params.Name, kind, typeText, typeBlob)
	}
	if index == 0 {
		return nil, invalid("prompt %s: resourceId is %q: must be a positive integer", req.Params.Name, values[1])
	}
	return userSays(
		text("This prompt includes the %s resource %d. Please analyze the following resource:", kind, index),
		&mcp.EmbeddedResource{Resource: dynamic(kind, index)},
	), nil
}
