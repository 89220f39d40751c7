package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// list fetches all pages of a list. page requests one page. The raw result of a single page is unchanged; the raw
// result of several pages holds the items of all. If the server does not offer the list, the result is empty. An
// endless list is cut off with a warning.
func (c *client) list(ctx context.Context, k list.Kind, page func(ctx context.Context, cursor string) error) (json.RawMessage, []gjson.Result, error) {
	var items []gjson.Result
	var at list.Mark
	key := k.Member()
	for first := true; ; first = false {
		raw, err := c.request(ctx, func(ctx context.Context) error { return page(ctx, at.Cursor) })
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeMethodNotFound && !c.offers(key) {
			return json.RawMessage(`{"` + key + `":[]}`), nil, nil
		} else if err != nil {
			return nil, nil, err
		}
		if first {
			c.lacking = gjson.GetBytes(raw, "_meta."+gjson.Escape(era.KeyMissing)).Array()
		}
		more, cut := at.Follow(k, raw)
		if !errors.Is(cut, list.ErrRepeats) {
			items = append(items, gjson.GetBytes(raw, key).Array()...)
		}
		switch {
		case cut != nil:
			c.status.print(fmt.Sprintf("warning: %s was cut off: %v\n", k.Method(), cut))
		case more && at.Cursor != "": // the SDK cannot send an empty cursor
			continue
		case first:
			return raw, items, nil
		}
		return whole(key, items), items, nil
	}
}

// offers reports whether the server has announced a list.
func (c *client) offers(key string) bool {
	can := c.InitializeResult().Capabilities
	switch {
	case can == nil:
		return false
	case key == "tools":
		return can.Tools != nil
	case key == "prompts":
		return can.Prompts != nil
	case key == "resources":
		return can.Resources != nil
	}
	return false // templates are optional beside resources
}

// whole returns one result with the items of all pages.
func whole(key string, items []gjson.Result) json.RawMessage {
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item.Raw)
	}
	return json.RawMessage(`{"` + key + `":[` + b.String() + `]}`)
}

func (c *client) listTools(ctx context.Context) (json.RawMessage, []gjson.Result, error) {
	return c.list(ctx, list.Tools, func(ctx context.Context, cursor string) error {
		_, err := c.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		return err
	})
}

func newTools(f *clientFlags) *cobra.Command {
	var long bool
	c := &cobra.Command{
		Use:   "tools [flags] [TARGET]",
		Short: "List the tools of a server",
		Long: `tools lists the tools of a server, one line each; --long shows their arguments and
whole descriptions. Without TARGET it lists the tools of all servers of the file,
under the names that clients see at /mcp, and then shows how much of a model's
context the lists take.
` + exitHelp,
		Example: `  mcp-bridge tools https://tools.example.com/mcp
  mcp-bridge tools files --long -c bridge.yaml
  mcp-bridge tools -c bridge.yaml
  mcp-bridge tools ./openapi.yaml --all
  mcp-bridge tools https://tools.example.com/mcp --token-env TOKEN
  mcp-bridge tools -- npx -y @modelcontextprotocol/server-everything`,
	}
	c.Flags().BoolVarP(&long, "long", "l", false, "show descriptions in full, with arguments")
	c.Flags().BoolVar(&f.all, "all", false, "list all tools, also those found by search only")
	c.RunE = f.runE(action{
		prepare: nothingMore(c, f, &long),
		do: func(ctx context.Context, c *client) error {
			raw, tools, err := c.listTools(ctx)
			var weights string
			if err == nil && c.file != nil && !f.json {
				weights, err = c.weights(ctx, tools)
			}
			if why := c.link.Reason(); err == nil && why != "" { // some of several servers may fail
				c.status.print("warning: " + sanitize.Text(why) + "\n")
			} else if err == nil {
				for _, one := range c.lacking {
					c.status.print("warning: " + sanitize.Text(absence(one)) + "\n")
				}
			}
			switch {
			case err != nil:
				return err
			case f.json:
				return c.printJSON(raw)
			case len(tools) == 0:
				c.status.print("the server has no tools\n")
				return nil
			case long:
				err = c.emit(longTools(c.console, tools))
			default:
				err = c.emit(shortTools(c.console, tools))
			}
			if err == nil {
				c.status.print(weights)
			}
			return err
		},
	})
	return c
}

// nothingMore refuses arguments after the target.
func nothingMore(cmd *cobra.Command, c *clientFlags, long *bool) func([]string) error {
	return func(rest []string) error {
		if len(rest) > 0 {
			return exit.Usagef("%s takes one target and nothing else, but got %q too (see '%s --help')", cmd.Name(), rest, cmd.CommandPath())
		}
		return c.notLong(*long)
	}
}

// notLong refuses --long with --json-output, which prints everything anyway.
func (c *clientFlags) notLong(long bool) error {
	if long && c.json {
		return exit.Usagef("--long is of no use with --json-output, which prints everything")
	}
	return nil
}

func shortTools(c *console, tools []gjson.Result) string {
	t := terminal.Table{Head: []string{"NAME", "HINTS", "DESCRIPTION"}}
	for _, tool := range tools {
		t.Add(c.text(tool.Get("name").String()), strings.Join(hints(tool), ", "), c.text(sentences(about(tool))))
	}
	return t.Format("", c.width, c.bold)
}

// about returns the description of an item, or its title.
func about(v gjson.Result) string { return cmp.Or(v.Get("description").String(), title(v)) }

// sentences ends the paragraphs of a text with full stops, because the text will be on one line.
func sentences(text string) string {
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range parts[:len(parts)-1] {
		p = strings.TrimSpace(p)
		if last, _ := utf8.DecodeLastRuneInString(p); unicode.IsLetter(last) || unicode.IsDigit(last) || last == ')' {
			parts[i] = p + "."
		}
	}
	return strings.Join(parts, "\n\n")
}

// title returns the name for people (revision 2025-06-18). In revision 2025-03-26, this name is in the annotations of
// tools.
func title(v gjson.Result) string {
	return cmp.Or(v.Get("title").String(), v.Get("annotations.title").String())
}

// hints returns the annotations of a tool that matter to a caller. They are the server's claims, not guarantees.
func hints(tool gjson.Result) []string {
	a := tool.Get("annotations")
	if a.Get("readOnlyHint").Bool() {
		return []string{"read-only"}
	}
	var all []string
	if a.Get("destructiveHint").Bool() {
		all = append(all, "destructive")
	}
	if a.Get("idempotentHint").Bool() {
		all = append(all, "idempotent")
	}
	return all
}

func longTools(c *console, tools []gjson.Result) string {
	var b strings.Builder
	for i, tool := range tools {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(heading(c, tool, hints(tool)))
		s := arguments.Of(tool.Get("inputSchema"))
		b.WriteString(argumentTable(c, s, s.Arguments()))
	}
	return b.String()
}

// heading formats the name, title and description of an item.
func heading(c *console, v gjson.Result, marks []string) string {
	name := c.text(terminal.OneLine(v.Get("name").String()))
	line := c.bold(name)
	if t := c.text(terminal.OneLine(title(v))); t != "" && t != name {
		line += "  " + t
	}
	if len(marks) > 0 {
		line += "  (" + strings.Join(marks, ", ") + ")"
	}
	line += "\n"
	if text := strings.TrimSpace(c.text(v.Get("description").String())); text != "" {
		line += "  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
	}
	return line
}

func argumentTable(c *console, s arguments.Schema, args []arguments.Argument) string {
	if len(args) == 0 {
		return ""
	}
	return "\n" + c.text(s.Table(args, "  "))
}

func newPrompts(f *clientFlags) *cobra.Command {
	var long bool
	var name string
	var given []arguments.Pair
	c := &cobra.Command{
		Use:   "prompts [flags] TARGET [NAME [key=value ...]]",
		Short: "List the prompts of a server, or get one",
		Long: `prompts lists the prompts of a server with their arguments, those in brackets
being optional. With a NAME it gets that prompt and shows its messages; a value
key=@FILE is the text of a file.
` + exitHelp,
		Example: `  mcp-bridge prompts https://tools.example.com/mcp
  mcp-bridge prompts files args-prompt city=Paris
  mcp-bridge prompts args-prompt city=Paris -- npx -y my-server`,
	}
	c.Flags().BoolVarP(&long, "long", "l", false, "show descriptions in full, with arguments")
	c.RunE = f.runE(action{
		prepare: func(rest []string) error {
			if len(rest) == 0 {
				return f.notLong(long)
			}
			if long {
				return exit.Usagef("--long is of use for the list only")
			}
			var err error
			name = rest[0]
			given, err = arguments.Pairs(rest[1:])
			return err
		},
		do: func(ctx context.Context, c *client) error {
			raw, prompts, err := c.list(ctx, list.Prompts, func(ctx context.Context, cursor string) error {
				_, err := c.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
				return err
			})
			switch {
			case err != nil:
				return err
			case name != "":
				return c.prompt(ctx, prompts, name, given)
			case f.json:
				return c.printJSON(raw)
			case len(prompts) == 0:
				c.status.print("the server has no prompts\n")
				return nil
			}
			return c.emit(promptList(c.console, prompts, long))
		},
	})
	return c
}

func promptArguments(prompt gjson.Result) []arguments.Argument {
	var all []arguments.Argument
	for _, a := range prompt.Get("arguments").Array() {
		all = append(all, arguments.Argument{
			Name:     a.Get("name").String(),
			Required: a.Get("required").Bool(),
			About:    about(a),
		})
	}
	return all
}

func promptList(c *console, prompts []gjson.Result, long bool) string {
	t := terminal.Table{Head: []string{"NAME", "ARGUMENTS", "DESCRIPTION"}}
	var b strings.Builder
	for i, p := range prompts {
		args := promptArguments(p)
		if long {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(heading(c, p, nil) + argumentTable(c, arguments.Schema{}, args))
			continue
		}
		var names []string
		for _, a := range args {
			if !a.Required {
				a.Name = "[" + a.Name + "]"
			}
			names = append(names, a.Name)
		}
		t.Add(c.text(p.Get("name").String()), c.text(strings.Join(names, " ")), c.text(about(p)))
	}
	if long {
		return b.String()
	}
	return t.Format("", c.width, c.bold)
}

// prompt gets one prompt and shows its messages.
func (c *client) prompt(ctx context.Context, prompts []gjson.Result, name string, given []arguments.Pair) error {
	p, err := find("prompt", prompts, name)
	if err != nil {
		return err
	}
	args, values := map[string]string{}, map[string]json.RawMessage{}
	for _, p := range given {
		if _, twice := args[p.Key]; twice {
			return exit.Usagef("%s is given twice", p.Key)
		}
		args[p.Key] = p.Value
		if p.JSON {
			args[p.Key] = arguments.Plain(p.Value)
		}
		values[p.Key] = json.RawMessage(arguments.Quote(args[p.Key]))
	}
	if err := (arguments.Schema{}).Compare(fmt.Sprintf("prompt %q", name), promptArguments(p), values, false); err != nil {
		return err
	}
	raw, err := c.request(ctx, func(ctx context.Context) error {
		_, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: args})
		return err
	})
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(raw)
	}
	show := &shower{console: c.console}
	for i, m := range gjson.GetBytes(raw, "messages").Array() {
		gap := ""
		if i > 0 {
			gap = "\n"
		}
		if err := c.emit(gap + c.bold(c.text(terminal.OneLine(m.Get("role").String()))+":") + "\n"); err != nil {
			return err
		}
		blocks := []gjson.Result{m.Get("content")}
		if blocks[0].IsArray() {
			blocks = blocks[0].Array()
		}
		for _, b := range blocks {
			if err := show.block(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// absence says why a list of several servers lacks one. one has the form of era.KeyMissing.
func absence(one gjson.Result) string {
	state := ""
	if since := one.Get("since"); since.Exists() {
		state = "is failing since " + since.Time().Local().Format(time.TimeOnly) + " and "
	}
	return terminal.OneLine(fmt.Sprintf("server %s %sis missing from the list: %s", one.Get("server"), state, strings.TrimPrefix(one.Get("why").String(), "handshake: ")))
}

// unlisted returns the error about a tool that no list has. If a server is missing that may have the tool, the error
// says why. Otherwise it is err.
func (c *client) unlisted(name string, err error) error {
	for _, one := range c.lacking {
		if strings.HasPrefix(name, one.Get("server").String()) {
			return exit.With(exit.Server, errors.New(absence(one)))
		}
	}
	if strings.Contains(err.Error(), "did you mean ") {
		return err
	}
	for _, one := range c.lacking {
		err = exit.Usagef("%w; %s", err, absence(one))
	}
	return err
}

// find returns the item with a name.
func find(what string, all []gjson.Result, name string) (gjson.Result, error) {
	var names []string
	for _, v := range all {
		names = append(names, v.Get("name").String())
	}
	if i := slices.Index(names, name); i >= 0 {
		return all[i], nil
	}
	hint := similar.Hint(name, names, "it has none")
	var prefixed []string
	for _, n := range names {
		if strings.HasSuffix(n, "__"+name) {
			prefixed = append(prefixed, n)
		}
	}
	if len(prefixed) > 0 {
		hint = "did you mean " + strings.Join(prefixed[:min(len(prefixed), 3)], " or ") + "? At the address of several servers, names begin with their server's prefix"
	}
	return gjson.Result{}, exit.Usagef("the server has no %s %q: %s", what, name, hint)
}
