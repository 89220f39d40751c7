package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// everything returns the path of the example server.
func everything(t *testing.T) string {
	t.Helper()
	path := programtest.Build(t, "./examples/everything", scaletest.Raced)
	if scaletest.Raced && runtime.GOOS != "windows" { // a server does not get the bridge's environment
		script := "#!/bin/sh\nexport " + scaletest.AtOnce + "\nexec '" + path + "' \"$@\"\n"
		path = filepath.Join(t.TempDir(), "everything.sh")
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// Whole runs, with a real server as a child process of a real bridge. Commands of one client are no instances: they need no
// store, also where the file has a cluster (S-003).
func TestWholeRuns(t *testing.T) {
	program := everything(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	dir := t.TempDir()
	config := file(t, "bridge.yaml", "cluster: { redis: redis://127.0.0.1:1, secret: "+strings.Repeat("secret", 9)+", listen: 127.0.0.1:0, advertise: 127.0.0.1 }\n"+
		"servers:\n  ours: { stdio: { command: "+program+", args: [stdio] }, tools: { allow: [\"get-*\"] } }\n")
	for _, test := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts
	}{
		{"tools", []string{"tools"}, 0, "echo                       read-only  Returns the message\n", ""},
		{"call", []string{"call", "get-sum", "a=1", "b=2"}, 0, "The sum of 1 and 2 is 3.\n", ""},
		{"call with JSON", []string{"call", "echo", "message=<&>", "--json-output"}, 0, `{"content":[{"type":"text","text":"Echo: `, ""},
		{"a schema with values", []string{"call", "get-structured-content", "location=Chicago"}, 0, `"conditions":"Light rain`, ""},
		{"a wrong value", []string{"call", "get-structured-content", "location=Chicaco"}, exit.Usage, "", "did you mean Chicago?"},
		{"the server's own check", []string{"call", "--no-check", "get-structured-content", "location=Chicaco"}, exit.Answer, "Chicaco", "answered with an error"},
		{"a tool's error", []string{"call", "sampling-request", "prompt=hello"}, exit.Answer, "the client lacks the capability", "answered with an error"},
		{"a question without a terminal", []string{"call", "elicitation-request"}, 0, "The user cancelled", "there is no terminal to answer on"},
		{"an image", []string{"call", "get-tiny-image", "--output-dir", dir}, 0, "get-tiny-image-1.png", ""},
		{"roots", []string{"call", "list-roots", "--root", dir}, 0, "file://" + dir, ""},
		{"progress", []string{"call", "long-running-operation", "duration=0", "steps=2"}, 0, "completed", "1/2 (50%) Step 1 of 2\n2/2 (100%) Step 2 of 2\n"},
		{"the server's log", []string{"call", "long-running-operation", "duration=0", "steps=1", "-v", "--log-level", "debug"}, 0, "completed", "[debug] long-running-operation: Step 1 of 1\n"},
		{"prompts", []string{"prompts"}, 0, "args-prompt         city [state]", ""},
		{"a prompt", []string{"prompts", "args-prompt", "city=Bern"}, 0, "user:\nWhat's weather in Bern?\n", ""},
		{"resources", []string{"resources"}, 0, "demo://resource/dynamic/text/{index}", ""},
		{"a resource", []string{"resources", "demo://resource/static/document/features.md"}, 0, "# Features\n", ""},
		{"binary content", []string{"resources", "demo://resource/dynamic/blob/1"}, 0, "Resource 1: This is a blob", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			says(t, test.code, test.stdout, test.stderr, append(test.args, "--", program, "stdio")...)
		})
	}
	// A name in a file brings the file's filters.
	code, stdout, stderr := in(t, "tools", "ours", "-c", config)
	if code != 0 || !strings.Contains(stdout, "get-sum") || strings.Contains(stdout, "echo") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s\nwant 0 and only what the filter lets through", code, stdout, stderr)
	}
	says(t, exit.Usage, "*", `no tool "echo"`, "call", "ours", "echo", "message=a", "-c", config)
}

// A server that notes what it gets, and lets every call wait for ever.
const noting = `while read -r line; do
  printf '%s\n' "$line" >> "$1"
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"wait","inputSchema":{}},{"name":"die","inputSchema":{}}]}}' ;;
  *'"die"'*) echo 'last words' >&2; exit 3 ;;
  *'"tools/call"'*) echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$id',"progress":1}}' ;;
  esac
done`

// trigger calls f when what is written has that text in it.
type trigger struct {
	text string
	f    func()

	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (t *trigger) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if strings.Contains(string(b), t.text) {
		t.f()
	}
	return t.all.Write(b)
}

// The other ends of a whole run: interrupted, timed out, lost, not started.
func TestWholeRunsThatFail(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	notes := filepath.Join(t.TempDir(), "notes")
	server := []string{"--", "sh", "-c", noting, "sh", notes}

	ctx, interrupt := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	stderr := &trigger{text: "1\n", f: interrupt}
	code := run(ctx, append([]string{"call", "wait"}, server...), &stdout, stderr)
	if code != exit.Interrupted || stdout.String() != "" || stderr.all.String() != "1\nmcp-bridge: interrupted\n" {
		t.Errorf("interrupted: exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.all.String())
	}
	text, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	called, taken := "", ""
	for line := range strings.Lines(string(text)) {
		switch gjson.Get(line, "method").String() {
		case "tools/call":
			called = gjson.Get(line, "id").Raw
		case "notifications/cancelled":
			taken = gjson.Get(line, "params.requestId").Raw
		}
	}
	if called == "" || taken != called {
		t.Errorf("request %q was taken back, want %q; the server got\n%s", taken, called, text)
	}

	// Only the file can bound a call without bounding the handshake.
	config := file(t, "bridge.yaml", "servers:\n  slow: { stdio: { command: sh, args: ["+file(t, "script", noting)+", "+notes+"] }, timeout: 50ms }\n")
	for _, test := range []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"timed out", []string{"call", "slow", "wait", "-q", "-c", config}, exit.Timeout, "had no answer within 50ms"},
		{"lost", append([]string{"call", "die"}, server...), exit.Server, "exit status 3"},
		{"lost, with its last words", append([]string{"call", "die", "--verbose"}, server...), exit.Server, "last words"},
		{"not started", []string{"tools", "--", missingProgram}, exit.Usage, missingProgram},
		{"no server", []string{"tools", "--", "sh", "-c", "exit 3"}, exit.Server, "exit status 3"},
		{"no server, with its reason", []string{"tools", "--", "sh", "-c", "echo set FOO_KEY >&2; exit 3"}, exit.Server, "\nits last lines on stderr:\n  set FOO_KEY\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			says(t, test.code, "", test.stderr, test.args...)
		})
	}
}

// A URL, over each of the transports, with the header that it needs.
func TestWholeRunsOverHTTP(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
	})
	get := func(*http.Request) *mcp.Server { return s }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, nil))
	mux.Handle("/sse", mcp.NewSSEHandler(get, nil))
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, q)
	}))
	t.Cleanup(h.Close)
	t.Setenv("WHOLE_TOKEN", "secret")
	for _, path := range []string{"/mcp", "/sse"} {
		code, stdout, stderr := in(t, "call", h.URL+path, "hello", "-H", "Authorization: Bearer ${WHOLE_TOKEN}")
		if code != 0 || stdout != "hello\n" || stderr != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want 0 and hello", path, code, stdout, stderr)
		}
		code, stdout, stderr = in(t, "call", h.URL+path, "hello", "-H", "Authorization: Bearer wrong-one")
		if code != exit.Server || stdout != "" || !strings.Contains(stderr, "401") || strings.Contains(stderr, "wrong-one") {
			t.Errorf("%s without access: exit code %d, stdout %q, stderr %q, want %d, nothing and the status", path, code, stdout, stderr, exit.Server)
		}
	}
}

// A server whose tool has to be called as a task, and asks the user something
// when its result is asked for.
const taskScript = `while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}}' ;;
  *'"tools/call"'*'"task":{'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"task":{"taskId":"1","status":"working","pollInterval":1}}}' ;;
  *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"Tool t requires task augmentation"}}' ;;
  *'"tasks/get"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"taskId":"1","status":"input_required","pollInterval":1}}' ;;
  *'"tasks/result"'*) result=$id
    echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which one?","requestedSchema":{"type":"object","properties":{}}}}' ;;
  *'"action":"cancel"'*) echo '{"jsonrpc":"2.0","id":'$result',"result":{"content":[{"type":"text","text":"nobody has chosen"}]}}' ;;
  esac
done`

// The same through a real bridge.
func TestWholeTask(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	code, stdout, stderr := in(t, "call", "t", "--", "sh", "-c", taskScript)
	if code != 0 || stdout != "nobody has chosen\n" || !strings.Contains(stderr, "the server asks: Which one?\n") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want 0, and the question put", code, stdout, stderr)
	}
}

// The same with a server that was not made for it.
func TestWholeTaskOfServerEverything(t *testing.T) {
	programtest.Need(t, "node")
	modules := programtest.Packages(t, "integration")
	program := filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js")
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	code, stdout, stderr := in(t, "call", "simulate-research-query", "topic=python", "ambiguous=true", "--", "node", program, "stdio")
	if code != 0 || !strings.Contains(stdout, "# Research Report: python (User cancelled") || !strings.Contains(stderr, "Gathering sources...\n") || !strings.Contains(stderr, "the server asks: ") {
		t.Errorf("exit code %d, stdout\n%s\nstderr\n%s\nwant 0, a report, the stages and the question", code, stdout, stderr)
	}
}
