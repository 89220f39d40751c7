package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

// commandGroup is a group of commands in the help.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// flagGroups lists the flags of all commands by group, in the order of the help, each with the type of its value.
// COMMAND/FLAG is only for that command, and comes before FLAG.
var flagGroups = []struct{ title, flags string }{
	{"Call", "call/json=<object> saved=<file> no-check dry-run root=<folder>"},
	{"Listen", "listen=<address> host=<host> port=<port> run/token-env=<name> insecure allow-host=<host> allow-origin=<origin> console=<mode>"},
	{"Server process", "env=<NAME=VALUE> env-all cwd=<folder> share=<mode> restart"},
	{"Remote server", "against=<url> header=<header> token-env=<name> ca-file=<file> transport=<transport>"},
	{"Sign-in", "client-id=<id> client-secret-env=<name> client-metadata-url=<url> issuer=<url> scope=<scope> resource=<url> callback=<url> device no-login"},
	{"REST API", "base-url=<url> mode=<mode> expose=<rule> read-only tools/all"},
	{"Protocol", "era=<era> offer=<revisions> timeout=<duration> handshake-timeout=<duration>"},
	{"Other", "name=<name> config=<file> output=<file> env-file=<file> secrets=<mode> only=<server> force merge tools=<name> online check " +
		"all health once every=<duration> for=<duration> wait=<duration> long json json-output output-dir=<folder> quiet verbose " +
		"log-level=<level> log-format=<format> version help"},
}

const (
	manyFlags    = 10  // a command with more flags, or with the flags of Listen, shows groups
	helpWidth    = 80  // without a terminal
	maxHelpWidth = 100 // on a wide terminal
	maxName      = 30  // a longer name stands above its description
)

// addCommands adds commands to root, with a help that shows commands and flags in groups. The templates of cobra would
// make the linker keep all methods, and the program would have 34 MB instead of 24 MB.
func addCommands(root *cobra.Command, groups []commandGroup) {
	for _, c := range groups {
		root.AddCommand(c.commands...)
	}
	show := func(c *cobra.Command) error {
		is, width := terminal.Is(c.OutOrStdout())
		if width = min(width, maxHelpWidth); !is {
			width = helpWidth
		}
		_, err := io.WriteString(c.OutOrStdout(), helpText(c, groups, width))
		return err
	}
	root.SetUsageFunc(show)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { _ = show(c) }) // stdout may be closed
}

func helpText(c *cobra.Command, groups []commandGroup, width int) string {
	text := paragraphs(cmp.Or(c.Long, c.Short), width) + "\nUsage:\n"
	if c.HasParent() {
		text += "  " + c.UseLine() + "\n"
	} else {
		text += "  mcp-bridge COMMAND [flags]\n  mcp-bridge URL              means: mcp-bridge run URL\n  mcp-bridge -- PROGRAM       means: mcp-bridge run -- PROGRAM\n"
	}
	if c.Example != "" {
		text += "\nExamples:\n" + c.Example + "\n"
	}
	left := c.Commands() // commands without a group
	if !c.HasParent() {
		for _, c := range groups {
			text += "\n" + c.title + ":\n" + commandRows(c.commands, width)
			left = slices.DeleteFunc(left, func(one *cobra.Command) bool { return slices.Contains(c.commands, one) })
		}
	}
	left = slices.DeleteFunc(left, func(one *cobra.Command) bool { return one.Hidden && one.Name() != "completion" })
	if len(left) > 0 {
		text += "\nOther commands:\n" + commandRows(left, width)
	}
	return text + flagText(c, width)
}

// commandRows formats commands with their descriptions.
func commandRows(all []*cobra.Command, width int) string {
	var rows [][2]string
	for _, c := range all {
		rows = append(rows, [2]string{"  " + c.Name(), c.Short})
	}
	return columns(rows, len("  completion"), width)
}

// flagText formats the flags of a command, in groups if there are many.
func flagText(c *cobra.Command, width int) string {
	var titles []string
	groups, widest, n := map[string][][2]string{}, 0, 0
	c.Flags().VisitAll(func(*pflag.Flag) { n++ })
	grouped := n > manyFlags || c.Flags().Lookup("listen") != nil
	add := func(title, kind string, f *pflag.Flag) {
		if !grouped {
			title = "Flags"
		}
		if !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
		row := flagRow(f, kind)
		groups[title] = append(groups[title], row)
		if w := terminal.Columns(row[0]); w <= maxName {
			widest = max(widest, w)
		}
	}
	shown := map[string]bool{}
	for _, g := range flagGroups {
		for entry := range strings.FieldsSeq(g.flags) {
			name, kind, _ := strings.Cut(entry, "=")
			name, own := strings.CutPrefix(name, c.Name()+"/")
			if f := c.Flags().Lookup(name); f != nil && !shown[name] && (own || !strings.Contains(name, "/")) {
				shown[name] = true
				add(g.title, kind, f)
			}
		}
	}
	text := ""
	for _, title := range titles {
		text += "\n" + title + ":\n" + columns(groups[title], widest, width)
	}
	return text
}

// flagRow returns the name of a flag with the type of the flag's value, and the flag's description.
func flagRow(f *pflag.Flag, kind string) [2]string {
	name := "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	if kind != "" && f.Value.Type() != "bool" {
		name += " " + kind
	}
	text := f.Usage
	if value := strings.Replace(f.DefValue, "m0s", "m", 1); !slices.Contains([]string{"", "false", "[]", "0s"}, value) {
		text += " (default " + value + ")"
	}
	return [2]string{name, text}
}

// columns formats rows of a name and a description. left is the width of the names. A longer name stands above its
// description.
func columns(rows [][2]string, left, width int) string {
	var b strings.Builder
	for _, r := range rows {
		name := r[0]
		if terminal.Columns(name) > left {
			b.WriteString(name + "\n")
			name = ""
		}
		for _, line := range terminal.Wrap(r[1], width-left-2) {
			b.WriteString(name + strings.Repeat(" ", left+2-terminal.Columns(name)) + line + "\n")
			name = ""
		}
	}
	return b.String()
}

// paragraphs wraps text. Indented lines stay as they are.
func paragraphs(text string, width int) string {
	var b strings.Builder
	var words string // words of a paragraph
	end := func() {
		for _, line := range terminal.Wrap(words, width) {
			b.WriteString(line + "\n")
		}
		words = ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			end()
			b.WriteString(line + "\n")
		} else {
			words += line + " "
		}
	}
	end()
	return b.String()
}
