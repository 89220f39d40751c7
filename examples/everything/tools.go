//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func schema(text string) json.RawMessage { return json.RawMessage(text) }

var readOnly = &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}

func text(format string, args ...any) *mcp.TextContent {
	return &mcp.TextContent{Text: fmt.Sprintf(format, args...)}
}

func content(c ...mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: c} }

// addTools adds the tools that answer without asking the client.
func (i *instance) addTools() {
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "echo",
		Title:       "Echo",
		Annotations: readOnly,
		Description: "Returns the message",
		InputSchema: schema(`{"type":"object","properties":{"message":{"type":"string","description":"Message to echo"}},"required":["message"]}`),
	}, echo)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-sum",
		Title:       "Sum",
		Annotations: readOnly,
		Description: "Adds two numbers",
		InputSchema: schema(`{"type":"object","properties":{"a":{"type":"number","description":"First number"},"b":{"type":"number","description":"Second number"}},"required":["a","b"]}`),
	}, getSum)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-env",
		Title:       "Environment",
		Annotations: readOnly,
		Description: "Returns all environment variables of the server, secrets included",
		InputSchema: schema(`{"type":"object"}`),
	}, i.getEnv)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-tiny-image",
		Title:       "Tiny image",
		Annotations: readOnly,
		Description: "Returns a small PNG image",
		InputSchema: schema(`{"type":"object"}`),
	}, getTinyImage)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-annotated-message",
		Title:       "Annotated message",
		Annotations: readOnly,
		Description: "Shows annotations that tell the client whom content is for and how much it matters",
		InputSchema: schema(`{"type":"object","properties":{"messageType":{"type":"string","enum":["error","success","debug"],"description":"Kind of message"},"includeImage":{"type":"boolean","default":false,"description":"Whether to add an image"}},"required":["messageType"]}`),
	}, getAnnotatedMessage)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-structured-content",
		Title:       "Structured content",
		Annotations: readOnly,
		Description: "Returns the weather at a place as structured content that follows the output schema",
		InputSchema: schema(`{"type":"object","properties":{"location":{"type":"string","enum":["New York","Chicago","Los Angeles"],"description":"City"}},"required":["location"]}`),
	}, getStructuredContent)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-resource-links",
		Title:       "Resource links",
		Annotations: readOnly,
		Description: "Returns links to resources, text and blob in turn",
		InputSchema: schema(`{"type":"object","properties":{"count":{"type":"integer","minimum":1,"maximum":10,"default":3,"description":"Number of links"}}}`),
	}, getResourceLinks)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "get-resource-reference",
		Title:       "Resource reference",
		Annotations: readOnly,
		Description: "Returns a resource embedded in the result",
		InputSchema: schema(`{"type":"object","properties":{"resourceType":{"type":"string","enum":["text","blob"],"default":"text","description":"Kind of resource"},"resourceId":{"type":"integer","minimum":1,"default":1,"description":"Index of the resource"}}}`),
	}, getResourceReference)
	mcp.AddTool(i.server, &mcp.Tool{
		Name:        "long-running-operation",
		Title:       "Long running operation",
		Annotations: readOnly,
		Description: "Takes its time and reports progress if the caller gave a progress token",
		InputSchema: schema(`{"type":"object","properties":{"duration":{"type":"number","minimum":0,"maximum":3600,"default":10,"description":"Seconds that it takes"},"steps":{"type":"integer","minimum":1,"maximum":1000,"default":5,"description":"Number of steps"}}}`),
	}, longRunningOperation)
}

type echoArgs struct {
	Message string `json:"message"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in echoArgs) (*mcp.CallToolResult, any, error) {
	return content(text("Echo: %s", in.Message)), nil, nil
}

type sumArgs struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func getSum(_ context.Context, _ *mcp.CallToolRequest, in sumArgs) (*mcp.CallToolResult, any, error) {
	return content(text("The sum of %v and %v is %v.", in.A, in.B, in.A+in.B)), nil, nil
}

type noArgs struct{}

func (i *instance) getEnv(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
	env := make(map[string]string, len(i.settings.environ))
	for _, kv := range i.settings.environ {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	b, err := json.MarshalIndent(env, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	return content(text("%s", b)), nil, nil
}

// tinyImage draws a square with a diagonal, so that the repository does not need a binary file.
func tinyImage() ([]byte, error) {
	const side = 16
	img := image.NewPaletted(image.Rect(0, 0, side, side), color.Palette{color.White, color.RGBA{R: 0xD9, G: 0x77, B: 0x57, A: 0xFF}})
	for n := range side {
		img.SetColorIndex(n, n, 1)
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

func getTinyImage(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
	data, err := tinyImage()
	if err != nil {
		return nil, nil, err
	}
	return content(
		text("Here's the image you requested:"),
		&mcp.ImageContent{Data: data, MIMEType: "image/png"},
		text("The image above is a tiny square with a diagonal."),
	), nil, nil
}

type annotatedArgs struct {
	MessageType  string `json:"messageType"`
	IncludeImage bool   `json:"includeImage"`
}

func getAnnotatedMessage(_ context.Context, _ *mcp.CallToolRequest, in annotatedArgs) (*mcp.CallToolResult, any, error) {
	var message *mcp.TextContent
	switch in.MessageType {
	case "error": // both audiences must see it
		message = text("Error: Operation failed")
		message.Annotations = &mcp.Annotations{Priority: 1, Audience: []mcp.Role{"user", "assistant"}}
	case "success":
		message = text("Operation completed successfully")
		message.Annotations = &mcp.Annotations{Priority: 0.7, Audience: []mcp.Role{"user"}}
	default: // debug: the schema allows nothing else
		message = text("Debug: Cache hit ratio 0.95, latency 150ms")
		message.Annotations = &mcp.Annotations{Priority: 0.3, Audience: []mcp.Role{"assistant"}}
	}
	res := content(message)
	if in.IncludeImage {
		data, err := tinyImage()
		if err != nil {
			return nil, nil, err
		}
		res.Content = append(res.Content, &mcp.ImageContent{
			Data: data, MIMEType: "image/png",
			Annotations: &mcp.Annotations{Priority: 0.5, Audience: []mcp.Role{"user"}},
		})
	}
	return res, nil, nil
}

type locationArgs struct {
	Location string `json:"location"`
}

type weather struct {
	Temperature float64 `json:"temperature" jsonschema:"Temperature in degrees Celsius"`
	Conditions  string  `json:"conditions" jsonschema:"Weather conditions"`
	Humidity    float64 `json:"humidity" jsonschema:"Relative humidity in percent"`
}

// getStructuredContent returns no content, because the SDK adds the same JSON as text for clients without support for
// structured content.
func getStructuredContent(_ context.Context, _ *mcp.CallToolRequest, in locationArgs) (*mcp.CallToolResult, weather, error) {
	switch in.Location {
	case "New York":
		return nil, weather{
			Temperature: 33,
			Conditions:  "Cloudy",
			Humidity:    82,
		}, nil
	case "Chicago":
		return nil, weather{
			Temperature: 36,
			Conditions:  "Light rain / drizzle",
			Humidity:    82,
		}, nil
	default: // Los Angeles: the schema allows nothing else
		return nil, weather{
			Temperature: 73,
			Conditions:  "Sunny / Clear",
			Humidity:    48,
		}, nil
	}
}

type linksArgs struct {
	Count int `json:"count"`
}

func getResourceLinks(_ context.Context, _ *mcp.CallToolRequest, in linksArgs) (*mcp.CallToolResult, any, error) {
	res := content(text("Here are %d resource links to resources available in this server:", in.Count))
	for n := 1; n <= in.Count; n++ {
		kind := typeText
		if n%2 == 0 {
			kind = typeBlob
		}
		res.Content = append(res.Content, &mcp.ResourceLink{
			URI:         dynamicURI(kind, n),
			Name:        fmt.Sprintf("%s resource %d", kind, n),
			Description: fmt.Sprintf("Resource %d: a %s resource", n, kind),
			MIMEType:    dynamicMIME(kind),
		})
	}
	return res, nil, nil
}

type referenceArgs struct {
	ResourceType string `json:"resourceType"`
	ResourceID   int    `json:"resourceId"`
}

func getResourceReference(_ context.Context, _ *mcp.CallToolRequest, in referenceArgs) (*mcp.CallToolResult, any, error) {
	return content(
		text("Returning resource reference for resource %d:", in.ResourceID),
		&mcp.EmbeddedResource{Resource: dynamic(in.ResourceType, in.ResourceID)},
		text("You can access this resource using the URI: %s", dynamicURI(in.ResourceType, in.ResourceID)),
	), nil, nil
}

type longArgs struct {
	Duration float64 `json:"duration"`
	Steps    int     `json:"steps"`
}

// longRunningOperation also logs each step, because a modern client receives log messages only during its own requests.
func longRunningOperation(ctx context.Context, req *mcp.CallToolRequest, in longArgs) (*mcp.CallToolResult, any, error) {
	step := time.Duration(in.Duration * float64(time.Second) / float64(in.Steps))
	token := req.Params.GetProgressToken()
	for n := 1; n <= in.Steps; n++ {
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("stopped before step %d of %d: %w", n, in.Steps, context.Cause(ctx))
		}
		message := fmt.Sprintf("Step %d of %d", n, in.Steps)
		err := req.Session.Log(ctx, &mcp.LoggingMessageParams{
			Level:  "debug",
			Logger: "long-running-operation",
			Data:   message,
		})
		if err != nil {
			return nil, nil, err
		}
		if token == nil {
			continue
		}
		err = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(n),
			Total:         float64(in.Steps),
			Message:       message,
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return content(text("Long running operation completed. Duration: %v seconds, Steps: %d.", in.Duration, in.Steps)), nil, nil
}
