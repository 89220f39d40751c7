//lint:file-ignore SA1019 roots and sampling are deprecated in 2026-07-28 and still part of everything.

package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

func init() {
	children["sdk server"] = serveSDK
	children["downstream"] = serveDownstream
}

// serveSDK is a server of the official SDK whose tools ask the client.
func serveSDK() {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	add := func(name string, f func(ctx context.Context, r *mcp.CallToolRequest) (string, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: object}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := f(ctx, r)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	}
	add("sample", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		a, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 7, Messages: []*mcp.SamplingMessage{}})
		if err != nil {
			return "", err
		}
		return a.Content.(*mcp.TextContent).Text, nil
	})
	add("elicit", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Mode: "form", Message: "seat?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"seat":{"type":"string"}}}`)})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(a.Action, a.Content["seat"]), nil
	})
	add("roots", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		a, err := r.Session.ListRoots(ctx, nil)
		if err != nil {
			return "", err
		}
		return a.Roots[0].URI, nil
	})
	add("progress", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)}); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	cancelled := make(chan struct{}, 1)
	add("wait", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
			return "", err
		}
		<-ctx.Done()
		cancelled <- struct{}{}
		return "", ctx.Err()
	})
	add("cancelled", func(context.Context, *mcp.CallToolRequest) (string, error) {
		<-cancelled
		return "yes", nil
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// A client of the official SDK with a session, and a server of it behind the
// bridge: all that they can do with each other directly.
func TestDownstreamSDK(t *testing.T) {
	quiet(t)
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "fake", Adapter: adapter(t, "sdk server", conn.Options{})}}, Log: slog.New(slog.DiscardHandler)})
	defer g.Close(context.Background())
	theirIn, in := io.Pipe()
	out, theirOut := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(context.Background(), g, "fake", theirIn, theirOut, DownstreamOptions{Log: slog.New(slog.DiscardHandler)})
		_ = theirOut.Close()
	}()
	progress := make(chan float64, 10)
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"seat": "12A"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
	})
	c.AddRoots(&mcp.Root{URI: "file:///home", Name: "home"})
	s, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.InitializeResult().ProtocolVersion; v != "2025-11-25" {
		t.Errorf("revision %s", v)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 6 {
		t.Errorf("ListTools = %v, %v", tools, err)
	}
	use := func(ctx context.Context, name string) (string, error) {
		p := &mcp.CallToolParams{Name: name}
		p.SetProgressToken("tok-" + name)
		r, err := s.CallTool(ctx, p)
		if err != nil {
			return "", err
		}
		return r.Content[0].(*mcp.TextContent).Text, nil
	}
	for name, want := range map[string]string{"sample": "sampled", "elicit": "accept12A", "roots": "file:///home", "progress": "done"} {
		if got, err := use(t.Context(), name); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", name, got, err, want)
		}
	}
	if got := []float64{<-progress, <-progress, <-progress}; !slices.Equal(got, []float64{1, 2, 3}) {
		t.Errorf("progress %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { _, err := use(ctx, "wait"); waited <- err }()
	<-progress // it has begun
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v", err)
	}
	if got, err := use(t.Context(), "cancelled"); err != nil || got != "yes" {
		t.Errorf("cancelled = %q, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// serveDownstream is the bridge as a desktop program starts it. Its log is on
// standard error.
func serveDownstream() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "fake", Adapter: &wiretest.Server{}}}, Log: log})
	err := Serve(context.Background(), g, "fake", os.Stdin, os.Stdout, DownstreamOptions{Log: log})
	g.Close(context.Background())
	if err != nil {
		os.Exit(1)
	}
}

// The bridge as a child, on a real standard input and output: it ends by itself
// when its input does.
func TestDownstreamProcess(t *testing.T) {
	quiet(t)
	p := mustStart(t, self(t, "downstream"))
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	if _, err := fmt.Fprintf(p.stdin, initialize+"\n%s\n%s\n", "2025-06-18", initialized, tool("1", "echo", large)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(p.stdout)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":0,"result":`) {
		t.Fatalf("initialize = %.200q, %v", line, err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != `{"jsonrpc":"2.0","id":1,"result":{"echo":`+large+"}}\n" {
		t.Errorf("echo = %.200q, %v", line, err)
	}
	if err := p.stdin.Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(r); len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	<-p.Exited()
	if got := p.State(); got != "exit status 0" {
		t.Errorf("state %q", got)
	}
}
