package flags

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/memory"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// Target holds the flags for the server that a command line names.
type Target struct {
	SignIn  SignIn // Add does not add its flags
	File    string // value of -c, which Add does not add
	Program Program

	remote   Remote
	document Document
	era      string
	set      *pflag.FlagSet
	command  string
}

type Kind int

// These constants are the kinds of targets.
const (
	OfFile     Kind = 1 << iota // a server of the configuration file, or all servers of the file
	OfProgram                   // a program with its arguments
	OfURL                       // the URL of an MCP server
	OfDocument                  // the path or the URL of an OpenAPI document
)

// fits lists the kinds of targets with which flags are useful.
var fits = []struct {
	flags []string
	kinds Kind
	with  string
}{
	{[]string{"config"}, OfFile, "a server of the file"},
	{[]string{"env", "env-all", "cwd"}, OfProgram, "a program"},
	{[]string{"header", "ca-file", "token-env"}, OfURL | OfDocument, "a URL or an OpenAPI document; a program gets variables, with --env"},
	{[]string{"transport"}, OfURL, "the URL of an MCP server"},
	{[]string{"era"}, OfURL | OfProgram, "the URL of an MCP server or a program"},
	{[]string{"offer"}, OfURL | OfDocument | OfProgram, "a target that is no server of the file"},
	{append([]string{"device"}, SignInNames...), OfURL, "the URL of an MCP server"},
	{DocumentNames, OfDocument, "an OpenAPI document"},
}

func (t *Target) Add(c *cobra.Command) {
	t.set, t.command = c.Flags(), c.Name()
	t.Program.add(t.set)
	t.remote.add(t.set, c.Name() == "run")
	t.document.add(t.set)
	t.set.StringVar(&t.era, "era", config.EraAuto, "revisions of the server: legacy (to 2025-11-25), modern (from 2026-07-28) or auto")
}

// Kind returns the kind of the target in args, and refuses flags that are useless with it. dashed means that args
// follow --. The command run also takes a program without --, but no server of a file.
func (t *Target) Kind(ctx context.Context, args []string, dashed bool) (kind Kind, err error) {
	run := t.command == "run"
	switch {
	case len(args) == 0:
		kind = OfFile
	case dashed && !run:
		kind = OfProgram
	default:
		isDocument := false
		if len(args) == 1 && (run || MayBeDocument(args[0])) {
			if isDocument, err = t.document.Is(ctx, t.command, args[0], t.remote.CAFile); err != nil {
				return 0, err
			}
		}
		switch {
		case isDocument:
			kind = OfDocument
		case IsURL(args[0]):
			kind = OfURL
		case run:
			kind = OfProgram
		default:
			kind = OfFile
		}
	}
	for _, f := range fits {
		if f.kinds&kind == 0 {
			names := f.flags
			if run { // its --token-env is for its own clients
				names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "token-env" })
			}
			if err := Useless(t.set, f.with, names...); err != nil {
				return 0, err
			}
		}
	}
	return kind, nil
}

// Server returns the settings for a target that is not in the file, with warnings about the target's flags.
func (t *Target) Server(kind Kind, args []string, share string) (s config.Server, warnings []string, err error) {
	switch kind {
	case OfProgram:
		if s, err = t.Program.Server(args, share); err == nil {
			err = t.Program.find(&s)
		}
		warnings = Unexpanded(args[1:])
	case OfDocument:
		s, err = t.document.server(args[0], &t.remote, share)
		warnings = t.remote.Unexpanded()
	default:
		s, err = t.remote.Server(args[0], share)
		warnings = t.remote.Unexpanded()
	}
	s.Era = t.era
	return s, append(s.Warnings(), warnings...), err
}

// Config returns a configuration with only the target, or with all servers of the file.
func (t *Target) Config(kind Kind, args []string) (*config.Config, error) {
	if kind == OfFile {
		return t.inFile(args)
	}
	s, warnings, err := t.Server(kind, args, config.ShareSession)
	c := config.Default()
	c.Servers, c.Warnings = []config.Server{s}, warnings
	c.Fit(memory.Most())
	return &c, err
}

// inFile reads the configuration file and keeps only the named server. Without a name, it keeps all servers.
func (t *Target) inFile(name []string) (*config.Config, error) {
	if len(name) > 0 && strings.Contains(name[0], " ") { // names of servers have no spaces
		return nil, exit.Usagef("%q is neither a URL nor the name of a server: write a program as words, behind --: -- %s", name[0], strings.Join(strings.Fields(name[0]), " "))
	}
	given := t.set.Changed("config")
	c, err := Load(t.File)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !given && len(name) > 0 && Remotely(name[0]) != "":
		return nil, exit.Usagef("%q is not a URL: %s", name[0], Remotely(name[0]))
	case errors.Is(err, fs.ErrNotExist) && !given && len(name) > 0:
		return nil, exit.Usagef("unknown target %q: there is no %s here. %s", name[0], t.File, Forms)
	case errors.Is(err, fs.ErrNotExist) && !given:
		return nil, exit.Usagef("no target: there is no %s here. %s", t.File, Forms)
	case err != nil || len(name) == 0:
		return c, err
	}
	var names []string
	for _, s := range c.Servers {
		if s.Name == name[0] {
			if s.Unusable != "" {
				return nil, exit.Usagef("%s: server %q: %s", t.File, s.Name, s.Unusable)
			}
			c.Servers = []config.Server{s}
			return c, nil
		}
		names = append(names, s.Name)
	}
	return nil, exit.Usagef("%s has no server %q: %s", t.File, name[0], similar.Hint(name[0], names, "it has none"))
}
