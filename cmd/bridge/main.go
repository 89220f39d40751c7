// Command bridge lets any MCP client talk to any MCP server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
	"github.com/mcp-bridge/bridge/cmd/bridge/inspect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // the next signal ends the process at once; the system then ends its children
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[exit.Error](err)
	if !ok {
		e = exit.Error{Code: exit.Failure, Err: err}
	}
	if e.Err != nil {
		fmt.Fprintln(stderr, "bridge:", err)
	}
	return e.Code
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "bridge",
		Short: "Lets any MCP client talk to any MCP server",
		Long: `bridge puts MCP servers on HTTP for many clients at once, whether they speak over
stdin and stdout or are remote: Streamable HTTP at /mcp, and HTTP+SSE at /sse for
older clients. The other way round, it is itself a server on stdin and stdout in
front of any other (connect).`,
		Example: `  bridge run -- npx -y @modelcontextprotocol/server-everything
  bridge run https://tools.example.com/mcp
  bridge connect https://tools.example.com/mcp
  bridge serve -c bridge.yaml
  bridge check -c bridge.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Usagef("%w (see '%s --help')", err, c.CommandPath())
	})
	var l flags.Log
	l.Add(root)
	root.AddCommand(newRun(&l, stdout, stderr), newServe(&l, stdout, stderr), newConnect(&l, stdout, stderr), newCheck(stdout), newVersion(stdout))
	root.AddCommand(inspect.Commands(inspect.Options{Log: &l, Stdout: stdout, Stderr: stderr})...)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	return root
}

// knownCommand refuses arguments of the root: a word that names no command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see 'bridge --help'"
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return exit.Usagef("unknown command %q: %s", args[0], hint)
}
