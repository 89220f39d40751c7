package inspect

import (
	"context"
	"errors"
	"fmt"
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
	conf, _, err := c.resolve(cmd.Context(), at)
	if err != nil {
		return err
	}
	if conf.Servers[0].Rest == nil {
		return exit.Usagef("--dry-run is for HTTP APIs, which are OpenAPI documents and servers of the kind rest in the configuration file: for others, a call is no more than a message to them")
	}
	text, err := t.plan(cmd.Context(), c, conf)
	if err != nil {
		return err
	}
	if is, _ := c.Terminal(c.Stdout); is {
		text = sanitize.Text(text)
	}
	_, err = fmt.Fprintln(c.Stdout, strings.TrimRight(text, "\n"))
	return err
}

// plan returns the request that a call would send.
func (t *try) plan(ctx context.Context, f *clientFlags, c *config.Config) (string, error) {
	s := &c.Servers[0]
	logs := f.logs()
	log, err := logs.Logger(f.Stderr)
	if err != nil {
		return "", err
	}
	a, err := rest.New(s.Name, *s.Rest, server.RestOptions(s, int(c.MaxMessage), log))
	if err != nil {
		return "", err
	}
	defer a.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errSilent)
	defer cancel()
	list, err := a.Tools(ctx)
	if err != nil {
		return "", exit.With(exit.Server, err)
	}
	name := t.tool
	for own, seen := range s.Tools.Rename {
		if seen == t.tool {
			name = own
		}
	}
	tool, err := find("tool", gjson.ParseBytes(list).Array(), name)
	if err != nil && !t.noCheck {
		return "", err
	}
	args := t.args
	if args == nil {
		if args, err = arguments.Of(tool.Get("inputSchema")).Build(t.pairs); err != nil {
			return "", err
		}
	}
	text, err := a.Plan(ctx, name, args)
	if err != nil {
		return "", exit.With(exit.Usage, err)
	}
	return text, nil
}

// unreached begins the reason of a result when no request has reached the API.
const unreached = " got no answer: the API could not be reached"

// refusal explains the failed call of an HTTP API: results name no hosts, but the operator may see
// where the request went.
func (t *try) refusal(ctx context.Context, f *clientFlags, c *config.Config, result gjson.Result) error {
	code, text := exit.Answer, fmt.Sprintf("the tool %q answered with an error", t.tool)
	if strings.Contains(result.Get("content.0.text").String(), unreached) {
		code, text = exit.Server, "the API could not be reached"
	}
	if plan, err := t.plan(ctx, f, c); err == nil {
		request, _, _ := strings.Cut(plan, "\n")
		text += "; the request was " + sanitize.Text(request)
		if c.Servers[0].Rest.BaseURL == "" {
			text += ", since the document says so: --base-url or base_url sets another address"
		}
	}
	return exit.With(code, errors.New(text))
}
