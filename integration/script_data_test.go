//lint:file-ignore SA1019 roots, sampling and logging are deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listed is every item of a listing over all its pages, and how many those were.
func listed[T any](t *testing.T, page func(cursor string) (items []T, next string, err error)) ([]T, int) {
	t.Helper()
	var all []T
	cursor := ""
	for n := 1; ; n++ {
		items, next, err := page(cursor)
		if err != nil {
			t.Fatalf("page %d of the listing: %v", n, err)
		}
		all = append(all, items...)
		if next == "" {
			return all, n
		}
		if n == 100 {
			t.Fatal("there is still a cursor after 100 pages")
		}
		cursor = next
	}
}

func (p *peer) tools(t *testing.T) ([]*mcp.Tool, int) {
	t.Helper()
	return listed(t, func(cursor string) ([]*mcp.Tool, string, error) {
		r, err := p.session.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return r.Tools, r.NextCursor, nil
	})
}

func (p *peer) resources(t *testing.T) []*mcp.Resource {
	t.Helper()
	all, _ := listed(t, func(cursor string) ([]*mcp.Resource, string, error) {
		r, err := p.session.ListResources(t.Context(), &mcp.ListResourcesParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return r.Resources, r.NextCursor, nil
	})
	return all
}

func (p *peer) prompts(t *testing.T) []*mcp.Prompt {
	t.Helper()
	all, _ := listed(t, func(cursor string) ([]*mcp.Prompt, string, error) {
		r, err := p.session.ListPrompts(t.Context(), &mcp.ListPromptsParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		return r.Prompts, r.NextCursor, nil
	})
	return all
}

func toolNames(tools []*mcp.Tool) []string {
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	return names
}

func (s *script) toolsList(t *testing.T) {
	tools, _ := s.peer.tools(t)
	names := toolNames(tools)
	includes(t, "tools", names, s.flavour.Tools...)
	includes(t, "tools", names, slices.Collect(maps.Values(s.flavour.Names))...)
	for _, tool := range tools {
		switch tool.Name {
		case "get-sum":
			schema := roundTrip(tool.InputSchema).(map[string]any)
			properties := schema["properties"].(map[string]any)
			same(t, "properties of get-sum", slices.Sorted(maps.Keys(properties)), []string{"a", "b"})
			same(t, "type of a", properties["a"].(map[string]any)["type"], "number")
		case "get-structured-content":
			if tool.OutputSchema == nil {
				t.Error("get-structured-content has no output schema")
			}
		}
	}
}

func (s *script) echo(t *testing.T) {
	for _, word := range []string{"hello", ""} {
		same(t, "echo", s.peer.text(t, "echo", map[string]any{"message": word}), "Echo: "+word)
	}
}

func (s *script) echoUnicode(t *testing.T) {
	const hard = "é 日本語 🎉👩‍👩‍👧 \u2028\u2029 \t\"quoted\" \\back\\ \u0001 </script> \ufeff end\nline\r\nline"
	same(t, "echo", s.peer.text(t, "echo", map[string]any{"message": hard}), "Echo: "+hard)
}

func (s *script) echoBig(t *testing.T) {
	// Characters of 1, 2, 3 and 4 bytes: whatever the chunks, some boundary falls inside one.
	big := strings.Repeat("aé日🎉", 1<<20/10)
	if got := s.peer.text(t, "echo", map[string]any{"message": big}); got != "Echo: "+big {
		t.Errorf("1 MB came back as %d bytes, want %d", len(got), len(big)+6)
	}
}

func (s *script) sum(t *testing.T) {
	contains(t, "get-sum", s.peer.text(t, "get-sum", map[string]any{"a": 2.5, "b": 40}), "42.5")
}

func (s *script) structured(t *testing.T) {
	r := s.peer.tool(t, "get-structured-content", map[string]any{"location": "Chicago"})
	want := map[string]any{"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
	same(t, "structured content", r.StructuredContent, want)
	same(t, "text content", json.RawMessage(textOf(r)), want)
}

func (s *script) image(t *testing.T) {
	for _, c := range s.peer.tool(t, "get-tiny-image", nil).Content {
		if image, ok := c.(*mcp.ImageContent); ok {
			same(t, "type", image.MIMEType, "image/png")
			if !bytes.HasPrefix(image.Data, []byte("\x89PNG")) {
				t.Errorf("the image begins with %q", image.Data[:min(8, len(image.Data))])
			}
			return
		}
	}
	t.Error("no image in the result")
}

func (s *script) annotations(t *testing.T) {
	r := s.peer.tool(t, "get-annotated-message", map[string]any{"messageType": "error", "includeImage": true})
	if len(r.Content) != 2 {
		t.Fatalf("%d blocks, want 2", len(r.Content))
	}
	blocks := roundTrip(r.Content).([]any)
	same(t, "text", blocks[0].(map[string]any)["annotations"], map[string]any{"priority": 1, "audience": []string{"user", "assistant"}})
	same(t, "image", blocks[1].(map[string]any)["annotations"], map[string]any{"priority": 0.5, "audience": []string{"user"}})
}

func (s *script) resourceLinks(t *testing.T) {
	var links []string
	for _, c := range s.peer.tool(t, "get-resource-links", map[string]any{"count": 4}).Content {
		if link, ok := c.(*mcp.ResourceLink); ok {
			links = append(links, link.URI)
		}
	}
	var want []string
	for _, link := range s.flavour.Links {
		want = append(want, "demo://resource/dynamic/"+link)
	}
	same(t, "links", links, want)
}

func (s *script) embedded(t *testing.T) {
	embedded := func(kind string, id int) *mcp.ResourceContents {
		for _, c := range s.peer.tool(t, "get-resource-reference", map[string]any{"resourceType": kind, "resourceId": id}).Content {
			if r, ok := c.(*mcp.EmbeddedResource); ok {
				return r.Resource
			}
		}
		t.Fatalf("no %s resource in the result", kind)
		return nil
	}
	text, blob := embedded(s.flavour.ResourceTypes.Text, 3), embedded(s.flavour.ResourceTypes.Blob, 4)
	same(t, "uri", text.URI, textURI(3))
	contains(t, "text", text.Text, "Resource 3")
	same(t, "uri", blob.URI, blobURI(4))
	contains(t, "blob", string(blob.Blob), "Resource 4")
}

func (s *script) resourcesList(t *testing.T) {
	var uris []string
	for _, r := range s.peer.resources(t) {
		uris = append(uris, r.URI)
		if r.URI == s.flavour.Resource.URI {
			same(t, "type", r.MIMEType, s.flavour.Resource.MIMEType)
		}
	}
	includes(t, "resources", uris, s.flavour.Resource.URI)
}

func (s *script) read(t *testing.T, uri string) *mcp.ResourceContents {
	t.Helper()
	r, err := s.peer.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	same(t, "uri", r.Contents[0].URI, uri)
	return r.Contents[0]
}

func (s *script) resourcesRead(t *testing.T) {
	contains(t, "static resource", s.read(t, s.flavour.Resource.URI).Text, s.flavour.Resource.Contains)
	contains(t, "text", s.read(t, textURI(12)).Text, "Resource 12")
	contains(t, "blob", string(s.read(t, blobURI(13)).Blob), "Resource 13")
}

func (s *script) templates(t *testing.T) {
	all, _ := listed(t, func(cursor string) ([]string, string, error) {
		r, err := s.peer.session.ListResourceTemplates(t.Context(), &mcp.ListResourceTemplatesParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}
		var templates []string
		for _, template := range r.ResourceTemplates {
			templates = append(templates, template.URITemplate)
		}
		return templates, r.NextCursor, nil
	})
	includes(t, "templates", all, s.template("text"), s.template("blob"))
}

func (s *script) template(kind string) string {
	return fmt.Sprintf("demo://resource/dynamic/%s/{%s}", kind, s.flavour.TemplateArgument)
}

func (s *script) pagination(t *testing.T) {
	tools, n := s.peer.tools(t)
	names := toolNames(tools)
	slices.Sort(names)
	same(t, "distinct tools over all pages", len(slices.Compact(names)), len(tools))
	if s.flavour.Paginates && n < 2 {
		t.Errorf("the tools came in %d page, want several", n)
	}
	s.refused(t, "badCursor", func(ctx context.Context) (*mcp.CallToolResult, error) {
		_, err := s.peer.session.ListTools(ctx, &mcp.ListToolsParams{Cursor: "no such cursor"})
		return nil, err
	})
}

func (s *script) promptsList(t *testing.T) {
	var names []string
	for _, prompt := range s.peer.prompts(t) {
		names = append(names, prompt.Name)
		if prompt.Name == "args-prompt" {
			args := map[string]bool{}
			for _, a := range prompt.Arguments {
				args[a.Name] = a.Required
			}
			same(t, "arguments of args-prompt", args, map[string]bool{"city": true, "state": false})
		}
	}
	includes(t, "prompts", names, s.flavour.Prompts...)
}

func (s *script) promptsGet(t *testing.T) {
	get := func(name string, args map[string]string) []*mcp.PromptMessage {
		r, err := s.peer.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatalf("prompt %s: %v", name, err)
		}
		return r.Messages
	}
	text := func(name string, args map[string]string) string {
		c, _ := get(name, args)[0].Content.(*mcp.TextContent)
		return c.Text
	}
	same(t, "simple-prompt", text("simple-prompt", nil), "This is a simple prompt without arguments.")
	same(t, "args-prompt", text("args-prompt", map[string]string{"city": "Köln", "state": "NRW"}), "What's weather in Köln, NRW?")
	same(t, "completable-prompt", text("completable-prompt", map[string]string{"department": "Sales", "name": "Eve"}),
		"Please promote Eve to the head of the Sales team.")
	messages := get("resource-prompt", map[string]string{"resourceType": s.flavour.ResourceTypes.Text, "resourceId": "7"})
	if r, ok := messages[1].Content.(*mcp.EmbeddedResource); !ok || r.Resource.URI != textURI(7) {
		t.Errorf("resource-prompt: %s", brief(messages))
	}
}

func (s *script) completion(t *testing.T) {
	prompt := &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"}
	template := &mcp.CompleteReference{Type: "ref/resource", URI: s.template("text")}
	for _, test := range []struct {
		ref         *mcp.CompleteReference
		name, value string
		department  string
		want        []string
	}{
		{prompt, "department", "S", "", []string{"Sales", "Support"}},
		{prompt, "name", "", "Marketing", []string{"Grace", "Henry", "Iris"}},
		{prompt, "name", "J", "Support", []string{"John"}},
		{template, s.flavour.TemplateArgument, "12", "", []string{"12"}}, // others that begin so may follow
	} {
		params := &mcp.CompleteParams{Ref: test.ref, Argument: mcp.CompleteParamsArgument{Name: test.name, Value: test.value}}
		if test.department != "" {
			params.Context = &mcp.CompleteContext{Arguments: map[string]string{"department": test.department}}
		}
		r, err := s.peer.session.Complete(t.Context(), params)
		if err != nil {
			t.Fatalf("complete %s: %v", test.name, err)
		}
		got := r.Completion.Values
		if test.ref == template {
			got = got[:min(1, len(got))]
		}
		same(t, "completion of "+test.name+" "+test.value, got, test.want)
	}
}
