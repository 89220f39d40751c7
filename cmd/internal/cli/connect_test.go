package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// remoteServer is a server that speaks Streamable HTTP, with one tool, echo.
type remoteServer struct {
	*httptest.Server
	status int    // of every answer; 0 means that it works
	ended  func() // called at a DELETE; may be nil

	mu   sync.Mutex // guards got
	got  []string   // the methods: of JSON-RPC, or DELETE
	auth []string   // the Authorization of each request
}

func newRemote(t *testing.T, status int) *remoteServer {
	r := &remoteServer{status: status}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *remoteServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	method, id := gjson.GetBytes(body, "method").String(), gjson.GetBytes(body, "id")
	if q.Method != http.MethodPost {
		method = q.Method
	}
	r.mu.Lock()
	r.got, r.auth = append(r.got, method), append(r.auth, q.Header.Get("Authorization"))
	r.mu.Unlock()
	if method == http.MethodDelete && r.ended != nil {
		r.ended()
	}
	result := ""
	switch {
	case r.status != 0:
		http.Error(w, "no", r.status)
		return
	case method == http.MethodGet:
		http.Error(w, "no stream", http.StatusMethodNotAllowed)
		return
	case !id.Exists():
		w.WriteHeader(http.StatusAccepted)
		return
	case method == "initialize":
		w.Header().Set("Mcp-Session-Id", "session")
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"remote","version":"1"}}`
	case method == "tools/list":
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	default:
		result = `{"content":[],"called":"` + gjson.GetBytes(body, "params.name").String() + `"}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id.Raw, result)
}

func (r *remoteServer) seen() (got, auth []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got), slices.Clone(r.auth)
}

// talk is a command line that is being run, between us as its client.
type talk struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	log   bytes.Buffer // to be read after the end
	ended chan int
}

// start runs a command line that speaks to its stdin and stdout.
func start(ctx context.Context, t *testing.T, args ...string) *talk {
	k := &talk{t: t, ended: make(chan int, 1)}
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	k.in, k.out = toIn, bufio.NewReader(fromOut)
	t.Cleanup(func() {
		toIn.Close()
		fromOut.Close()
	})
	go func() {
		root := newRoot(out, &k.log, out, &k.log)
		root.SetArgs(args)
		root.SetIn(in)
		code := 0
		if err := root.ExecuteContext(ctx); err != nil {
			fmt.Fprintln(&k.log, err)
			code = exit.Failure
		}
		out.Close()
		k.ended <- code
	}()
	return k
}

// ask sends a request and returns its answer.
func (t *talk) ask(line string) string {
	t.t.Helper()
	if _, err := io.WriteString(t.in, line+"\n"); err != nil {
		t.t.Fatal(err)
	}
	answer, err := t.out.ReadString('\n')
	if err != nil {
		t.t.Fatalf("%s: no answer: %v", line, err)
	}
	if !json.Valid([]byte(answer)) {
		t.t.Errorf("stdout has %q, want protocol only (R-008)", answer)
	}
	return answer
}

// greet sends initialize, which must succeed.
func (t *talk) greet() {
	t.t.Helper()
	if a := t.ask(hello); !gjson.Get(a, "result.serverInfo").Exists() {
		t.t.Errorf("initialize: %s", a)
	}
}

const hello = `{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

func toolCall(name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, name)
}

// leave closes stdin and returns how the command ended: its exit code, what is left on stdout, and stderr.
func (t *talk) leave() (code int, stdout, stderr string) {
	t.t.Helper()
	t.in.Close()
	rest, err := io.ReadAll(t.out)
	if err != nil {
		t.t.Fatal(err)
	}
	return <-t.ended, string(rest), t.log.String()
}

// A client on stdin uses a remote server, one server of a file, or all of them as one. When it closes stdin
// everything ends, the remote session too.
func TestConnect(t *testing.T) {
	for _, test := range []struct {
		name   string
		target func(one, two string) []string
		tools  map[string]string // what is called, and the name by which the server knows it; empty when there is none
	}{
		{"a URL", func(one, _ string) []string { return []string{one + "?key=top-secret"} }, map[string]string{"echo": "echo"}},
		{"a server of the file", func(one, two string) []string {
			return []string{"two", "-c", file(t, "bridge.yaml", twoRemotes(one, two))}
		}, map[string]string{"echo": "echo"}},
		{"all of the file", func(one, two string) []string { return []string{"-c", file(t, "bridge.yaml", twoRemotes(one, two))} },
			map[string]string{"one__echo": "echo", "two__echo": "echo", "echo": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			one, two := newRemote(t, 0), newRemote(t, 0)
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			k := start(t.Context(), t, append([]string{"connect"}, test.target(one.URL+"/mcp", two.URL+"/mcp")...)...)
			if a := k.ask(hello); gjson.Get(a, "id").String() != "h" || gjson.Get(a, "result.protocolVersion").String() != "2025-06-18" {
				t.Fatalf("initialize = %s", a)
			}
			for name, want := range test.tools {
				a := k.ask(toolCall(name))
				if got := gjson.Get(a, "result.called").String(); gjson.Get(a, "id").Raw != "7" || got != want || (want == "") != gjson.Get(a, "error").Exists() {
					t.Errorf("%s = %s, want it to call %q", name, a, want)
				}
			}
			code, stdout, stderr := k.leave()
			if code != 0 || stdout != "" || strings.Contains(stderr, "top-secret") {
				t.Errorf("exit code %d, stdout %q, stderr %q, want 0, nothing more, no secret", code, stdout, stderr)
			}
			for line := range strings.Lines(stderr) {
				if !json.Valid([]byte(line)) {
					t.Errorf("stderr has %q, want lines of the log only", line)
				}
			}
			for _, r := range []*remoteServer{one, two} {
				got, _ := r.seen()
				if n, ended := len(got), slices.Contains(got, "DELETE"); n > 0 && !ended {
					t.Errorf("a server got %q, want its session ended", got)
				}
				r.CloseClientConnections()
			}
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		})
	}
}

func twoRemotes(one, two string) string {
	return fmt.Sprintf("servers:\n  one: { http: { url: %q } }\n  two: { http: { url: %q } }\n", one, two)
}

// Headers come from the environment, so that they are in no list of processes. When they are missing, stderr says
// how to give them.
func TestConnectHeaders(t *testing.T) {
	t.Setenv("BRIDGE_TEST_TOKEN", "top-secret")
	r := newRemote(t, 0)
	k := start(t.Context(), t, "connect", r.URL+"/mcp", "-H", "Authorization: Bearer ${BRIDGE_TEST_TOKEN}", "--transport", "streamable", "--log-level", "debug")
	k.ask(hello)
	code, _, stderr := k.leave()
	if _, auth := r.seen(); code != 0 || len(auth) == 0 || slices.ContainsFunc(auth, func(a string) bool { return a != "Bearer top-secret" }) {
		t.Errorf("exit code %d, the server got %q", code, auth)
	}
	if strings.Contains(stderr, "top-secret") {
		t.Errorf("stderr = %q: shows a secret", stderr)
	}
}

func TestConnectDenied(t *testing.T) {
	r := newRemote(t, http.StatusUnauthorized)
	k := start(t.Context(), t, "connect", r.URL+"/mcp?key=top-secret")
	if a := k.ask(hello); gjson.Get(a, "id").String() != "h" || !strings.Contains(gjson.Get(a, "error.message").String(), "HTTP 401") {
		t.Errorf("initialize = %s, want an error about the status 401", a)
	}
	_, _, stderr := k.leave()
	if !strings.Contains(stderr, "(HTTP 401): pass --header 'Authorization: Bearer ${TOKEN}', or sign in: mcp-bridge login URL\"") || strings.Contains(stderr, "top-secret") {
		t.Errorf("stderr = %q, want what to do, and no secret", stderr)
	}
	if got, _ := r.seen(); len(got) != 1 {
		t.Errorf("the server got %q, want one request: 401 says nothing about the transport (C2.7)", got)
	}
}

// From the file, the header belongs into the file.
func TestConnectDeniedByFile(t *testing.T) {
	r := newRemote(t, http.StatusUnauthorized)
	k := start(t.Context(), t, "connect", "-c", file(t, "bridge.yaml", fmt.Sprintf("servers: { one: { http: { url: %q } } }", r.URL)))
	k.ask(hello)
	if _, _, stderr := k.leave(); strings.Contains(stderr, "--header") || !strings.Contains(stderr, "configure headers") {
		t.Errorf("stderr = %q, want a word about headers in the configuration", stderr)
	}
}

// A program that ends at its start says why to the client, as a person would see it there, and to the log.
func TestConnectCrash(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	t.Setenv("FOO_KEY", "top-secret")
	k := start(t.Context(), t, "connect", "--", "sh", "-c", "echo Error: set FOO_KEY first >&2; exit 3")
	const want = `server sh: handshake: its process has ended (exit status 3)\nits last lines on stderr:\n  Error: set FOO_KEY first\n`
	const hint = `\nFOO_KEY is set here and was not passed: --env FOO_KEY, or env_pass: [FOO_KEY] in the file"`
	if a := k.ask(hello); !strings.Contains(a, `"message":"`+want) || !strings.Contains(a, hint+`,"data":{"bridge":"upstream_unavailable"}`) {
		t.Errorf("initialize = %s, want %s and %s", a, want, hint)
	}
	if _, _, stderr := k.leave(); !strings.Contains(stderr, want) || !strings.Contains(stderr, hint) || strings.Contains(stderr, "top-secret") {
		t.Errorf("stderr = %s, want %s and %s", stderr, want, hint)
	}
}

// The flags about times count for each server, also for those of a file.
func TestConnectTimes(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	const ready = `read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}'; cat >/dev/null`
	silent := file(t, "bridge.yaml", "servers: { silent: { stdio: { command: sh, args: [-c, cat >/dev/null] }, era: legacy } }\n")
	for _, test := range []struct {
		args                []string
		initialize, calling string // parts of the answers; empty for one that succeeds
	}{
		{[]string{"--era", "legacy", "--handshake-timeout", "50ms", "--", "sh", "-c", "cat >/dev/null"}, "did not finish its handshake within 50ms", ""},
		{[]string{"silent", "-c", silent, "--handshake-timeout", "50ms"}, "did not finish its handshake within 50ms", ""},
		{[]string{"--era", "legacy", "--timeout", "50ms", "--", "sh", "-c", ready}, "", "had no answer within 50ms"},
	} {
		k := start(t.Context(), t, append([]string{"connect"}, test.args...)...)
		a := k.ask(hello)
		if !strings.Contains(a, test.initialize) || (test.initialize != "") != gjson.Get(a, "error").Exists() {
			t.Errorf("%q: initialize = %s, want %q", test.args, a, test.initialize)
		}
		if test.initialize == "" {
			if a := k.ask(toolCall("x")); !strings.Contains(a, test.calling) {
				t.Errorf("%q: a call = %s, want %q", test.args, a, test.calling)
			}
		}
		k.leave()
	}
}

// A signal ends it as well as its client does.
func TestConnectInterrupted(t *testing.T) {
	r := newRemote(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	k := start(ctx, t, "connect", r.URL+"/mcp")
	k.ask(hello)
	stop()
	rest, err := io.ReadAll(k.out)
	if code := <-k.ended; code != 0 || len(rest) > 0 || err != nil {
		t.Errorf("exit code %d, stdout %q (%v), stderr %s", code, rest, err, k.log.String())
	}
	if got, _ := r.seen(); !slices.Contains(got, "DELETE") {
		t.Errorf("the server got %q, want its session ended", got)
	}
}

// Somebody who starts it by hand is told that it waits; a client's log is spared that.
func TestConnectOnTerminal(t *testing.T) {
	for _, isTerminal := range []bool{true, false} {
		var out, log bytes.Buffer
		cmd := newConnectOn(&flags.Log{Level: "info", Format: "json"}, &out, &log, func(f any) bool { return isTerminal && f == any(&log) })
		cmd.SetArgs([]string{"http://127.0.0.1:1/mcp"})
		cmd.SetIn(strings.NewReader(""))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "waiting for a client on stdin"); got != isTerminal || out.Len() > 0 {
			t.Errorf("terminal %t: stderr %q, stdout %q", isTerminal, log.String(), out.String())
		}
	}
}

// A fault of the file is the error of initialize, since clients do not show why a program has ended. When the client
// leaves, the exit code tells the fault.
func TestConnectFaultyFile(t *testing.T) {
	for _, test := range []struct{ name, text, fault string }{
		{"no YAML", "servers: [\n", "bridge.yaml:2: not valid YAML"},
		{"an unknown key", "servers: { one: { http: { uri: x } } }", `bridge.yaml:1: server "one": http: unknown key "uri": did you mean "url"?`},
		{"a variable of its only server", "servers:\n  one: { http: { url: https://example.com, headers: { A: '${NOT_SET_ANYWHERE} top-secret' } } }", `bridge.yaml:2: server "one": http: headers: A: the variable NOT_SET_ANYWHERE is not set: set it in the environment of mcp-bridge`},
		{"a document", "servers:\n  api: { rest: { openapi: none.yaml } }\n", `bridge.yaml:2: server "api": rest: openapi is "none.yaml": does not exist`},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := start(t.Context(), t, "connect", "-c", file(t, "bridge.yaml", test.text))
			for range 2 {
				a := k.ask(hello)
				if gjson.Get(a, "id").String() != "h" || !strings.Contains(gjson.Get(a, "error.message").String(), test.fault) || strings.Contains(a, "top-secret") {
					t.Errorf("initialize = %s, want an error with %s", a, test.fault)
				}
			}
			modern := k.ask(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
			if !strings.Contains(gjson.Get(modern, "error.message").String(), test.fault) {
				t.Errorf("server/discover = %s, want an error with %s", modern, test.fault)
			}
			code, stdout, stderr := k.leave()
			if code == 0 || stdout != "" || !strings.Contains(stderr, "mcp-bridge: ") || !strings.Contains(stderr, test.fault) || strings.Contains(stderr, "top-secret") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

// The client gets the beginning of a long list of faults, and stderr all of it. A signal ends the command though the
// client is there, with the exit code of the fault.
func TestConnectManyFaults(t *testing.T) {
	many := "servers:\n"
	for i := range 100 {
		many += fmt.Sprintf("  one-%d: { http: { uri: x } }\n", i)
	}
	ctx, stop := context.WithCancel(t.Context())
	k := start(ctx, t, "connect", "-c", file(t, "bridge.yaml", many))
	message := gjson.Get(k.ask(hello), "error.message").String()
	if !strings.Contains(message, "bridge.yaml:2: ") || !strings.HasSuffix(message, "bytes in all)") || len(message) > maxFault+100 {
		t.Errorf("initialize = %q, want its beginning", message)
	}
	stop()
	if code := <-k.ended; code == 0 || !strings.Contains(k.log.String(), "bridge.yaml:101: ") {
		t.Errorf("exit code %d, stderr %q, want all faults", code, k.log.String())
	}
}

// A person at a terminal gets the fault at once.
func TestConnectFaultOnTerminal(t *testing.T) {
	in, toIn := io.Pipe() // without an end
	defer toIn.Close()
	var out, log bytes.Buffer
	cmd := newConnectOn(&flags.Log{Level: "info", Format: "json"}, &out, &log, func(f any) bool { return f == any(in) })
	cmd.SetArgs([]string{"-c", filepath.Join(t.TempDir(), "none.yaml")})
	cmd.SetIn(in)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "none.yaml") || out.Len()+log.Len() > 0 {
		t.Errorf("error %v, stdout %q, stderr %q; want the error alone", err, out.String(), log.String())
	}
}

// serveURL runs a command line that serves one server until ctx ends, and returns the address of that.
func serveURL(ctx context.Context, t *testing.T, args ...string) (k *talk, name, url string) {
	t.Helper()
	k = start(ctx, t, args...)
	said := ""
	for !strings.Contains(said, "\n}\n") { // the end of what is to be pasted
		line, err := k.out.ReadString('\n')
		if said += line; err != nil {
			t.Fatalf("stdout = %q, %v", said, err)
		}
	}
	name, rest, _ := strings.Cut(said, ": ")
	url, _, _ = strings.Cut(rest, " ")
	return k, name, url
}

// run URL serves a remote server under addresses of its own. When that refuses us, stderr says what to do.
func TestRunURL(t *testing.T) {
	t.Setenv("BRIDGE_TEST_TOKEN", "top-secret")
	for _, test := range []struct {
		name         string
		status       int
		answer, hint string // parts of the answer and of stderr
	}{
		{"works", 0, `"serverInfo":{"name":"remote"`, ""},
		{"refuses", http.StatusForbidden, "HTTP 403", "the caller in whose credentials are in the header Authorization (HTTP 403): check them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRemote(t, test.status)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			k, name, url := serveURL(ctx, t, "run", "--listen", "127.0.0.1:0", r.URL+"/mcp", "-H", "Authorization: Bearer ${BRIDGE_TEST_TOKEN}")
			if !strings.HasPrefix(name, "local-") || !strings.HasSuffix(url, "/mcp") {
				t.Fatalf("%s is served at %s", name, url)
			}
			resp, err := http.Post(url, "application/json", strings.NewReader(hello))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !strings.Contains(string(body), `"id":"h"`) || !strings.Contains(string(body), test.answer) {
				t.Errorf("initialize = %d %s, want %s", resp.StatusCode, body, test.answer)
			}
			stop()
			if _, err := io.Copy(io.Discard, k.out); err != nil {
				t.Error(err)
			}
			if code := <-k.ended; code != 0 || !strings.Contains(k.log.String(), test.hint) {
				t.Errorf("exit code %d, stderr %s, want 0 and %s", code, k.log.String(), test.hint)
			}
			if _, auth := r.seen(); len(auth) == 0 || auth[0] != "Bearer top-secret" || strings.Contains(k.log.String(), "top-secret") {
				t.Errorf("the server got %q; stderr %s", auth, k.log.String())
			}
		})
	}
}

// Flags behind a program belong to it. A warning names those of mcp-bridge, unless -- stands
// before the program.
func TestRunMisplaced(t *testing.T) {
	const said = "--port --env go to the server: flags of mcp-bridge belong before the command"
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"cat", "--port", "9000", "--flag", "--env=KEY=top-secret", "--port=1"}, true},
		{[]string{"--", "cat", "--port", "9000", "--env=KEY=top-secret"}, false},
		{[]string{"cat", "--flag", "-l"}, false},
	} {
		var out, log bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if code := run(ctx, append([]string{"run", "--listen", "127.0.0.1:0"}, test.args...), &out, &log); code != 0 {
			t.Errorf("%q: exit code %d", test.args, code)
		}
		if strings.Contains(log.String(), said) != test.want || !test.want && strings.Contains(log.String(), "belong") || strings.Contains(log.String(), "top-secret") {
			t.Errorf("%q: stderr %s, want the warning: %t", test.args, log.String(), test.want)
		}
	}
}

// A secret that goes over the network in the clear is a warning, which does not show it.
func TestRunURLWarns(t *testing.T) {
	var out, log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if code := run(ctx, []string{"run", "--listen", "127.0.0.1:0", "-H", "X-Api-Key: top-secret", "http://192.0.2.1/mcp?key=top-secret"}, &out, &log); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(log.String(), "url is not encrypted") || strings.Contains(log.String()+out.String(), "top-secret") {
		t.Errorf("stdout %q, stderr %q", out.String(), log.String())
	}
}

// With --offer legacy, a client that knows both eras finds a server of the older one.
func TestOffer(t *testing.T) {
	r := newRemote(t, 0)
	const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for _, args := range [][]string{{"connect", r.URL + "/mcp"}, {"connect", "--offer", "legacy", r.URL + "/mcp"}} {
		k := start(t.Context(), t, args...)
		if a := k.ask(discover); gjson.Get(a, "error").Exists() != (len(args) > 2) {
			t.Errorf("%q: server/discover = %s", args, a)
		}
		if a := k.ask(hello); len(args) > 2 && gjson.Get(a, "result.serverInfo.name").Str != "remote" {
			t.Errorf("%q: initialize = %s", args, a)
		}
		k.leave()
	}
	for _, offer := range []string{"all", "legacy"} {
		ctx, stop := context.WithCancel(t.Context())
		k, _, url := serveURL(ctx, t, "run", "--listen", "127.0.0.1:0", "--offer", offer, r.URL+"/mcp")
		q, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(discover))
		q.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"}, "Accept": {"application/json, text/event-stream"}}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if strings.Contains(string(body), "supportedVersions") != (offer == "all") {
			t.Errorf("--offer %s: server/discover = %d %s", offer, res.StatusCode, body)
		}
		stop()
		_, _ = io.Copy(io.Discard, k.out)
		<-k.ended
	}
}

// connect is no instance of a cluster, and needs no Redis (S-003).
func TestConnectBesideCluster(t *testing.T) {
	r := newRemote(t, 0)
	k := start(t.Context(), t, "connect", "one", "-c", file(t, "bridge.yaml", "cluster: { redis: redis://127.0.0.1:1, secret: "+strings.Repeat("secret", 9)+", listen: 127.0.0.1:0, advertise: 127.0.0.1 }\n"+
		fmt.Sprintf("servers: { one: { http: { url: %q } } }", r.URL)))
	if a := k.ask(hello); gjson.Get(a, "result.serverInfo.name").Str != "remote" {
		t.Errorf("initialize = %s", a)
	}
	k.leave()
}
