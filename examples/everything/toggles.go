//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const intervalSchema = `{"type":"object","properties":{"intervalSeconds":{"type":"number","minimum":0.01,"maximum":3600,"description":"Seconds between messages; the server's own interval if absent"}}}`

// addToggles adds the tools that switch a feature on and off until the session ends.
func (i *instance) addToggles() {
	mcp.AddTool(i.server, &mcp.Tool{
		Name: "toggle-logging", Title: "Toggle logging",
		Description: "Starts or stops periodic log messages of random level, at or above the level that the client set",
		InputSchema: schema(intervalSchema),
	}, i.toggleLogging)
	mcp.AddTool(i.server, &mcp.Tool{
		Name: "toggle-subscriber-updates", Title: "Toggle subscriber updates",
		Description: "Starts or stops periodic update notifications for the subscribed resources",
		InputSchema: schema(intervalSchema),
	}, i.toggleUpdates)
	for _, e := range i.extraFeatures() {
		mcp.AddTool(i.server, &mcp.Tool{
			Name: "toggle-extra-" + e.kind, Title: "Toggle extra " + e.kind,
			Description: fmt.Sprintf("Adds or removes a %s, so that the server's list of them changes", e.kind),
			InputSchema: schema(`{"type":"object"}`),
		}, i.toggleExtra(e))
	}
}

type intervalArgs struct {
	IntervalSeconds float64 `json:"intervalSeconds"`
}

func (i *instance) interval(in intervalArgs) time.Duration {
	if in.IntervalSeconds == 0 {
		return i.settings.interval
	}
	return time.Duration(in.IntervalSeconds * float64(time.Second))
}

var levels = []mcp.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func (i *instance) toggleLogging(ctx context.Context, req *mcp.CallToolRequest, in intervalArgs) (*mcp.CallToolResult, any, error) {
	if isModern(req) || i.shared {
		return nil, nil, errors.New("revision " + revisionModern + " delivers log messages only while the request runs that asked for them: " +
			"periodic ones need a legacy session; long-running-operation logs its steps")
	}
	interval := i.interval(in)
	on, err := i.toggle(ctx, &i.logging, interval, func(ctx context.Context) {
		level := levels[rand.IntN(len(levels))]
		err := req.Session.Log(ctx, &mcp.LoggingMessageParams{
			Level:  level,
			Logger: "everything",
			Data:   fmt.Sprintf("A message of level %s", level),
		})
		if err != nil && ctx.Err() == nil {
			i.settings.log.Warn("log message not sent", "session", req.Session.ID(), "err", err)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if !on {
		return content(text("Stopped periodic log messages.")), nil, nil
	}
	return content(text("Started periodic log messages, one every %v, at or above the level set with logging/setLevel. None is sent before a level is set.", interval)), nil, nil
}

func (i *instance) toggleUpdates(ctx context.Context, _ *mcp.CallToolRequest, in intervalArgs) (*mcp.CallToolResult, any, error) {
	interval := i.interval(in)
	on, err := i.toggle(ctx, &i.updates, interval, func(ctx context.Context) {
		for _, uri := range i.subscribedURIs() {
			if ctx.Err() != nil {
				return
			}
			if err := i.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				i.settings.log.Warn("resource update not sent", "uri", uri, "err", err)
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if !on {
		return content(text("Stopped periodic resource updates.")), nil, nil
	}
	return content(text("Started periodic resource updates, every %v, for the resources that are subscribed at the time.", interval)), nil, nil
}

// extraFeature is a feature that the server can add and remove.
type extraFeature struct {
	kind        string
	add, remove func()
}

func (i *instance) extraFeatures() []extraFeature {
	return []extraFeature{
		{
			kind: "tool",
			add: func() {
				mcp.AddTool(i.server, &mcp.Tool{
					Name:        "extra-tool",
					Title:       "Extra tool",
					Annotations: readOnly,
					Description: "Exists while toggle-extra-tool is on",
					InputSchema: schema(`{"type":"object"}`),
				}, func(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
					return content(text("The extra tool works.")), nil, nil
				})
			},
			remove: func() { i.server.RemoveTools("extra-tool") },
		},
		{
			kind: "prompt",
			add: func() {
				i.server.AddPrompt(&mcp.Prompt{
					Name:        "extra-prompt",
					Title:       "Extra prompt",
					Description: "Exists while toggle-extra-prompt is on",
				}, simplePrompt)
			},
			remove: func() { i.server.RemovePrompts("extra-prompt") },
		},
		{
			kind: "resource",
			add: func() {
				i.server.AddResource(&mcp.Resource{
					URI:         extraURI,
					Name:        "extra",
					Title:       "Extra resource",
					MIMEType:    "text/plain",
					Description: "Exists while toggle-extra-resource is on",
				}, readExtra)
			},
			remove: func() { i.server.RemoveResources(extraURI) },
		},
	}
}

func (i *instance) toggleExtra(e extraFeature) mcp.ToolHandlerFor[noArgs, any] {
	return func(context.Context, *mcp.CallToolRequest, noArgs) (*mcp.CallToolResult, any, error) {
		i.mu.Lock()
		defer i.mu.Unlock() // two concurrent callers must not both add; the SDK sends its notification later
		i.extras[e.kind] = !i.extras[e.kind]
		if i.extras[e.kind] {
			e.add()
			return content(text("Added extra-%s.", e.kind)), nil, nil
		}
		e.remove()
		return content(text("Removed extra-%s.", e.kind)), nil, nil
	}
}
