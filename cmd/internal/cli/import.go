package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/imports"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/similar"
)

func newImport(stdout, stderr io.Writer) *cobra.Command {
	var im imports.Import
	var out, secrets, env string
	var force, merge bool
	cmd := &cobra.Command{
		Use:   "import [FILE | CLIENT | -]",
		Short: "Convert another client's file",
		Long: `import reads the MCP servers of another program's file and writes them as a
configuration of mcp-bridge: of Claude, Cursor, VS Code, Windsurf, Zed, Cline, Roo,
Gemini, Codex, Goose, opencode, Crush, Continue, mcpo, TBXark's mcp-proxy,
catalogs of Docker's MCP gateway and others. The content of a file tells its form.
CLIENT stands for all files of that client on this machine. Without an argument,
import lists what it finds.

Secrets are not copied: ${NAME} stands in their place, and import says which
variables to set. What restricts clients is taken over, or the server is left out.`,
		Example: `  mcp-bridge import
  mcp-bridge import claude-desktop -o bridge.yaml
  mcp-bridge import .vscode/mcp.json --only github
  mcp-bridge import cursor -o bridge.yaml --merge --env-file secrets.env
  mcp-bridge import - < config.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("import takes one file or client, but got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if secrets != "variables" && secrets != "inline" {
				return exit.Usagef("--secrets is %q: must be variables or inline", secrets)
			}
			im.Inline = secrets == "inline"
			switch {
			case env != "" && im.Inline:
				return exit.Usagef("--env-file is for secrets, which --secrets inline writes into the new file")
			case merge && out == "":
				return exit.Usagef("name the file that gets the servers: --merge -o bridge.yaml")
			case merge && len(args) > 0:
				real, err := filepath.EvalSymlinks(out)
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				text, err := files.Read(real, imports.MaxFile)
				if err == nil {
					err = im.Into(out, text)
				}
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				out, force = real, true
			}
			if len(args) == 0 {
				return listClients(stdout)
			}
			if err := add(&im, args[0], cmd.InOrStdin()); err != nil {
				return err
			}
			for _, name := range im.Only {
				if !slices.ContainsFunc(im.Names(), func(n string) bool { return n == config.NameOf(name) }) {
					im.Notes = append(im.Notes, fmt.Sprintf("--only %s: no such server was imported", name))
				}
			}
			for _, note := range im.Notes {
				fmt.Fprintln(stderr, "note:", sanitize.Text(note))
			}
			if len(im.Names()) == 0 {
				return exit.Usagef("no server of %s can be imported", args[0])
			}
			if err := im.Fault(); err != nil && merge {
				return exit.Usagef("the servers cannot be added to %s: %w", out, err)
			} else if err != nil {
				return exit.Usagef("the servers of %s: %w", args[0], err)
			}
			names := im.Variables()
			switch {
			case len(names) > 0 && env != "":
				if err := writeNew(env, im.Env(), false); err != nil {
					return err
				}
				shown := env
				if !strings.ContainsAny(env, `/\`) {
					shown = "./" + env // for the shell's "." command
				}
				fmt.Fprintf(stderr, "note: %s has the variables %s: load it with 'set -a; . %[1]s; set +a', or as EnvironmentFile of a systemd unit\n", shown, strings.Join(names, ", "))
			case len(names) > 0:
				fmt.Fprintf(stderr, "note: set before you use it: %s\n", strings.Join(names, ", "))
			}
			text := im.YAML()
			if !merge {
				text = append([]byte(schemaLine), text...)
			}
			if out == "" {
				_, err := stdout.Write(text)
				return err
			}
			before, _ := os.Stat(out)
			if err := writeNew(out, text, force); err != nil {
				return err
			}
			if merge && !im.Inline { // keep the file's permissions
				if err := os.Chmod(out, before.Mode().Perm()); err != nil {
					return err
				}
			}
			fmt.Fprintf(stdout, "%s: %s (%s). Try: mcp-bridge check -c %[1]s\n", out, count(len(im.Names()), "server"), strings.Join(im.Names(), ", "))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write (default: standard output)")
	f.BoolVar(&force, "force", false, "overwrite the file")
	f.BoolVar(&merge, "merge", false, "add the servers to the file of --output")
	f.StringVar(&env, "env-file", "", "write the secrets into this new file, as variables to set")
	f.StringArrayVar(&im.Only, "only", nil, "import this server only (repeatable)")
	f.StringVar(&secrets, "secrets", "variables", "variables writes ${NAME} in place of secrets; inline copies them")
	return cmd
}

// add reads a file, the files of a client, or standard input.
func add(im *imports.Import, from string, stdin io.Reader) error {
	if from == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, imports.MaxFile+1))
		if err != nil {
			return err
		}
		if err := im.Add("standard input", data); err != nil {
			return exit.With(exit.Usage, err)
		}
		return nil
	}
	paths := []string{from}
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(from, `./\`) {
		clients := imports.Clients()
		i := slices.IndexFunc(clients, func(c imports.Client) bool { return c.Name == from })
		if i < 0 {
			var names []string
			for _, c := range clients {
				names = append(names, c.Name)
			}
			return exit.Usagef("unknown file or client %q: %s", from, similar.Hint(from, names, ""))
		}
		if paths = clients[i].Files; len(paths) == 0 {
			return exit.Usagef("there is no file of %s on this machine: name its file", from)
		}
	}
	var wrong error
	for _, name := range paths {
		data, err := files.Read(name, imports.MaxFile+1)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("there is no file %q", name)
		case err == nil:
			err = im.Add(name, data)
		}
		wrong = errors.Join(wrong, err)
	}
	if wrong != nil && (len(paths) == 1 || len(im.Names()) == 0) {
		return exit.With(exit.Usage, wrong)
	} else if wrong != nil {
		im.Notes = append(im.Notes, strings.Split(wrong.Error(), "\n")...)
	}
	return nil
}

// listClients prints the clients on this machine that configure servers. If there are none, it returns an error.
func listClients(stdout io.Writer) error {
	found := false
	var seen []string
	for _, c := range imports.Clients() {
		seen = append(seen, c.Paths...)
		for _, name := range c.Files {
			data, err := files.Read(name, imports.MaxFile+1)
			if err != nil {
				continue
			}
			var im imports.Import
			if im.Add(name, data) != nil || len(im.Names()) == 0 {
				continue
			}
			found = true
			fmt.Fprintf(stdout, "%s\t%s: %s\n", c.Name, name, strings.Join(im.Names(), ", "))
		}
	}
	if !found {
		return fmt.Errorf("no MCP client configuration found: name a file, as in 'mcp-bridge import FILE'. Looked at:\n  %s", strings.Join(seen, "\n  "))
	}
	fmt.Fprintln(stdout, "\nTo import: mcp-bridge import CLIENT -o bridge.yaml")
	return nil
}
