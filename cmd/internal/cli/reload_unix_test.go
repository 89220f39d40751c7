//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	for !so() {
		time.Sleep(10 * time.Millisecond)
	}
}

// A file is changed while it is served: what changes is printed, counts, and is told to
// operators and to the service manager. A fault changes nothing.
func TestReload(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("the tests were started to ignore SIGHUP, as by nohup, and so would be the bridge")
	}
	config := file(t, "bridge.yaml", "")
	write := func(text string) {
		write(t, config, text)
	}
	const key = "0123456789abcdef-ops"
	t.Setenv("OPS_KEY", key)
	t.Setenv("DEV_KEY", "0123456789abcdef-dev")
	const text = "access:\n  - { name: ops, token: \"${OPS_KEY}\" }\n  - { name: dev, token: \"${DEV_KEY}\" }\nadmin: [ops]\nreload: off\nservers:\n  one: { stdio: { command: cat } }\n"
	write(text)
	manager := listenManager(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k := start(ctx, t, "serve", config, "--listen", "127.0.0.1:0", "--json")
	listens := k.listens()
	at := "http://" + listens
	ready := func() string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", at+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", key)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, _ := io.ReadAll(a.Body)
		return string(b)
	}
	if got := manager(); !strings.Contains(got, "READY=1\nSTATUS=serving 1 server on "+listens) {
		t.Errorf("the service manager was told %q", got)
	}

	write(text + "  two: { stdio: { command: cat } }\n")
	says(t, 0, "servers.two none → added (live)\nservers 1 → 2 (next)\n", "", "reload", at, "--check", "--token-env", "OPS_KEY")
	says(t, 0, "at "+at+" this would change:\nservers.two none → added (live)\n", "", "check", config, "--against", at, "--token-env", "OPS_KEY")
	says(t, 1, "other.yaml is good: 1 server", "which differs from", "check", file(t, "other.yaml", text), "--against", at, "--token-env", "OPS_KEY")
	if strings.Contains(ready(), `"two"`) {
		t.Error("to ask what would change has changed it")
	}
	says(t, 1, "", "--token-env", "reload", at)
	says(t, 1, "", "list the caller's name in admin", "reload", at, "--token-env", "DEV_KEY")
	says(t, exit.Usage, "", "the variable is not set", "reload", at, "--token-env", "NO_KEY")
	says(t, exit.Server, "", "nothing listens at 127.0.0.1:1", "reload", "http://127.0.0.1:1")
	says(t, 0, "servers.two none → added (live)\n", "", "reload", at, "--token-env", "OPS_KEY")
	if !strings.Contains(ready(), `"two"`) {
		t.Errorf("what was added is not there: %s", ready())
	}
	if a, b := manager(), manager(); !strings.HasPrefix(a, "RELOADING=1") || !strings.HasPrefix(b, "READY=1\nSTATUS=serving 2 servers on "+listens) {
		t.Errorf("the service manager was told %q, then %q", a, b)
	}
	says(t, 0, "nothing has changed\n", "", "reload", at, "--token-env", "OPS_KEY")
	manager()
	manager()

	write(text + "  two: { nonsense: 1 }\n")
	says(t, exit.Usage, "", "bridge.yaml:8: server \"two\": unknown key \"nonsense\"", "reload", at, "--token-env", "OPS_KEY")
	if got := ready(); !strings.Contains(got, `"two"`) || !strings.Contains(got, `"last_error": "the file has`) {
		t.Errorf("after a fault: %s", got)
	}
	write(text + "  two: " + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000) + "\n")
	says(t, exit.Usage, "", "bridge.yaml:8: lists and mappings are nested deeper than 100 levels", "reload", at, "--token-env", "OPS_KEY")
	if got := ready(); !strings.Contains(got, `"two"`) || !strings.Contains(got, `"last_error": "the file has`) {
		t.Errorf("after a file that is nested too deep: %s", got)
	}

	write(text + "heartbeat: 5s\n")
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "what SIGHUP has read", func() bool { return strings.Contains(ready(), `"pending_restart"`) })
	if got := ready(); strings.Contains(got, `"two"`) || strings.Contains(got, "last_error") {
		t.Errorf("after SIGHUP: %s", got)
	}

	write(text + "log_level: error\n")
	says(t, 0, "log_level info → error (live)\n", "", "reload", at, "--token-env", "OPS_KEY")
	write(text)
	says(t, 0, "log_level error → info (live)\n", "", "reload", at, "--token-env", "OPS_KEY")
	stop()
	if code := <-k.ended; code != 0 {
		t.Errorf("exit code %d: %s", code, &k.log)
	}
	contains(t, k.log.String(), "fault of the configuration", "nothing has changed", "configuration reloaded", "need a restart", `"msg":"console","principal":"dev","action":"reload","outcome":"denied"`)
	// The log is whole now. The first reload, the one by SIGHUP, and the one with log_level: info are logged.
	if n := strings.Count(k.log.String(), "configuration reloaded"); n != 3 {
		t.Errorf("%d of 4 reloads are logged, want all but the one with log_level: error: %s", n, &k.log)
	}
	if strings.Contains(k.log.String(), key) {
		t.Error("the log has a key")
	}
	var told []string
	for !slices.Contains(told, "STOPPING=1") {
		told = append(told, strings.Split(manager(), "\n")...)
	}
}

// Without a URL it is asked of the bridge that serves the file on this machine, whatever
// names its certificate has.
func TestReloadOwn(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	const server = "servers: { one: { http: { url: http://127.0.0.1:1/mcp } } }\n"
	secure := "tls: { cert_file: " + dir + "/tls.crt, key_file: " + dir + "/tls.key }\n"
	t.Setenv("OPS_KEY", "a-key-of-the-operators")
	for _, tc := range []struct {
		name, text string
		args       []string
		serves     bool
		code       int
		stderr     string
	}{
		{"HTTP", "listen: 127.0.0.1:%d\n", nil, true, 0, ""},
		{"HTTPS, by another name than the certificate's", "listen: localhost:%d\n" + secure, nil, true, 0, ""},
		{"HTTPS everywhere, with a key", "listen: :%d\nbase_path: /tools\nadmin: [ops]\naccess: [{ name: ops, token: \"${OPS_KEY}\" }]\n" + secure, []string{"--token-env", "OPS_KEY"}, true, 0, ""},
		{"a certificate that somebody else has to sign", "listen: localhost:%d\n" + secure, []string{"--ca-file", dir + "/tls.crt"}, true, exit.Server, "certificate"},
		{"any port", "listen: 127.0.0.1:0\n", nil, false, exit.Usage, "name its URL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.text
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, porttest.Reserve(t))
			}
			c := file(t, "bridge.yaml", text+server)
			if tc.serves {
				served(t, c)
			}
			code, stdout, stderr := in(t, append([]string{"reload", "-c", c}, tc.args...)...)
			if code != tc.code || code == 0 && stdout != "nothing has changed\n" || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("code %d, stdout %q, stderr %q, want %d and %q", code, stdout, stderr, tc.code, tc.stderr)
			}
		})
	}
}

// A bridge without rules takes it from programs of its own machine; run has no file.
func TestReloadAlone(t *testing.T) {
	for _, args := range [][]string{{"run", "--port", "0", "--json", "--", "cat"}, {"serve", file(t, "bridge.yaml", "listen: 127.0.0.1:0\nservers:\n  one: { stdio: { command: cat } }\n"), "--json"}} {
		code, o, e := in(t, "reload", "http://"+serving(t, args...), "--json")
		if args[0] == "run" && (code != 1 || !strings.Contains(e, "mcp-bridge serve")) {
			t.Errorf("run: exit code %d, %q, %q", code, o, e)
		}
		if args[0] == "serve" && (code != 0 || !strings.Contains(o, `"changes": []`)) {
			t.Errorf("serve: exit code %d, %q, %q", code, o, e)
		}
	}
}

// listenManager is a service manager. The result returns what it is told next.
func listenManager(t *testing.T) func() string {
	t.Helper()
	folder, err := os.MkdirTemp("", "s") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		b := make([]byte, 4096)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}
