package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
)

// try is one call of a tool.
type try struct {
	tool    string
	pairs   []arguments.Pair
	object  string // --json
	noCheck bool
	dir     string // --output-dir
	args    json.RawMessage
}

func newCall(f *clientFlags) *cobra.Command {
	var t try
	var dry bool
	var saved string
	c := &cobra.Command{
		Use:   "call [flags] TARGET TOOL [key=value ...]",
		Short: "Call a tool of a server",
		Long: `call calls a tool and prints its answer. Values are converted to the types in the
tool's schema:

  key=value    a string, number, boolean, null, or JSON for lists and objects;
               several for one list append to it
  a.b=value    the member b of the argument a
  key=@FILE    the text of a file
  key:=JSON    JSON as it is, whatever the schema says

Server requests (sampling, elicitation, roots) are shown on the terminal; without
one they are cancelled. A tool that can only run as a task is run as one and waited for.
Ctrl-C cancels the call.

With --saved FILE the calls are those of a file, which the console writes ("export").
Each goes to the server of its name in the configuration file, or all go to TARGET
if that is given. "expect" of a call says what its answer is to be; if one is
another, the exit code is 1. So such a file is a test.
` + exitHelp,
		Example: `  mcp-bridge call files read_file path=README.md
  mcp-bridge call https://tools.example.com/mcp search query=bridge limit=5
  mcp-bridge call pets get_pet id=7 --dry-run
  mcp-bridge call files write_file --json '{"path":"a.txt","content":"hello"}'
  mcp-bridge call --saved calls.json -c bridge.yaml
  mcp-bridge call get-tiny-image --output-dir . -- npx -y my-server`,
	}
	flags := c.Flags()
	flags.StringVar(&t.object, "json", "", "all arguments as one JSON object; @FILE reads a file, - reads stdin")
	flags.BoolVar(&t.noCheck, "no-check", false, "call the tool even if it is not listed or the arguments do not fit")
	flags.StringVar(&t.dir, "output-dir", "", "folder for images, audio and other binary content")
	flags.StringVar(&saved, "saved", "", "make the calls of this file, and compare the answers")
	flags.BoolVar(&dry, "dry-run", false, "print the HTTP request to a REST API, with secrets masked, and send nothing")
	call := f.runE(action{
		prepare: func(rest []string) error { return t.prepare(c, f, rest) },
		do:      func(ctx context.Context, c *client) error { return c.call(ctx, &t) },
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case saved != "":
			return f.replay(cmd, args, saved, t.noCheck)
		case dry:
			return f.dryRun(cmd, args, &t)
		}
		return call(cmd, args)
	}
	return c
}

// prepare checks the arguments after the target.
func (t *try) prepare(c *cobra.Command, f *clientFlags, rest []string) error {
	if len(rest) == 0 {
		return exit.Usagef("name the tool to call: '%s TARGET' lists them", c.Root().Name()+" tools")
	}
	if f.json && t.dir != "" {
		return exit.Usagef("--output-dir is of no use with --json-output, which has binary content in it")
	}
	t.tool = rest[0]
	var err error
	if t.pairs, err = arguments.Pairs(rest[1:]); err != nil {
		return err
	}
	if c.Flags().Changed("json") {
		if len(t.pairs) > 0 {
			return exit.Usagef("give arguments as key=value or with --json, not both")
		}
		if t.args, err = arguments.Object(t.object, c.InOrStdin()); err != nil {
			return err
		}
	}
	if t.dir != "" {
		if err := os.MkdirAll(t.dir, 0o755); err != nil { // fails before the call, not after it
			return exit.Usagef("--output-dir: %w", err)
		}
	}
	return nil
}

// searchTools finds tools that a server with tools_mode search does not list. The command calls these tools by their
// names.
const searchTools = "search_tools"

// found requests the definition of a tool that the server does not list.
func (c *client) found(ctx context.Context, name string) (gjson.Result, error) {
	raw, err := c.request(ctx, func(ctx context.Context) error {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: searchTools, Arguments: map[string]any{"names": []string{name}}})
		return err
	})
	if err != nil {
		return gjson.Result{}, c.visits(err)
	}
	text := gjson.GetBytes(raw, "content.0.text").String()
	if gjson.GetBytes(raw, "isError").Bool() || !gjson.Valid(text) {
		return gjson.Result{}, exit.With(exit.Usage, errors.New(text))
	}
	return gjson.Parse(text), nil
}

// answer calls the tool. It returns the answer, whether the tool failed, and the duration.
func (c *client) answer(ctx context.Context, t *try) (raw json.RawMessage, failed bool, took time.Duration, err error) {
	_, tools, err := c.listTools(ctx)
	if err != nil {
		return nil, false, 0, err
	}
	tool, err := find("tool", tools, t.tool)
	if _, none := find("tool", tools, searchTools); err != nil && none == nil {
		tool, err = c.found(ctx, t.tool)
	}
	if err != nil && !t.noCheck {
		return nil, false, 0, c.unlisted(t.tool, err)
	}
	asTask := c.tasks && tool.Get("execution.taskSupport").String() == "required"
	s := arguments.Of(tool.Get("inputSchema"))
	args := t.args
	if args == nil {
		if args, err = s.Build(t.pairs); err != nil {
			return nil, false, 0, err
		}
	}
	if !t.noCheck {
		if err := s.Check(fmt.Sprintf("tool %q", t.tool), args); err != nil {
			return nil, false, 0, err
		}
	}
	params := &mcp.CallToolParams{Name: t.tool, Arguments: args}
	params.SetProgressToken("call") // even with --quiet, because progress keeps the call from timing out
	began := time.Now()
	if asTask {
		raw, failed, err = c.callAsTask(ctx, params)
	} else {
		raw, err = c.request(ctx, func(ctx context.Context) error {
			_, err := c.CallTool(ctx, params)
			return err
		})
	}
	took = time.Since(began)
	c.status.clear()
	if err != nil {
		return nil, false, took, c.visits(err)
	}
	return raw, failed || gjson.GetBytes(raw, "isError").Bool(), took, nil
}

// call calls the tool and prints its answer.
func (c *client) call(ctx context.Context, t *try) error {
	raw, failed, _, err := c.answer(ctx, t)
	if err != nil {
		return err
	}
	if c.flags.json {
		if err := c.printJSON(raw); err != nil || !failed {
			return err
		}
		return exit.With(exit.Answer, nil)
	}
	show := &shower{
		console: c.console,
		dir:     t.dir,
		name:    t.tool,
	}
	if err := show.result(gjson.ParseBytes(raw)); err != nil || !failed {
		return err
	}
	if c.api != nil {
		return t.refusal(ctx, c.flags, c.api, gjson.ParseBytes(raw))
	}
	return exit.With(exit.Answer, fmt.Errorf("the tool %q answered with an error", t.tool))
}
