//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func updateOf(uri string) func(message) bool {
	return func(m message) bool {
		u, ok := m.params.(*mcp.ResourceUpdatedNotificationParams)
		return ok && u.URI == uri
	}
}

func logLine(contains string) func(message) bool {
	return func(m message) bool {
		l, ok := m.params.(*mcp.LoggingMessageParams)
		return ok && strings.Contains(fmt.Sprint(l.Data), contains)
	}
}

func (p *peer) subscribe(t *testing.T, uri string) {
	t.Helper()
	if err := p.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatalf("subscribe %s: %v", uri, err)
	}
}

func (p *peer) unsubscribe(t *testing.T, uri string) {
	t.Helper()
	if err := p.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Fatalf("unsubscribe %s: %v", uri, err)
	}
}

func (s *script) subscriptions(t *testing.T) {
	p, first, second := s.peer, textURI(101), textURI(102)
	p.subscribe(t, first)
	p.subscribe(t, second)
	from := p.mark()
	p.tool(t, s.flavour.Names["updates"], nil) // the first round of updates comes at once
	p.next(t, from, "update of the first resource", updateOf(first))
	p.next(t, from, "update of the second resource", updateOf(second))
	p.tool(t, s.flavour.Names["updates"], nil)
	p.unsubscribe(t, first)
	from = p.mark()
	p.tool(t, s.flavour.Names["updates"], nil)
	p.next(t, from, "update of the second resource", updateOf(second))
	p.tool(t, s.flavour.Names["updates"], nil)
	p.unsubscribe(t, second)
	if late := p.since(from, updateOf(first)); len(late) > 0 {
		t.Errorf("updates after unsubscribing: %v", late)
	}
}

func (p *peer) setLevel(t *testing.T, level mcp.LoggingLevel) {
	t.Helper()
	if err := p.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		t.Fatalf("set level %s: %v", level, err)
	}
}

func (s *script) loggingLevel(t *testing.T) {
	p, wanted := s.peer, mcp.LoggingLevel(s.flavour.Log.Level)
	from := p.mark()
	p.setLevel(t, "error")
	silent := s.provokeLine(t, 3)
	p.setLevel(t, wanted)
	loud := s.provokeLine(t, 4)
	line := p.next(t, from, "log line at level "+s.flavour.Log.Level, logLine(loud))
	same(t, "level", line.params.(*mcp.LoggingMessageParams).Level, wanted)
	if below := p.since(from, logLine(silent)); len(below) > 0 {
		t.Errorf("lines below the level: %v", below)
	}
	p.setLevel(t, "debug")
	from = p.mark()
	p.tool(t, s.flavour.Names["logging"], nil) // the first line, of any level, comes at once
	p.next(t, from, "simulated log line", logLine(s.flavour.Log.Simulated))
	p.tool(t, s.flavour.Names["logging"], nil)
}

// provokeLine makes the server write a log line at the level of its flavour
// and returns what only that line has in it. n tells one such line from
// another.
func (s *script) provokeLine(t *testing.T, n int) string {
	t.Helper()
	if s.flavour.Log.By == "operation" {
		s.peer.tool(t, s.flavour.Names["long"], map[string]any{"duration": 0, "steps": n})
		return fmt.Sprintf("Step 1 of %d", n)
	}
	uri := textURI(200 + n)
	s.peer.subscribe(t, uri)
	s.peer.unsubscribe(t, uri)
	return "Subscribe Resource request for URI: " + uri
}

func (s *script) progress(t *testing.T) {
	for _, token := range []any{"tøken \"1\"", 12345} {
		from := s.peer.mark()
		params := &mcp.CallToolParams{Name: s.flavour.Names["long"], Arguments: map[string]any{"duration": 0.2, "steps": 5}}
		params.SetProgressToken(token)
		r, err := s.peer.session.CallTool(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, "result", textOf(r), "completed")
		isProgress := func(m message) bool { _, ok := m.params.(*mcp.ProgressNotificationParams); return ok }
		var got []any
		for _, m := range s.peer.collect(t, from, 5, "progress", isProgress) {
			n := m.params.(*mcp.ProgressNotificationParams)
			got = append(got, []any{n.ProgressToken, n.Progress, n.Total})
		}
		same(t, "progress", got, [][]any{{token, 1, 5}, {token, 2, 5}, {token, 3, 5}, {token, 4, 5}, {token, 5, 5}})
	}
}

func (s *script) cancellation(t *testing.T) {
	p := s.peer
	from := p.mark()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	params := &mcp.CallToolParams{Name: s.flavour.Names["long"], Arguments: map[string]any{"duration": 10, "steps": 100}}
	params.SetProgressToken("to be cancelled")
	answered := make(chan error, 1)
	go func() {
		_, err := p.session.CallTool(ctx, params)
		answered <- err
	}()
	p.next(t, from, "progress", func(m message) bool { _, ok := m.params.(*mcp.ProgressNotificationParams); return ok })
	cancel()
	if err := <-answered; err == nil {
		t.Error("the cancelled call was answered")
	}
	same(t, "the next call", p.text(t, "echo", map[string]any{"message": "after"}), "Echo: after")
	if !s.flavour.StopsOnCancel {
		return
	}
	// The server logs each step, ten in a second. An operation takes as long as several of them. Steps before the
	// cancellation may still be on their way during the first one.
	p.setLevel(t, "debug")
	operation := map[string]any{"duration": 0.5, "steps": 1}
	p.text(t, s.flavour.Names["long"], operation)
	fence := p.mark()
	p.text(t, s.flavour.Names["long"], operation)
	if late := p.since(fence, logLine("of 100")); len(late) > 0 {
		t.Errorf("steps of the cancelled operation: %v", late)
	}
}

func (s *script) sampling(t *testing.T) {
	before, _ := s.peer.questions()
	got := s.peer.text(t, s.flavour.Names["sampling"], map[string]any{"prompt": "tell ⟨me⟩", "maxTokens": 77})
	asked, _ := s.peer.questions()
	if len(asked) != len(before)+1 {
		t.Fatalf("%d requests, want 1", len(asked)-len(before))
	}
	q := asked[len(before)]
	contains(t, "prompt", promptOf(q), "tell ⟨me⟩")
	same(t, "maxTokens", q.MaxTokens, 77)
	same(t, "temperature", q.Temperature, 0.7)
	same(t, "system prompt", q.SystemPrompt, "You are a helpful test server.")
	contains(t, "result", got, "answer to", "model-of-the-client")
}

func (s *script) samplingRefused(t *testing.T) {
	defer s.peer.sample(func(*mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
		return nil, &jsonrpc.Error{Code: -1, Message: "the person said no"}
	})()
	r := s.peer.tool(t, s.flavour.Names["sampling"], map[string]any{"prompt": "x"})
	if !r.IsError {
		t.Error("the result is a success")
	}
	contains(t, "result", textOf(r), "the person said no")
}

func (s *script) elicitation(t *testing.T) {
	s.peer.elicit(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: s.flavour.Form.Content}, nil
	})
	contains(t, "result", s.peer.text(t, s.flavour.Names["elicitation"], nil), "Zoë", "7")
	_, asked := s.peer.questions()
	schema := roundTrip(asked[len(asked)-1].RequestedSchema).(map[string]any)
	same(t, "required properties", schema["required"], []string{"name"})
	same(t, "maximum of an integer", schema["properties"].(map[string]any)[s.flavour.Form.Integer].(map[string]any)["maximum"], 100)
}

func (s *script) elicitationDeclined(t *testing.T) {
	for action, want := range map[string]string{"decline": "declined", "cancel": "cancel"} {
		s.peer.elicit(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) { return &mcp.ElicitResult{Action: action}, nil })
		contains(t, action, s.peer.text(t, s.flavour.Names["elicitation"], nil), want)
	}
}

func (s *script) elicitationURL(t *testing.T) {
	if s.flavour.Names["elicitationURL"] == "" {
		t.Log("the server has no such feature")
		return
	}
	const url = "https://example.com/consent?x=1&y=2"
	s.peer.elicit(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) { return &mcp.ElicitResult{Action: "accept"}, nil })
	contains(t, "result", s.peer.text(t, s.flavour.Names["elicitationURL"], map[string]any{"url": url, "elicitationId": "e-1"}), "e-1")
	_, asked := s.peer.questions()
	q := asked[len(asked)-1]
	same(t, "request", []string{q.Mode, q.URL, q.ElicitationID}, []string{"url", url, "e-1"})

	// The other way: the call fails with a code whose data says what to open.
	_, err := s.peer.call(t, s.flavour.Names["elicitationURL"], map[string]any{"url": url, "errorPath": true, "elicitationId": "e-2"})
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) || answer.Code != mcp.CodeURLElicitationRequired {
		t.Fatalf("error %v, want code %d", err, mcp.CodeURLElicitationRequired)
	}
	var data struct{ Elicitations []mcp.ElicitParams }
	if err := json.Unmarshal(answer.Data, &data); err != nil || len(data.Elicitations) != 1 || data.Elicitations[0].Mode != "url" {
		t.Errorf("data = %s, want one elicitation by url", answer.Data)
	}
}

func (s *script) roots(t *testing.T) {
	contains(t, "roots", s.peer.text(t, s.flavour.Names["roots"], nil), "file:///tmp/first")
}

func (s *script) rootsChanged(t *testing.T) {
	from := s.peer.mark()
	s.peer.client.AddRoots(&mcp.Root{URI: "file:///tmp/second", Name: "second"})
	if s.flavour.AsksOnChange {
		s.peer.next(t, from, "roots/list", func(m message) bool { return m.method == "roots/list" })
	}
	// The server may have asked and not have digested the answer yet.
	if got, ok := eventually(func() (string, bool) {
		got := s.peer.text(t, s.flavour.Names["roots"], nil)
		return got, strings.Contains(got, "file:///tmp/second")
	}); !ok {
		t.Errorf("roots = %q", got)
	}
}

// serial makes names that nothing in the run has had before: some servers share
// what they list among sessions.
var serial atomic.Int32

func (s *script) listChanged(t *testing.T) {
	p := s.peer
	for _, change := range s.flavour.Changes {
		name := fmt.Sprintf("changed-%d-%d", os.Getpid(), serial.Add(1))
		args := map[string]any{}
		for k, v := range change.Arguments {
			args[k] = strings.ReplaceAll(v, "NAME", name)
		}
		item := strings.ReplaceAll(change.Item, "NAME", name)
		from := p.mark()
		p.text(t, change.Tool, args)
		p.next(t, from, change.Method, func(m message) bool { return m.method == change.Method })
		var listed []string
		switch change.Kind {
		case "tool":
			tools, _ := p.tools(t)
			listed = toolNames(tools)
		case "prompt":
			for _, prompt := range p.prompts(t) {
				listed = append(listed, prompt.Name)
			}
		case "resource":
			for _, r := range p.resources(t) {
				listed = append(listed, r.URI)
			}
		}
		includes(t, change.Kind+"s", listed, item)
		if item == change.Item {
			continue
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(s.read(t, item).Blob))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "content of the new resource", string(text), "hello")
	}
}
