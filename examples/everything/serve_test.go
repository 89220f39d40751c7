//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listen runs the program on a free port and returns the address that it prints. It stops the program when the test
// ends, with open connections.
func listen(t *testing.T, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stderr, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, append(arguments, "--port", "0"), nil, nil, nil, write)
		write.Close()
	}()
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		cancel()
		t.Fatalf("no address printed: %v", <-done)
	}
	_, address, ok := strings.Cut(lines.Text(), "listening on ")
	if !ok {
		t.Fatalf("printed %q, want an address", lines.Text())
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
			t.Logf("server: %s", lines.Text())
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stopped with %v", err)
		}
		<-drained
	})
	return address
}

func httpClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func dial(t *testing.T, transport mcp.Transport, revision string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	if got := cs.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("negotiated %s, want %s", got, revision)
	}
	return cs
}

func TestHTTP(t *testing.T) {
	for _, tt := range []struct{ name, kind, revision string }{
		{"sse", kindSSE, "2024-11-05"},
		{"sse, newer", kindSSE, revisionLegacy},
		{"streamable, first", kindStreamable, "2025-03-26"},
		{"streamable, legacy", kindStreamable, revisionLegacy},
		{"streamable, modern", kindStreamable, revisionModern},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := listen(t, tt.kind)
			updates := make(chan string, 1000)
			changes := make(chan struct{}, 10)
			opts := &mcp.ClientOptions{
				CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
					return &mcp.CreateMessageResult{Model: "parrot", Role: "assistant", Content: text("forty-two")}, nil
				},
				ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updates <- req.Params.URI },
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changes <- struct{}{} },
			}
			var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: httpClient(t)}
			if tt.kind == kindSSE {
				transport = &mcp.SSEClientTransport{Endpoint: address, HTTPClient: httpClient(t)}
			}
			cs := dial(t, transport, tt.revision, opts)

			if got := succeed(t, cs, "sampling-request", args{"prompt": "why?"}); !strings.Contains(got, "forty-two") {
				t.Errorf("sampling answers %q", got)
			}
			const uri = "demo://resource/dynamic/text/1"
			if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
			succeed(t, cs, "toggle-subscriber-updates", args{"intervalSeconds": 0.01})
			if got := <-updates; got != uri {
				t.Errorf("an update of %s, want %s", got, uri)
			}
			succeed(t, cs, "toggle-extra-tool", nil)
			<-changes
			succeed(t, cs, "extra-tool", nil)
			// The updates are still on when the server is stopped.
		})
	}
}

func TestSessionsAreApart(t *testing.T) {
	address := listen(t, kindStreamable)
	one := dial(t, &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: httpClient(t)}, revisionLegacy, nil)
	two := dial(t, &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: httpClient(t)}, revisionLegacy, nil)
	succeed(t, one, "toggle-extra-tool", nil)
	succeed(t, one, "extra-tool", nil)
	if _, err := two.CallTool(t.Context(), &mcp.CallToolParams{Name: "extra-tool"}); err == nil {
		t.Error("a session has the extra tool of another")
	}
}

// A stream without any message must not delay the end either.
func TestSilentStream(t *testing.T) {
	var stream io.Closer
	t.Cleanup(func() { stream.Close() }) // after the server has stopped
	address := listen(t, kindSSE)
	req, err := http.NewRequest(http.MethodGet, address, nil) // the test's context would end it first
	if err != nil {
		t.Fatal(err)
	}
	resp, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	stream = resp.Body
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "event: endpoint\n" {
		t.Errorf("the stream begins with %q, %v", line, err)
	}
}

// Each session leaves the set when its client deletes it.
func TestSessionsAreForgotten(t *testing.T) {
	s := testSettings()
	s.kind = kindStreamable
	set := newInstances(s)
	defer set.close()
	srv := httptest.NewServer(set.handler())
	defer srv.Close()
	var ended []*instance
	for range 3 {
		cs := dial(t, &mcp.StreamableClientTransport{Endpoint: srv.URL + set.path(), HTTPClient: httpClient(t)}, revisionLegacy, nil)
		succeed(t, cs, "toggle-logging", nil)
		set.mu.Lock()
		if len(set.live) != 1 {
			t.Errorf("%d live sessions, want 1", len(set.live))
		}
		for i := range set.live {
			ended = append(ended, i)
		}
		set.mu.Unlock()
		if err := cs.Close(); err != nil {
			t.Fatal(err)
		}
		for _, i := range ended {
			i.wg.Wait()
		}
		set.mu.Lock()
		if len(set.live) != 0 {
			t.Errorf("%d live sessions after the client left", len(set.live))
		}
		set.mu.Unlock()
	}
}

func TestEras(t *testing.T) {
	for _, tt := range []struct{ kind, era, ask, want string }{
		{kindStreamable, eraLegacy, revisionModern, revisionLegacy}, // the client falls back
		{kindStreamable, eraModern, revisionModern, revisionModern},
		{kindStdio, eraLegacy, revisionModern, revisionLegacy},
		{kindStdio, eraModern, revisionModern, revisionModern},
		{kindSSE, eraBoth, revisionModern, revisionLegacy},
	} {
		t.Run(tt.kind+" "+tt.era, func(t *testing.T) {
			var transport mcp.Transport
			switch tt.kind {
			case kindStdio:
				transport = &mcp.CommandTransport{Command: child(t, kindStdio, "--era", tt.era)}
			case kindSSE:
				transport = &mcp.SSEClientTransport{Endpoint: listen(t, tt.kind, "--era", tt.era), HTTPClient: httpClient(t)}
			default:
				transport = &mcp.StreamableClientTransport{Endpoint: listen(t, tt.kind, "--era", tt.era), HTTPClient: httpClient(t)}
			}
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
				Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: tt.ask})
			if err != nil {
				t.Fatal(err)
			}
			defer cs.Close()
			if got := cs.InitializeResult().ProtocolVersion; got != tt.want {
				t.Errorf("negotiated %s, want %s", got, tt.want)
			}
			succeed(t, cs, "echo", args{"message": "hi"})
		})
	}
}

// child is the program as a separate process.
func child(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], arguments...)
	cmd.Env = []string{
		asServer + "=1",
		"PORT=none of its business",
		"GORACE=atexit_sleep_ms=0", // under the race detector a process lingers for a second
	}
	return cmd
}

func TestStdioEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(stdin io.Closer, p *os.Process) error
	}{
		{"stdin closes", func(stdin io.Closer, _ *os.Process) error { return stdin.Close() }},
		{"terminated", func(_ io.Closer, p *os.Process) error { return p.Signal(syscall.SIGTERM) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := child(t, kindStdio, "--interval", "10ms")
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
				`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`,
				`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"long-running-operation","arguments":{"duration":3600}}}`,
				`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"toggle-logging"}}`,
			} {
				if _, err := io.WriteString(stdin, line+"\n"); err != nil {
					t.Fatal(err)
				}
			}
			lines := bufio.NewScanner(stdout)
			for seen := 0; seen < 6 && lines.Scan(); seen++ { // three answers and some log messages
				if _, err := jsonrpc.DecodeMessage(lines.Bytes()); err != nil {
					t.Errorf("stdout carries %q: %v", lines.Text(), err)
				}
			}
			if err := tt.end(stdin, cmd.Process); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				if _, err := jsonrpc.DecodeMessage(lines.Bytes()); err != nil {
					t.Errorf("stdout carries %q: %v", lines.Text(), err)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name    string
		args    []string
		environ []string
		want    string // part of the error; empty: none
		port    int
	}{
		{"nothing", nil, nil, "", 3001},
		{"kind only", []string{"sse"}, nil, "", 3001},
		{"port from the environment", []string{"sse"}, []string{"PORT=4000"}, "", 4000},
		{"the flag wins", []string{"sse", "--port", "5000"}, []string{"PORT=4000"}, "", 5000},
		{"the flag wins over nonsense", []string{"sse", "--port", "5000"}, []string{"PORT=x"}, "", 5000},
		{"flags without a kind", []string{"--page-size", "3"}, nil, "", 3001},
		{"nonsense in PORT", []string{"sse"}, []string{"PORT=x"}, `PORT is "x"`, 0},
		{"nonsense in PORT, unused", []string{"stdio"}, []string{"PORT=x"}, "", 3001},
		{"unknown kind", []string{"websocket"}, nil, `unknown transport "websocket"`, 0},
		{"unknown era", []string{"stdio", "--era", "bronze"}, nil, `unknown era "bronze"`, 0},
		{"modern sse", []string{"sse", "--era", "modern"}, nil, "no modern era", 0},
		{"port too large", []string{"sse", "--port", "65536"}, nil, "port is 65536", 0},
		{"negative page", []string{"stdio", "--page-size", "-1"}, nil, "page-size is -1", 0},
		{"no interval", []string{"stdio", "--interval", "0s"}, nil, "interval is 0s", 0},
		{"left over", []string{"stdio", "sse"}, nil, `unexpected argument "sse"`, 0},
		{"unknown flag", []string{"stdio", "--nope"}, nil, "nope", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse(tt.args, tt.environ, io.Discard)
			if tt.want == "" {
				if err != nil || s.port != tt.port {
					t.Errorf("parse(%q) = port %d, %v, want port %d", tt.args, s.port, err, tt.port)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parse(%q) = %v, want %q", tt.args, err, tt.want)
			}
		})
	}
}

func TestPortTaken(t *testing.T) {
	address := listen(t, kindStreamable)
	port := address[strings.LastIndex(address, ":")+1 : strings.LastIndex(address, "/")]
	err := run(t.Context(), []string{kindStreamable, "--port", port}, nil, nil, nil, io.Discard)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening on a taken port: %v", err)
	}
}

// A web page of another origin must not be able to use a server on the
// loopback interface.
func TestOtherOrigins(t *testing.T) {
	address := listen(t, kindStreamable)
	for _, header := range []http.Header{
		{"Origin": {"https://evil.example"}},
		{"Sec-Fetch-Site": {"cross-site"}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := httpClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("with %v: %s, want 403", header, resp.Status)
		}
	}
}
