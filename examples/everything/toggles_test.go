//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func setLevel(t *testing.T, cs *mcp.ClientSession, level mcp.LoggingLevel) {
	t.Helper()
	if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, and due events happen. Inside a bubble it takes no time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// drain returns the messages that have arrived.
func drain[T any](ch chan T) []T {
	var all []T
	for {
		select {
		case v := <-ch:
			all = append(all, v)
		default:
			return all
		}
	}
}

func TestToggleLogging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan mcp.LoggingLevel, 10000)
		cs := connect(t, testSettings(), revisionLegacy, &mcp.ClientOptions{
			LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { got <- req.Params.Level },
		})
		if answer := succeed(t, cs, "toggle-logging", nil); !strings.Contains(answer, "every 5s") {
			t.Errorf("answer is %q", answer)
		}
		pass(time.Minute)
		if n := len(drain(got)); n > 0 {
			t.Errorf("%d messages before a level was set", n)
		}

		setLevel(t, cs, "debug")
		pass(time.Minute)
		if n := len(drain(got)); n != 12 {
			t.Errorf("%d messages in a minute, want 12", n)
		}

		setLevel(t, cs, "error")
		pass(time.Hour) // 720 messages of 8 levels: each is among them, but for one chance in 10^41
		all := drain(got)
		for _, level := range all {
			if slices.Index(levels, level) < slices.Index(levels, "error") {
				t.Fatalf("a message of level %s although error was set", level)
			}
		}
		if len(all) == 0 || len(all) == 720 {
			t.Errorf("%d messages in an hour", len(all))
		}

		succeed(t, cs, "toggle-logging", nil)
		drain(got)
		pass(time.Hour)
		if n := len(drain(got)); n > 0 {
			t.Errorf("%d messages after it was toggled off", n)
		}

		setLevel(t, cs, "debug")
		succeed(t, cs, "toggle-logging", args{"intervalSeconds": 0.5})
		pass(10 * time.Second)
		if n := len(drain(got)); n < 20 {
			t.Errorf("%d messages in 10 s at two a second", n)
		}
		// It is on while the session ends: connect's clean-up waits for its goroutine.
	})
}

func TestToggleLoggingModern(t *testing.T) {
	cs := connect(t, testSettings(), revisionModern, nil)
	if res := call(t, cs, "toggle-logging", nil); !res.IsError || !strings.Contains(texts(res.Content), "legacy session") {
		t.Errorf("error %v, %q", res.IsError, texts(res.Content))
	}
}

func TestToggleUpdates(t *testing.T) {
	for _, revision := range []string{"2024-11-05", revisionLegacy, revisionModern} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan string, 10000)
				cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
					ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { got <- req.Params.URI },
				})
				succeed(t, cs, "toggle-subscriber-updates", args{"intervalSeconds": 1})
				pass(time.Minute)
				if n := len(drain(got)); n > 0 {
					t.Errorf("%d updates without a subscription", n)
				}

				const one, two = "demo://resource/dynamic/text/1", "demo://resource/static/document/features.md"
				for _, uri := range []string{one, two} {
					if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
						t.Fatal(err)
					}
				}
				pass(time.Minute)
				if all := drain(got); !slices.Contains(all, one) || !slices.Contains(all, two) || len(all) < 118 || len(all) > 122 {
					t.Errorf("%d updates in a minute, want about 120", len(all))
				}

				if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: one}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // a modern client unsubscribes by a cancellation, which has no answer
				drain(got)
				pass(time.Minute)
				if all := drain(got); slices.Contains(all, one) || len(all) < 59 || len(all) > 61 {
					t.Errorf("after unsubscribing from %s, updates %v", one, all)
				}

				succeed(t, cs, "toggle-subscriber-updates", nil)
				synctest.Wait()
				drain(got)
				pass(time.Minute)
				if n := len(drain(got)); n > 0 {
					t.Errorf("%d updates after it was toggled off", n)
				}
				succeed(t, cs, "toggle-subscriber-updates", nil) // on while the session ends
			})
		})
	}
}

func TestSubscribeToNothing(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "demo://resource/dynamic/text/0"}); err == nil {
		t.Error("subscribed to a resource that does not exist")
	}
}

func TestSubscriptionsAreForgotten(t *testing.T) {
	i := newInstance(testSettings())
	defer i.close()
	one, two := &mcp.ServerSession{}, &mcp.ServerSession{}
	const uri = "demo://resource/dynamic/text/1"
	for _, ss := range []*mcp.ServerSession{one, one, two} {
		if err := i.subscribe(t.Context(), &mcp.SubscribeRequest{Session: ss, Params: &mcp.SubscribeParams{URI: uri}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		leaves *mcp.ServerSession
		want   int
	}{{one, 1}, {two, 0}} {
		if err := i.unsubscribe(t.Context(), &mcp.UnsubscribeRequest{Session: tt.leaves, Params: &mcp.UnsubscribeParams{URI: uri}}); err != nil {
			t.Fatal(err)
		}
		if got := i.subscribedURIs(); len(got) != tt.want {
			t.Errorf("subscribed are %v, want %d", got, tt.want)
		}
	}
}

func TestToggleExtras(t *testing.T) {
	for _, revision := range []string{revisionLegacy, revisionModern} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan string, 10)
				cs := connect(t, testSettings(), revision, &mcp.ClientOptions{
					ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { got <- "tool" },
					PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { got <- "prompt" },
					ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { got <- "resource" },
				})
				use := map[string]func() error{
					"tool": func() error {
						_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "extra-tool"})
						return err
					},
					"prompt": func() error {
						_, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "extra-prompt"})
						return err
					},
					"resource": func() error {
						_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: extraURI})
						return err
					},
				}
				for kind, use := range use {
					for _, there := range []bool{true, false} {
						succeed(t, cs, "toggle-extra-"+kind, nil)
						pass(time.Second)
						if changed := drain(got); !slices.Equal(changed, []string{kind}) {
							t.Errorf("toggling the %s changed the lists of %v", kind, changed)
						}
						if err := use(); (err == nil) != there {
							t.Errorf("using the extra %s: %v, want it there: %v", kind, err, there)
						}
					}
				}
			})
		})
	}
}
