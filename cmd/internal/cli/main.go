// Package cli implements the commands of mcp-bridge.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/script"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect"
	"github.com/mcp-bridge/bridge/cmd/internal/orphans"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func Main() {
	script.Main()
	shield()
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
	}()
	done := orphans.Reap(orphans.After)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	done()
	os.Exit(code)
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	served, log := terminal.NewOutput(stdout), terminal.NewOutput(stderr)
	defer log.Close()
	defer served.Close()
	root := newRoot(stdout, stderr, served, log)
	root.SetArgs(implied(args))
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
		text := err.Error()
		if is, _ := terminal.Is(stderr); is { // and not a log
			text = withLines(err)
		}
		fmt.Fprintln(root.ErrOrStderr(), "mcp-bridge:", text)
	}
	return e.Code
}

// withLines returns the text of an error for the user's own terminal: faults show the lines of the user's file.
func withLines(err error) string {
	faults, ok := errors.AsType[config.Faults](err)
	if !ok {
		return err.Error()
	}
	return strings.Replace(err.Error(), sanitize.Text(faults.Error()), sanitize.Text(faults.Open()), 1)
}

// newRoot returns the command of the whole program. served and log are stdout and stderr of commands that serve.
func newRoot(stdout, stderr, served, log io.Writer) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "mcp-bridge",
		Short: "Connect any MCP client to any MCP server",
		Long: `mcp-bridge connects any MCP client to any MCP server.

run and serve offer stdio servers, remote servers and REST APIs over HTTP, to many
clients at once: Streamable HTTP at /mcp, HTTP+SSE at /sse for older clients.
connect is the other way round: a stdio server in front of any other server.

'mcp-bridge COMMAND --help' shows the flags of a command, with examples.`,
		Example: `  mcp-bridge run -- npx -y @modelcontextprotocol/server-everything
  mcp-bridge run https://tools.example.com/mcp
  mcp-bridge connect https://tools.example.com/mcp
  mcp-bridge serve bridge.yaml
  mcp-bridge check bridge.yaml`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			if !showVersion {
				return c.Help()
			}
			_, err := fmt.Fprintln(stdout, version(runtime.Version()))
			return err
		},
	}
	root.Flags().SetInterspersed(false) // flags after a program belong to the program
	root.SetFlagErrorFunc(flags.Explain)
	// The version flag of cobra would need cobra's templates: see addCommands.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "print the version")
	var l flags.Log
	l.Add(root)
	serving := []*cobra.Command{newRun(&l, served, log), newServe(&l, served, log), newConnect(&l, stdout, log)}
	for _, c := range serving {
		c.PreRun = func(*cobra.Command, []string) {
			root.SetErr(log)
			// With this, a write to a closed stdout or stderr fails. Otherwise, it would end the process and its
			// servers.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		}
	}
	addCommands(root, []commandGroup{
		{"Serve", serving},
		{"Try", append(inspect.Commands(inspect.Options{
			Log:    &l,
			Stdout: stdout,
			Stderr: stderr,
		}), newDemo(stdout, stderr))},
		{"Configure", []*cobra.Command{newInit(stdout), newImport(stdout, stderr), newCheck(stdout), newSchema(stdout)}},
		{"Operate", []*cobra.Command{newStatus(stdout), newTop(stdout), newSessions(stdout), newReload(stdout, stderr), newDrain(stdout), newResume(stdout), newWhoami(stdout)}},
		{"Sign in", []*cobra.Command{newLogin(&l, stdout, stderr), newLogins(stdout, stderr), newLogout(stdout, stderr)}},
	})
	root.AddCommand(newVersion(stdout))
	addManual(root)
	flags.Complete(root)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SuggestionsMinimumDistance = 2
	return root
}

// implied adds the command run to a command line that begins with a URL or --.
func implied(args []string) []string {
	if len(args) > 0 && (args[0] == "--" && len(args) > 1 || flags.IsURL(args[0])) {
		return append([]string{"run"}, args...)
	}
	return args
}

// knownCommand refuses a word that is not a command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see 'mcp-bridge --help'"
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	if remote := flags.Remotely(args[0]); remote != "" {
		hint = remote
	}
	if _, err := exec.LookPath(args[0]); err == nil {
		hint = "to serve a program write: mcp-bridge run -- " + strings.Join(args, " ")
	}
	switch _, err := os.Stat(args[0]); {
	case filepath.Ext(args[0]) == "":
	case err != nil && slices.Contains([]string{".yaml", ".yml", ".json", ".jsonc"}, filepath.Ext(args[0])):
		hint = "there is no such file; to serve one write: mcp-bridge serve FILE"
	case err == nil:
		hint = "to serve a configuration file write: mcp-bridge serve " + args[0] + ", and for an OpenAPI document: mcp-bridge run " + args[0]
	}
	return exit.Usagef("unknown command %q: %s", args[0], hint)
}
