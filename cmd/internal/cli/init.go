package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/imports"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/docs"
	"github.com/mcp-bridge/bridge/internal/files"
)

// schemaLine names the JSON schema, for editors.
const schemaLine = "# yaml-language-server: $schema=https://raw.githubusercontent.com/mcp-bridge/bridge/main/docs/bridge.schema.json\n"

const starter = schemaLine + `# What a key means: docs/configuration.md. Check this file with: mcp-bridge check

# Where to listen. Beyond 127.0.0.1 it needs access: rules.
listen: 127.0.0.1:8808

# Who may call. Without it, every program of this machine.
# access:
#   - { name: me, token: "${BRIDGE_TOKEN}" } # at least 16 characters
#   - { name: staff, claims: { groups: mcp-users } } # users with tokens of oauth

# The identity provider of users: docs/identity.md.
# public_url: https://mcp.example.com # where clients reach this bridge
# oauth: [{ issuer: "https://idp.example.com" }]

# Each server is at http://127.0.0.1:8808/NAME/mcp, and all as one at /mcp.
%s
# Other kinds of servers:
#   search:
#     http: { url: https://tools.example.com/mcp, headers: { Authorization: "Bearer ${SEARCH_TOKEN}" } }
#   pets:
#     rest: { openapi: ./openapi.yaml } # an HTTP API: its operations become tools
# What a server of kind stdio may use of your environment:
#     stdio: { command: npx, args: [some-server], env_pass: ["AWS_*"], env: { LOG: debug } }
`

func newInit(stdout io.Writer) *cobra.Command {
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "init [-- COMMAND [ARGS...] | URL]",
		Short: "Create bridge.yaml",
		Long: `init writes bridge.yaml, with comments, and one server: COMMAND, the remote server
at URL, or an example. It asks nothing, and overwrites nothing without --force.`,
		Example: `  mcp-bridge init
  mcp-bridge init -- npx -y @modelcontextprotocol/server-filesystem .
  mcp-bridge init https://tools.example.com/mcp`,
		RunE: func(_ *cobra.Command, args []string) error {
			from := "the command line"
			if len(args) == 0 {
				from = ""
				args = []string{"npx", "-y", "@modelcontextprotocol/server-filesystem", "."}
			}
			entry := map[string]any{"command": args[0], "args": args[1:]}
			var s config.Server
			var err error
			if flags.IsURL(args[0]) {
				if len(args) > 1 {
					return exit.Usagef("a URL takes no arguments")
				}
				entry = map[string]any{"url": args[0]}
				s, err = (&flags.Remote{}).Server(args[0], config.ShareSession)
			} else {
				s, err = (&flags.Program{}).Server(args, config.ShareSession)
			}
			if err != nil {
				return err
			}
			text, err := imports.Server(from, s.Name, entry)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if err := writeNew(out, fmt.Appendf(nil, starter, strings.TrimSuffix(string(text), "\n")), force); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "Wrote %s with one server: %s. Next: mcp-bridge serve -c %[1]s\n", out, s.Name)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", flags.DefaultFile, "file to write")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return cmd
}

func newSchema(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of configuration files",
		Long: `schema prints the JSON schema of configuration files. Editors complete and check
keys with it if it is named in the first line of the file:

  # yaml-language-server: $schema=./bridge.schema.json`,
		Example: "  mcp-bridge schema > bridge.schema.json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := stdout.Write(docs.Schema)
			return err
		},
	}
}

// writeNew writes a file that only its owner can read. It replaces an existing file only with force. If the replacement
// fails, the old file stays.
func writeNew(name string, text []byte, force bool) error {
	if info, missing := os.Stat(name); missing == nil && !info.Mode().IsRegular() {
		return exit.Usagef("%s is not a regular file: name another one with -o", name)
	}
	if force {
		return files.Write(name, text)
	}
	err := files.Create(name, text)
	if errors.Is(err, fs.ErrExist) {
		return exit.Usagef("%s already exists: name another file with -o, or overwrite it with --force", name)
	}
	return err
}
