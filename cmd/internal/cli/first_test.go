package cli

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// run uses its server once when it serves, and says how many tools that has, or why it does
// not work, before a client comes. It starts the server once, and nothing of that is left.
func TestRunFirst(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	const pages = `while read -r line; do
  id=${line#*\"id\":}; id=${id%%[,\}]*}
  case $line in
  *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
  *'"cursor":"2"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"c","inputSchema":{"type":"object"}}]}}' ;;
  *'"tools/list"'*) echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
    echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}],"nextCursor":"2"}}' ;;
  esac
done`
	none := strings.Replace(pages, `"tools":{}`, "", 1)
	refuses := strings.Replace(pages, `echo '{"jsonrpc":"2.0","method"`, `echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32603,"message":"no database"}}'; continue; echo '{"jsonrpc":"2.0","method"`, 1)
	t.Setenv("FIRST_KEY", "0123456789abcdef")
	sh := func(script string) []string {
		return []string{"--name", "s", "--era", "legacy", "--", "sh", "-c", script}
	}
	for _, test := range []struct {
		name string
		args []string
		want string // in the log
	}{
		{"its tools", sh(pages), `"msg":"s: 3 tools"`},
		{"with a key", append([]string{"--token-env", "FIRST_KEY"}, sh(pages)...), `"msg":"s: 3 tools"`},
		{"shared", append([]string{"--share", "all"}, sh(pages)...), `"msg":"s: 3 tools"`},
		{"no tools", sh(none), `"msg":"s: 0 tools"`},
		{"refuses", sh(refuses), `"msg":"s: cannot list its tools","err":"no database"`},
		{"crashes", sh("echo Error: missing API key >&2; exit 3"), `"msg":"server failed","server":"s","err":"server s: handshake: its process has ended (exit status 3)\nits last lines on stderr:\n  Error: missing API key"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			log := &trigger{text: test.want, f: stop}
			if code := run(ctx, append([]string{"run", "--listen", "127.0.0.1:0"}, test.args...), io.Discard, log); code != 0 {
				t.Errorf("exit code %d\n%s", code, log.all.String())
			}
			if n := strings.Count(log.all.String(), `"msg":"child started"`); n != 1 {
				t.Errorf("the server was started %d times, want once\n%s", n, log.all.String())
			}
		})
	}
}

// A remote server that wants a sign-in says so at once, and so does one that refuses.
func TestRunFirstRemote(t *testing.T) {
	p := signed(t, false)
	for _, test := range []struct{ url, want string }{
		{p.URL, "sign in: mcp-bridge login URL"},
		{newRemote(t, http.StatusForbidden).URL + "/mcp", "(HTTP 403): pass --header"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		log := &trigger{text: test.want, f: stop}
		if code := run(ctx, []string{"run", "--listen", "127.0.0.1:0", test.url}, io.Discard, log); code != 0 {
			t.Errorf("%s: exit code %d\n%s", test.url, code, log.all.String())
		}
		stop()
	}
	r := newRemote(t, 0)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r.ended = stop // the session ends before run does
	log := &trigger{text: `"msg":"r: 1 tool"`, f: func() {}}
	if code := run(ctx, []string{"run", "--listen", "127.0.0.1:0", "--name", "r", r.URL + "/mcp"}, io.Discard, log); code != 0 || !strings.Contains(log.all.String(), log.text) {
		t.Errorf("exit code %d\n%s", code, log.all.String())
	}
	if got, _ := r.seen(); !slices.Contains(got, "DELETE") || ctx.Err() != context.Canceled {
		t.Errorf("the server got %q while run served (%v), want its session ended", got, ctx.Err())
	}
}
