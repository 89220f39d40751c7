package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// dryRun prints the request that a call would send.
func (c *clientFlags) dryRun(cmd *cobra.Command, args []string, t *try) error {
	at, rest, err := c.split(cmd, args)
	if err != nil {
		return err
	}
	if err := t.prepare(cmd, c, rest); err != nil {
		return err
	}
	conf, _, err := at.resolve(cmd.Context())
	if err != nil {
		return err
	}
	if conf.Servers[0].Rest == nil {
		return exit.Usagef("--dry-run is for HTTP APIs, which are OpenAPI documents and servers of the kind rest in the configuration file: for others, a call is no more than a message to them")
	}
	return t.plan(cmd.Context(), c, conf, c.Stdout)
}

// plan prints the request that a call would send.
func (t *try) plan(ctx context.Context, f *clientFlags, c *config.Config, out io.Writer) error {
	s := &c.Servers[0]
	logs := f.logs()
	log, err := logs.Logger(f.Stderr)
	if err != nil {
		return err
	}
	a, err := rest.New(s.Name, *s.Rest, server.RestOptions(s, int(c.MaxMessage), log))
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errSilent)
	defer cancel()
	list, err := a.Tools(ctx)
	if err != nil {
		return exit.With(exit.Server, err)
	}
	name := t.tool
	for own, seen := range s.Tools.Rename {
		if seen == t.tool {
			name = own
		}
	}
	tool, err := find("tool", gjson.ParseBytes(list).Array(), name)
	if err != nil && !t.noCheck {
		return err
	}
	args := t.args
	if args == nil {
		if args, err = arguments.Of(tool.Get("inputSchema")).Build(t.pairs); err != nil {
			return err
		}
	}
	text, err := a.Plan(ctx, name, args)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	if is, _ := f.Terminal(out); is {
		text = sanitize.Text(text)
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(text, "\n"))
	return err
}
