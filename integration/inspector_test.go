package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/programtest"
)

// TestInspector has the command line of MCP Inspector sign a user in, at an identity provider
// itself and at the bridge that stands in for one. What it has kept serves its next run, which
// opens no browser. (For a tool with a scope of its own it does not ask its user: like the
// TypeScript SDK, it renews a token that can be renewed.) Unless the whole matrix is asked for, it does so at the
// bridge, and speaks the newest revision.
func TestInspector(t *testing.T) {
	t.Parallel()
	requireNode22(t, node(t))
	modules := programtest.Packages(t, "integration/inspector")
	program := filepath.Join(modules, "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	for name, serve := range map[string]func(*testing.T) *process{
		"provider": func(t *testing.T) *process { return identified(t, idp(t)) },
		"front":    func(t *testing.T) *process { return fronted(t, idp(t), map[string]any{"all": "mcp:use"}) },
	} {
		if !whole && name != "front" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t)
			inspect := func(user *browser, kept, want string, code, opens int, args ...string) {
				t.Helper()
				i := inspection{program: program, kept: kept, address: p.base + "/files/mcp", args: args}
				out, all, got, opened := i.run(t, user)
				if !strings.Contains(out+all, want) || got != code || opened != opens {
					t.Errorf("%v: ended with %d after %d sign-ins, want %d after %d, with %q:\n%s", args, got, opened, code, opens, want, all)
				}
			}
			const stored = "--stored-auth-only"
			for _, era := range []string{"legacy", "modern"} {
				if !whole && era != "modern" {
					continue
				}
				user, kept := newBrowser("eng-ann"), t.TempDir()
				list := []string{"--protocol-era", era, "--method", "tools/list"}
				if whole {
					inspect(user, kept, `"auth_required"`, 3, 0, append(list, stored)...)
				}
				inspect(user, kept, `"name":"get-sum"`, 0, 1, list...)
				inspect(user, kept, "is 5", 0, 0, "--protocol-era", era, "--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=3", stored)
				if name == "front" && user.agreed != 1 {
					t.Errorf("the user was asked %d times", user.agreed)
				}
			}
			if !whole {
				return
			}
			code, why := 3, `"auth_required"` // has a token of the provider, which no rule lets in
			if name == "front" {
				code, why = 1, "no access rule of this server admits you" // gets none
			}
			inspect(newBrowser("guest"), t.TempDir(), why, code, 1, "--method", "tools/list")
		})
	}
}

// An inspection is one run of Inspector's command line.
type inspection struct {
	program string
	kept    string // the folder in which it keeps what it knows
	address string
	args    []string
}

// run runs it, with a user at the browser that it opens. It returns its output, all that it
// has written, its exit code, and how often the user has signed in.
func (i inspection) run(t *testing.T, user *browser) (output, all string, code, opened int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	callback := fmt.Sprintf("http://127.0.0.1:%d/callback", porttest.Reserve(t))
	cmd := exec.CommandContext(ctx, node(t), append([]string{i.program, "--cli", i.address, "--format", "json", "--connect-timeout", "120000", "--callback-url", callback}, i.args...)...)
	cmd.SysProcAttr = dieWithParent()
	cmd.WaitDelay = left()
	cmd.Env = append(os.Environ(), "HOME="+i.kept, "MCP_STORAGE_DIR="+i.kept, "MCP_INSPECTOR_SECRET_STORE=file",
		// It signs nobody in without a terminal unless it may open a browser: "true" is that
		// browser, and the address is also on stderr.
		"MCP_AUTO_OPEN_ENABLED=true", "BROWSER=true", "NO_COLOR=1")
	var out, said strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		_, page, ok := strings.Cut(lines.Text(), "navigate to: ")
		if !ok {
			continue
		}
		opened++
		ended, err := user.open(ctx, strings.TrimSpace(page))
		if err != nil {
			t.Fatalf("the browser: %v", err)
		}
		a, err := http.Get(ended.String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Error(err)
	}
	var compact bytes.Buffer
	if output = out.String(); json.Compact(&compact, []byte(output)) == nil {
		output = compact.String()
	}
	return output, output + said.String(), cmd.ProcessState.ExitCode(), opened
}
