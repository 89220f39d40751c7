//go:build unix

package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// logged is a bridge whose stderr is a pipe, and a client of it.
type logged struct {
	cmd  *exec.Cmd
	log  *os.File // stderr; nobody reads unless the test does
	call func(tool string, n int) string
}

// startLogged starts a command that serves the fake server.
func startLogged(t *testing.T, command string) *logged {
	t.Helper()
	var args []string
	switch command {
	case "run":
		args = []string{"run", "--listen", "127.0.0.1:0", "--", fakeProgram(t)}
	case "serve":
		args = []string{"serve", configure(t, map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}})}
	case "connect":
		args = []string{"connect", "--", fakeProgram(t)}
	}
	log, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cmd := exec.Command(bridgeProgram(t), args...)
	cmd.Stderr, cmd.SysProcAttr = stderr, dieWithParent()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	l := &logged{cmd: cmd, log: log}
	lines := bufio.NewReader(out)
	if command == "connect" {
		ask := func(request string) string {
			if _, err := io.WriteString(in, request+"\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, legacy))
		l.call = func(tool string, n int) string {
			return ask(string(rawCall(tool, map[string]any{"message": "hello", "bytes": n})))
		}
		return l
	}
	base := ""
	for base == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if m := address.FindStringSubmatch(line); m != nil {
			base = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	r := mustOpenRaw(t, base)
	l.call = func(tool string, n int) string {
		return r.must(t, tool, map[string]any{"message": "hello", "bytes": n})
	}
	return l
}

// works makes calls.
func (l *logged) works(t *testing.T) {
	t.Helper()
	for range 3 {
		if got := l.call("echo", 0); !strings.Contains(got, "hello") {
			t.Errorf("echo: %s", got)
		}
	}
}

// stop ends the bridge as an operator does.
func (l *logged) stop(t *testing.T) {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// A reader of stderr that does not read keeps no call waiting, nor the end of the bridge. When it reads again, it
// learns how many lines it missed.
func TestLogUnread(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "serve", "connect"} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read again: %t", command, again), func(t *testing.T) {
				t.Parallel()
				l := startLogged(t, command)
				l.call("complain", 10_000)
				l.works(t)
				log := bufio.NewReader(l.log)
				for said := !again; !said; {
					line, err := log.ReadString('\n')
					if err != nil {
						t.Fatalf("the log ends without the number of lines: %v", err)
					}
					said = strings.Contains(line, "lines of this log were left out")
				}
				l.stop(t)
			})
		}
	}
}

// A reader of stderr that is gone takes only the log with it.
func TestLogClosed(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "serve", "connect"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			l := startLogged(t, command)
			l.log.Close()
			l.call("complain", 10)
			l.works(t)
			l.stop(t)
		})
	}
}

// A short command ends quietly when nobody reads what it prints.
func TestStdoutClosed(t *testing.T) {
	t.Parallel()
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	var log strings.Builder
	cmd := exec.Command(bridgeProgram(t), "tools", "--", fakeProgram(t))
	cmd.Stdout, cmd.Stderr = stdout, &log
	err = cmd.Run()
	stdout.Close()
	if e, ok := err.(*exec.ExitError); !ok || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || log.Len() > 0 {
		t.Errorf("%v, stderr %q; want an end by SIGPIPE without a word", err, log.String())
	}
}
