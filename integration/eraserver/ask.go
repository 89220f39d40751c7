//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on, and part of every revision.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		Messages:     []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}},
		SystemPrompt: "Be brief.",
		MaxTokens:    77,
	}
}

func samplingWithTools(prompt string) *mcp.CreateMessageWithToolsParams {
	return &mcp.CreateMessageWithToolsParams{
		Messages:     []*mcp.SamplingMessageV2{{Role: "user", Content: []mcp.Content{&mcp.TextContent{Text: prompt}}}},
		SystemPrompt: "Be brief.",
		MaxTokens:    77,
	}
}

const (
	nameForm    = `{"type":"object","properties":{"name":{"type":"string","title":"Name"},"age":{"type":"integer","maximum":150}},"required":["name"]}`
	choicesForm = `{"type":"object","properties":{"colours":{"type":"array","items":{"type":"string","enum":["red","green","blue"]}}},"required":["colours"]}`
	titledForm  = `{"type":"object","properties":{"colour":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}],"default":"g"}},"required":["colour"]}`
)

// can reports whether the client declared a capability.
func can(c *mcp.ClientCapabilities, name string) bool {
	if c == nil {
		return false
	}
	switch name {
	case "sampling":
		return c.Sampling != nil
	case "sampling.tools":
		return c.Sampling != nil && c.Sampling.Tools != nil
	case "elicitation":
		return c.Elicitation != nil
	case "elicitation.url":
		return c.Elicitation != nil && c.Elicitation.URL != nil
	case "roots":
		return c.RootsV2 != nil || c.Roots.ListChanged
	}
	return false
}

// A question is a question for the client. In the modern era, it is part of a result; in the legacy era, it is a
// request.
type question struct {
	modern mcp.InputRequest
	legacy func(context.Context, *mcp.ServerSession) (any, error)
}

func sample(q *mcp.CreateMessageParams) question {
	return question{
		samplingWithTools(q.Messages[0].Content.(*mcp.TextContent).Text),
		func(ctx context.Context, ss *mcp.ServerSession) (any, error) { return ss.CreateMessage(ctx, q) },
	}
}

func elicit(q *mcp.ElicitParams) question {
	now := *q
	now.ElicitationID = "" // the modern era has no such id
	return question{&now, func(ctx context.Context, ss *mcp.ServerSession) (any, error) { return ss.Elicit(ctx, q) }}
}

// put asks a question. It returns the answer as JSON, or the result that the tool must return.
func (s *server) put(ctx context.Context, r *mcp.CallToolRequest, key string, q question, state string) (string, *mcp.CallToolResult) {
	var answer any
	if s.since(modern) {
		response, ok := r.Params.InputResponses[key]
		if !ok {
			return "", &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: q.modern}, RequestState: state}
		}
		answer = response
	} else {
		var err error
		if answer, err = q.legacy(ctx, r.Session); err != nil {
			result := said("refused: " + err.Error())
			var e *jsonrpc.Error
			if errors.As(err, &e) {
				result = said(fmt.Sprintf("refused: %d %s", e.Code, e.Message))
			}
			result.IsError = true
			return "", result
		}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err) // the value comes from JSON
	}
	return string(text), nil
}

// addAskingTools adds the tools that ask the client.
func (s *server) addAskingTools() {
	asking := func(since, name, needs, properties string, ask func(arguments) question) {
		tool := &mcp.Tool{Name: name, InputSchema: schema(properties)}
		s.add(since, tool, func(ctx context.Context, r *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, error) {
			if !can(r.ClientCapabilities(), needs) {
				return s.lacks(needs)
			}
			answer, instead := s.put(ctx, r, "q", ask(args), "asked")
			if instead != nil {
				return instead, nil
			}
			return said(answer), nil
		})
	}
	asking(rev1, "sample", "sampling", `"prompt":{"type":"string"}`, func(args arguments) question { return sample(sampling(args.Prompt)) })
	asking(rev1, "roots", "roots", "", func(arguments) question {
		return question{&mcp.ListRootsParams{}, func(ctx context.Context, ss *mcp.ServerSession) (any, error) { return ss.ListRoots(ctx, nil) }}
	})
	asking(rev3, "form", "elicitation", "", func(arguments) question {
		return elicit(&mcp.ElicitParams{Message: "Who are you?", RequestedSchema: json.RawMessage(nameForm)})
	})
	asking(rev4, "url", "elicitation.url", "", func(args arguments) question {
		return elicit(&mcp.ElicitParams{
			Mode:          "url",
			Message:       "Agree",
			URL:           "https://example.com/agree?a=1&b=2",
			ElicitationID: args.Key,
		})
	})
	asking(rev4, "choices", "elicitation", "", func(arguments) question {
		return elicit(&mcp.ElicitParams{
			Mode:            "form",
			Message:         "Which?",
			RequestedSchema: json.RawMessage(choicesForm),
		})
	})
	asking(rev4, "titled", "elicitation", "", func(arguments) question {
		return elicit(&mcp.ElicitParams{
			Mode:            "form",
			Message:         "Which one?",
			RequestedSchema: json.RawMessage(titledForm),
		})
	})
	asking(rev4, "sample-tools", "sampling.tools", "", func(arguments) question {
		q := samplingWithTools("use a tool")
		q.Tools = []*mcp.Tool{{Name: "adder", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		q.ToolChoice = &mcp.ToolChoice{Mode: "auto"}
		return question{q, func(ctx context.Context, ss *mcp.ServerSession) (any, error) {
			return ss.CreateMessageWithTools(ctx, q)
		}}
	})
	s.add(rev1, &mcp.Tool{Name: "rounds"}, s.rounds)
}

// rounds asks two questions. The second question uses the first answer. In the modern era, only the request state holds
// the first answer.
func (s *server) rounds(ctx context.Context, r *mcp.CallToolRequest, _ arguments) (*mcp.CallToolResult, error) {
	if !can(r.ClientCapabilities(), "sampling") {
		return s.lacks("sampling")
	}
	first := r.Params.RequestState
	if first == "" || first == "asked" {
		answer, instead := s.put(ctx, r, "first", sample(sampling("one")), "asked")
		if instead != nil {
			return instead, nil
		}
		first = textIn(answer)
	}
	answer, instead := s.put(ctx, r, "second", sample(sampling("after "+first)), first)
	if instead != nil {
		return instead, nil
	}
	return said(textIn(answer)), nil
}

// textIn returns the text of a sampling answer that has one or several content blocks.
func textIn(answer string) string {
	type block struct{ Text string }
	var one struct{ Content block }
	if err := json.Unmarshal([]byte(answer), &one); err == nil {
		return one.Content.Text
	}
	var several struct{ Content []block }
	if err := json.Unmarshal([]byte(answer), &several); err != nil || len(several.Content) == 0 {
		return ""
	}
	return several.Content[0].Text
}
