//lint:file-ignore SA1019 roots are deprecated from 2026-07-28 on; the bridge serves the revisions before it.

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestTogether offers three servers as one, over each transport: of two makes,
// two of them on stdio and one remote. What each can do is there under its own
// prefix, and what each says and asks reaches the client.
func TestTogether(t *testing.T) {
	t.Parallel()
	local, other := references[0], references[1]
	file := configureNamed(t, map[string]any{"servers": map[string]any{
		"local":  kindOf(t, local, "stdio"),
		"remote": kindOf(t, local, "streamable"),
		"other": with(kindOf(t, other, "stdio"), map[string]any{
			"tools": map[string]any{"deny": []string{"get-env"}, "rename": map[string]any{"get-sum": "add"}},
		}),
	}})
	p := serveFile(t, file)
	for _, where := range []target{
		{transport: "streamable", url: p.base + "/mcp"},
		{transport: "sse", url: p.base + "/sse"},
		{transport: "stdio", command: connectTo(t, file)},
	} {
		if !whole && where.transport != "streamable" {
			continue
		}
		t.Run(where.transport, func(t *testing.T) {
			t.Parallel()
			together(t, where, loadFlavour(t, "go"), loadFlavour(t, "npm"))
		})
	}
}

// A server is started before its first client comes, which uses that process. One that
// cannot be started says so by then.
func TestStartedAhead(t *testing.T) {
	t.Parallel()
	b := serveFile(t, configureNamed(t, map[string]any{"servers": map[string]any{
		"good": kindOf(t, references[0], "stdio"),
		"bad":  map[string]any{"stdio": map[string]any{"command": node(t), "args": []string{"-e", "console.error('no key'); process.exit(3)"}}},
	}}))
	log, ok := eventually(func() (string, bool) {
		log := b.output.String()
		return log, strings.Count(log, "child started") == 2 && strings.Contains(log, "server failed") && strings.Contains(log, "no key")
	})
	if !ok {
		t.Fatalf("before the first client the log is\n%s", log)
	}
	p := newPeer("ahead", false)
	p.connect(t, target{transport: "streamable", url: b.base + "/good/mcp"}, legacy)
	if p.listTools(t); strings.Count(b.output.String(), "child started") != 2 {
		t.Error("the first client has another process")
	}
	p.close(t)
}

func with(m map[string]any, more map[string]any) map[string]any {
	for name, value := range more {
		m[name] = value
	}
	return m
}

func together(t *testing.T, where target, ours, theirs flavour) {
	p := newPeer("together", false)
	p.client.AddRoots(&mcp.Root{URI: "file:///tmp/together", Name: "together"})
	// A server that starts slowly joins later: the first session may not have its tools.
	var listed []string
	eventually(func() (struct{}, bool) {
		p.connect(t, where, legacy)
		listed = p.listTools(t)
		all := strings.Contains(p.session.InitializeResult().Instructions, "other:\n") && slices.Contains(listed, "other__echo")
		if !all {
			p.close(t)
		}
		return struct{}{}, all
	})
	defer p.close(t)
	contains(t, "instructions", p.session.InitializeResult().Instructions, "local:\n", "other:\n", "remote:\n")
	for _, name := range []string{"local__echo", "remote__echo", "other__echo", "other__add"} {
		if !slices.Contains(listed, name) {
			t.Errorf("no tool %s in %q", name, listed)
		}
	}
	for _, name := range []string{"other__get-env", "other__get-sum", "echo"} {
		if slices.Contains(listed, name) {
			t.Errorf("there is a tool %s", name)
		}
		if _, err := p.call(t, name, map[string]any{"a": 1, "b": 2}); err == nil {
			t.Errorf("%s, which is not listed, can be called", name)
		}
	}
	var prompts []string
	for prompt, err := range p.session.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, prompt.Name)
	}
	includes(t, "prompts", prompts, "local__simple-prompt", "remote__simple-prompt", "other__simple-prompt")
	var resources []string
	for resource, err := range p.session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(resources, resource.URI) {
			t.Errorf("the resource %s is listed twice", resource.URI)
		}
		resources = append(resources, resource.URI)
	}
	includes(t, "resources", resources, theirs.Resource.URI)
	read, err := p.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: theirs.Resource.URI})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "resource", read.Contents[0].Text, theirs.Resource.Contains)
	if _, err := p.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "other__simple-prompt"}); err != nil {
		t.Error(err)
	}
	completion, err := p.session.Complete(t.Context(), &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "other__completable-prompt"},
		Argument: mcp.CompleteParamsArgument{Name: "department", Value: "E"},
	})
	if err != nil || !slices.Contains(completion.Completion.Values, "Engineering") {
		t.Errorf("completion: %v, %v", completion, err)
	}

	// At once, so that what they say can be mixed up.
	names := map[string]flavour{"local": ours, "remote": ours, "other": theirs}
	var all sync.WaitGroup
	for name, f := range names {
		all.Go(func() {
			if got := p.text(t, name+"__echo", map[string]any{"message": name}); got != "Echo: "+name {
				t.Errorf("%s: %q", name, got)
			}
			if got := p.text(t, name+"__"+f.Names["sampling"], map[string]any{"prompt": "for " + name, "maxTokens": 10}); !strings.Contains(got, "for "+name) {
				t.Errorf("%s: sampling: %q", name, got)
			}
			if got := p.text(t, name+"__"+f.Names["roots"], nil); !strings.Contains(got, "/tmp/together") {
				t.Errorf("%s: roots: %q", name, got)
			}
			params := &mcp.CallToolParams{Name: name + "__" + f.Names["long"], Arguments: map[string]any{"duration": 0.5, "steps": 3}}
			params.SetProgressToken("progress of " + name)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := p.session.CallTool(ctx, params); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	for name := range names {
		for i, m := range p.collect(t, 0, 3, "progress of "+name, func(m message) bool {
			n, ok := m.params.(*mcp.ProgressNotificationParams)
			return ok && n.ProgressToken == "progress of "+name
		}) {
			if got := m.params.(*mcp.ProgressNotificationParams).Progress; got != float64(i+1) {
				t.Errorf("%s: progress %v, want %d", name, got, i+1)
			}
		}
	}
	from := p.mark()
	p.setLevel(t, "debug")
	p.tool(t, "local__"+ours.Names["logging"], nil)
	p.next(t, from, "a log line", func(m message) bool { return m.method == "notifications/message" })
	p.tool(t, "local__"+ours.Names["logging"], nil)
	uri := textURI(7)
	p.subscribe(t, uri) // the template of all three: the first in the file has it
	from = p.mark()
	p.tool(t, "local__"+ours.Names["updates"], nil)
	p.next(t, from, "update", updateOf(uri))
	p.tool(t, "local__"+ours.Names["updates"], nil)
	p.unsubscribe(t, uri)
	from = p.mark()
	p.tool(t, "remote__"+ours.Changes[0].Tool, nil)
	p.next(t, from, fmt.Sprint(ours.Changes[0].Method), func(m message) bool { return m.method == ours.Changes[0].Method })
}
