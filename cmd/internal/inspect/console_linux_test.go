package inspect_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal/terminaltest"
)

// On a real terminal tables have its width and bold headings, and nothing of a
// server's acts on it; elsewhere output stays as it is.
func TestConsoleOnTerminal(t *testing.T) {
	f := &fake{t: t, answers: results(map[string]string{"tools/list": `{"tools":[{"name":"name\u001b","description":"` + strings.Repeat("long ", 20) + `"}]}`})}
	r := newRig(t, f.dial)
	terminal := terminaltest.New(t, 70)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	shown := func(stdout io.Writer) string {
		t.Helper()
		if code, err := r.execute(inspect.Options{Stdout: stdout, Stderr: terminal.File}, "tools", "--", "cat"); code != 0 {
			t.Fatalf("exit code %d, error %v", code, err)
		}
		if stdout != io.Writer(terminal.File) {
			return ""
		}
		return terminal.Lines(2)
	}
	const wide = "  " + "long long long long long long long long long long long long lo…"
	if got, want := shown(terminal.File), "\x1b[1mNAME\x1b[0m   \x1b[1mDESCRIPTION\x1b[0m\nname␛"+wide+"\n"; got != want {
		t.Errorf("on a terminal:\n%q\nwant\n%q", got, want)
	}
	t.Setenv("NO_COLOR", "1")
	if got := shown(terminal.File); !strings.HasPrefix(got, "NAME   DESCRIPTION\n") {
		t.Errorf("NO_COLOR is not heeded: %q", got)
	}
	t.Setenv("NO_COLOR", "")
	var out bytes.Buffer
	shown(&out)
	if got := out.String(); !strings.HasPrefix(got, "NAME ") || !strings.Contains(got, "\x1b  "+strings.Repeat("long ", 19)+"long\n") {
		t.Errorf("with stdout elsewhere: %q", got)
	}
}

// Whoever is at a terminal is asked; when stdin is none, nobody is.
func TestAskedOnTerminal(t *testing.T) {
	for _, test := range []struct {
		name  string
		stdin func(*terminaltest.Terminal) io.Reader
		want  string
	}{
		{"a terminal", func(t *terminaltest.Terminal) io.Reader {
			t.Type("y\n\x04")
			return t.File
		}, `{"action":"accept","content":{}}`},
		{"no terminal", func(*terminaltest.Terminal) io.Reader { return strings.NewReader("y\n") }, `{"action":"cancel"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, asking(t, `{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}`).dial)
			terminal := terminaltest.New(t, 70)
			r.stdin = test.stdin(terminal)
			var out bytes.Buffer
			code, err := r.execute(inspect.Options{Stdout: &out, Stderr: terminal.File}, "call", "t", "--", "cat")
			if code != 0 || strings.TrimSpace(out.String()) != test.want {
				t.Errorf("exit code %d, error %v, answer %s, want %s", code, err, &out, test.want)
			}
		})
	}
}
