//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

const revisionLegacy = "2025-11-25"

// asServer makes the test binary act as the server, so that tests have a real child.
const asServer = "EVERYTHING_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
		stop()
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func testSettings() settings {
	return settings{
		kind: kindStdio, era: eraBoth, interval: 5 * time.Second,
		environ: []string{"HOME=/home/test", "EQUATION=a=b"}, log: slog.New(slog.DiscardHandler),
	}
}

// connect starts a server for one client. When the test ends it closes the client and waits until all goroutines of the
// server have ended.
func connect(t *testing.T, s settings, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	i := newInstance(s)
	serverEnd, clientEnd := mcp.NewInMemoryTransports()
	ss, err := i.server.Connect(t.Context(), serverEnd, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), clientEnd, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	if got := cs.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("negotiated %s, want %s", got, revision)
	}
	t.Cleanup(func() {
		if err := cs.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
		// The client may close the pipe before it has read the last message.
		if err := ss.Wait(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the server's session ended with %v", err)
		}
		i.wg.Wait()
	})
	return cs
}

func call(t *testing.T, cs *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s(%v): %v", tool, args, err)
	}
	return res
}

// succeed calls a tool and returns its texts, one per line.
func succeed(t *testing.T, cs *mcp.ClientSession, tool string, args any) string {
	t.Helper()
	res := call(t, cs, tool, args)
	if res.IsError {
		t.Fatalf("%s(%v) is an error: %s", tool, args, texts(res.Content))
	}
	return texts(res.Content)
}

func texts(content []mcp.Content) string {
	var all []string
	for _, c := range content {
		if c, ok := c.(*mcp.TextContent); ok {
			all = append(all, c.Text)
		}
	}
	return strings.Join(all, "\n")
}

type args = map[string]any

func eachRevision(t *testing.T, f func(t *testing.T, revision string)) {
	for _, revision := range []string{"2024-11-05", "2025-06-18", revisionLegacy, revisionModern} {
		t.Run(revision, func(t *testing.T) { f(t, revision) })
	}
}

func TestSimpleTools(t *testing.T) {
	eachRevision(t, func(t *testing.T, revision string) {
		cs := connect(t, testSettings(), revision, nil)
		for _, tt := range []struct {
			name string
			args args
			want string
		}{
			{"echo", args{"message": "hi"}, "Echo: hi"},
			{"get-sum", args{"a": 2, "b": 0.5}, "The sum of 2 and 0.5 is 2.5."},
			{"get-annotated-message", args{"messageType": "error"}, "Error: Operation failed"},
			{"get-annotated-message", args{"messageType": "success"}, "Operation completed successfully"},
			{"get-annotated-message", args{"messageType": "debug"}, "Debug: Cache hit ratio 0.95, latency 150ms"},
			{"get-structured-content", args{"location": "Chicago"}, `{"conditions":"Light rain / drizzle","humidity":82,"temperature":36}`},
			{"long-running-operation", args{"duration": 0, "steps": 2}, "Long running operation completed. Duration: 0 seconds, Steps: 2."},
		} {
			if got := succeed(t, cs, tt.name, tt.args); got != tt.want {
				t.Errorf("%s(%v) = %q, want %q", tt.name, tt.args, got, tt.want)
			}
		}
	})
}

func TestBadArguments(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	for _, tt := range []struct {
		name string
		args args
	}{
		{"echo", args{}},
		{"get-sum", args{"a": "one", "b": 2}},
		{"get-annotated-message", args{"messageType": "warning"}},
		{"get-structured-content", args{"location": "Atlantis"}},
		{"get-resource-links", args{"count": 0}},
		{"get-resource-links", args{"count": 11}},
		{"get-resource-reference", args{"resourceType": "image"}},
		{"get-resource-reference", args{"resourceId": 0}},
		{"long-running-operation", args{"duration": -1}},
		{"sampling-request", args{}},
	} {
		if res := call(t, cs, tt.name, tt.args); !res.IsError {
			t.Errorf("%s(%v) is no error", tt.name, tt.args)
		}
	}
}

func TestGetEnv(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	var env map[string]string
	if err := json.Unmarshal([]byte(succeed(t, cs, "get-env", nil)), &env); err != nil {
		t.Fatal(err)
	}
	if env["HOME"] != "/home/test" || env["EQUATION"] != "a=b" || len(env) != 2 {
		t.Errorf("environment is %v", env)
	}
}

func TestAnnotations(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	res := call(t, cs, "get-annotated-message", args{"messageType": "error", "includeImage": true})
	if len(res.Content) != 2 {
		t.Fatalf("%d content blocks, want 2", len(res.Content))
	}
	if a := res.Content[0].(*mcp.TextContent).Annotations; a == nil || a.Priority != 1 || len(a.Audience) != 2 {
		t.Errorf("annotations of the text are %+v", a)
	}
	img := res.Content[1].(*mcp.ImageContent)
	if img.Annotations == nil || img.Annotations.Priority != 0.5 {
		t.Errorf("annotations of the image are %+v", img.Annotations)
	}
	tiny := call(t, cs, "get-tiny-image", nil).Content[1].(*mcp.ImageContent)
	if tiny.MIMEType != "image/png" || !strings.HasPrefix(string(tiny.Data), "\x89PNG") {
		t.Errorf("image is %s, %q", tiny.MIMEType, tiny.Data)
	}
}

func TestStructuredContent(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	res := call(t, cs, "get-structured-content", args{"location": "New York"})
	got, ok := res.StructuredContent.(map[string]any)
	if !ok || got["conditions"] != "Cloudy" {
		t.Errorf("structured content is %v", res.StructuredContent)
	}
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if has := tool.OutputSchema != nil; has != (tool.Name == "get-structured-content") {
			t.Errorf("%s has an output schema: %v", tool.Name, has)
		}
	}
}

func TestResourceLinks(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	if got := len(call(t, cs, "get-resource-links", nil).Content); got != 4 {
		t.Errorf("without a count, %d content blocks, want 1+3", got)
	}
	res := call(t, cs, "get-resource-links", args{"count": 10})
	if len(res.Content) != 11 {
		t.Fatalf("%d content blocks, want 11", len(res.Content))
	}
	for n, c := range res.Content[1:] {
		link := c.(*mcp.ResourceLink)
		if isText := strings.HasPrefix(link.URI, "demo://resource/dynamic/text/"); isText != (n%2 == 0) {
			t.Errorf("link %d is %s", n+1, link.URI)
		}
		read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
		if err != nil || read.Contents[0].MIMEType != link.MIMEType {
			t.Errorf("reading %s: %v, %v", link.URI, read, err)
		}
	}
}

func TestResourceReference(t *testing.T) {
	cs := connect(t, testSettings(), revisionLegacy, nil)
	for _, tt := range []struct {
		args args
		uri  string
		blob bool
	}{
		{nil, "demo://resource/dynamic/text/1", false}, // a nil map is null on the wire
		{args{}, "demo://resource/dynamic/text/1", false},
		{args{"resourceType": "blob", "resourceId": 7}, "demo://resource/dynamic/blob/7", true},
	} {
		res := call(t, cs, "get-resource-reference", tt.args)
		embedded := res.Content[1].(*mcp.EmbeddedResource).Resource
		if embedded.URI != tt.uri || (len(embedded.Blob) > 0) != tt.blob || (embedded.Text != "") == tt.blob {
			t.Errorf("get-resource-reference(%v) embeds %+v", tt.args, embedded)
		}
	}
}

func TestPagination(t *testing.T) {
	s := testSettings()
	s.pageSize = 2
	cs := connect(t, s, revisionLegacy, nil)
	first, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Tools) != 2 || first.NextCursor == "" {
		t.Errorf("first page has %d tools, cursor %q", len(first.Tools), first.NextCursor)
	}
	names := map[string]bool{}
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names[tool.Name] = true
	}
	for _, want := range []string{
		"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-structured-content", "get-sum",
		"get-tiny-image", "long-running-operation", "sampling-request", "elicitation-request", "list-roots", "toggle-logging",
		"toggle-subscriber-updates", "toggle-extra-tool", "toggle-extra-prompt", "toggle-extra-resource",
	} {
		if !names[want] {
			t.Errorf("no tool %s", want)
		}
		delete(names, want)
	}
	if len(names) > 0 {
		t.Errorf("unexpected tools %v", names)
	}
}
