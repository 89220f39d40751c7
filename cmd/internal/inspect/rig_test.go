package inspect_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/config"
)

// dial makes the link to a server.
type dial = func(*config.Config, string, *slog.Logger) (*inspect.Link, error)

// rig runs the commands that speak to a server against a server in memory.
type rig struct {
	t        *testing.T
	ctx      context.Context
	dial     dial
	stdin    io.Reader
	terminal bool // all three streams are one, 60 columns wide
}

// newRig makes a rig without terminals and checks that nothing is left running.
func newRig(t *testing.T, dial dial) *rig {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	return &rig{t: t, ctx: t.Context(), dial: dial, stdin: strings.NewReader("")}
}

// run runs a command line; TARGET is "-- cat".
func (r *rig) run(args ...string) (code int, stdout, stderr string) {
	r.t.Helper()
	return r.line(append(args, "--", "cat")...)
}

// line runs a whole command line.
func (r *rig) line(args ...string) (code int, stdout, stderr string) {
	r.t.Helper()
	var out, log bytes.Buffer
	o := inspect.Options{Stdout: &out, Stderr: &log}
	if r.terminal {
		r.t.Setenv("NO_COLOR", "1") // what is bold is looked at on a real one
		o.Terminal = func(any) (bool, int) { return true, 60 }
	}
	code, err := r.execute(o, args...)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(&log, "mcp-bridge:", err)
	}
	return code, out.String(), log.String()
}

// execute runs a whole command line with these options.
func (r *rig) execute(o inspect.Options, args ...string) (code int, err error) {
	r.t.Helper()
	root := &cobra.Command{Use: "mcp-bridge", SilenceErrors: true, SilenceUsage: true}
	o.Log, o.Dial = &flags.Log{}, r.dial
	o.Log.Add(root)
	root.AddCommand(inspect.Commands(o)...)
	root.SetIn(r.stdin)
	root.SetArgs(args)
	err = root.ExecuteContext(r.ctx)
	if e, ok := errors.AsType[exit.Error](err); ok {
		code = e.Code
	} else if err != nil {
		r.t.Errorf("%q: error %v of type %T, want one with an exit code", args, err, err)
	}
	return code, err
}

// want runs a command line and compares everything.
func (r *rig) want(code int, stdout, stderr string, args ...string) {
	r.t.Helper()
	gotCode, gotOut, gotErr := r.run(args...)
	if gotCode != code {
		r.t.Errorf("%q: exit code %d, want %d", args, gotCode, code)
	}
	if gotOut != stdout {
		r.t.Errorf("%q: stdout\n%s\nwant\n%s", args, gotOut, stdout)
	}
	if gotErr != stderr {
		r.t.Errorf("%q: stderr\n%s\nwant\n%s", args, gotErr, stderr)
	}
}

// says runs a whole command line and compares parts of what it says; "" is nothing, "*" anything.
func (r *rig) says(code int, stdout, stderr string, args ...string) {
	r.t.Helper()
	has := func(text, part string) bool {
		return part == "*" || strings.Contains(text, part) && (part == "") == (text == "")
	}
	if got, out, log := r.line(args...); got != code || !has(out, stdout) || !has(log, stderr) {
		r.t.Errorf("%q: exit code %d, stdout\n%s\nstderr\n%s\nwant %d, %q and %q", args, got, out, log, code, stdout, stderr)
	}
}

// inMemory links to a server of the SDK's.
func inMemory(t *testing.T, s *mcp.Server) dial {
	return func(*config.Config, string, *slog.Logger) (*inspect.Link, error) {
		ours, its := mcp.NewInMemoryTransports()
		session, err := s.Connect(t.Context(), its, nil)
		if err != nil {
			return nil, err
		}
		return &inspect.Link{Transport: ours, Reason: func() string { return "" }, Close: func(bool) { _ = session.Wait() }}, nil
	}
}

// fake is a server whose every byte a test decides.
type fake struct {
	t *testing.T
	// answers has for each method what follows the id in the answer, such as
	// `"result":{}`; nothing means that there is no answer.
	answers map[string]func(f *fake, params json.RawMessage) string
	why     string // of the link

	conn net.Conn
	mu   sync.Mutex  // guards got
	got  []string    // all that came, as lines
	came chan string // closed when the client has gone
}

func (f *fake) dial(*config.Config, string, *slog.Logger) (*inspect.Link, error) {
	ours, its := net.Pipe()
	f.conn, f.came = its, make(chan string, 100)
	var wg sync.WaitGroup
	wg.Go(f.serve)
	return &inspect.Link{
		Transport: &mcp.IOTransport{Reader: ours, Writer: ours},
		Reason:    func() string { return f.why },
		Close: func(bool) {
			ours.Close()
			its.Close()
			wg.Wait()
		},
	}, nil
}

// always answers a method the same each time.
func always(text string) func(*fake, json.RawMessage) string {
	return func(*fake, json.RawMessage) string { return text }
}

func (f *fake) serve() {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(f.came)
	in := bufio.NewScanner(f.conn)
	for in.Scan() {
		line := in.Text()
		f.mu.Lock()
		f.got = append(f.got, line)
		f.mu.Unlock()
		f.came <- line
		m := gjson.Parse(line)
		method := m.Get("method").String()
		answer, ok := f.answers[method]
		switch {
		case ok:
		case method == "initialize":
			answer = always(`"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		case method == "logging/setLevel":
			answer = always(`"result":{}`)
		case m.Get("id").Exists() && method != "":
			answer = always(`"error":{"code":-32601,"message":"no such method"}`)
		}
		if answer == nil || !m.Get("id").Exists() {
			continue
		}
		wg.Go(func() { // an answer may wait for what is read next
			if text := answer(f, json.RawMessage(m.Get("params").Raw)); text != "" {
				f.send(`{"jsonrpc":"2.0","id":` + m.Get("id").Raw + `,` + text + `}`)
			}
		})
	}
}

func (f *fake) send(line string) {
	_, _ = io.WriteString(f.conn, line+"\n") // a client may have gone
}

// await returns the first line that has come with that text in it, or nothing
// when the client has gone before. Each line is looked at once.
func (f *fake) await(text string) string {
	for line := range f.came {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// all returns what has come so far.
func (f *fake) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.got, "\n")
}

// file writes a file.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
