package flags

import (
	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/config"
)

// values lists the values of flags that have few values, for completion in shells.
var values = map[string][]string{
	"share":      {config.ShareSession, config.SharePrincipal, config.ShareCall, config.ShareAll},
	"era":        {config.EraAuto, config.EraLegacy, config.EraModern},
	"offer":      {config.OfferAll, config.OfferLegacy},
	"transport":  {remote.TransportAuto, remote.TransportStreamable, remote.TransportSSE},
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"auto", "text", "json"},
}

// Complete registers completions for the flags of a command and its subcommands, and for arguments that are names of
// servers.
func Complete(c *cobra.Command) {
	for name, all := range values {
		if c.LocalFlags().Lookup(name) != nil {
			_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		}
	}
	switch c.Name() {
	case "tools", "call", "prompts", "resources", "connect":
		c.ValidArgsFunction = servers
	}
	for _, sub := range c.Commands() {
		Complete(sub)
	}
}

// servers completes the first argument with the names of servers in the configuration file.
func servers(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file, err := c.Flags().GetString("config")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	conf, err := config.Load(file, nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault // the argument may be a document
	}
	var names []string
	for _, s := range conf.Servers {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveDefault
}
