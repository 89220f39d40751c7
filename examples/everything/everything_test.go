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
