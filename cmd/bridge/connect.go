package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/similar"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
	"github.com/mcp-bridge/bridge/cmd/bridge/terminal"
	"github.com/mcp-bridge/bridge/config"
)

func newConnect(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	return newConnectOn(l, stdout, stderr, func(f any) bool {
		is, _ := terminal.Is(f)
		return is
	})
}

// newConnectOn takes what tells terminals from other files.
func newConnectOn(l *flags.Log, stdout, stderr io.Writer, isTerminal func(any) bool) *cobra.Command {
	var file, era, offer string
	var remote flags.Remote
	cmd := &cobra.Command{
		Use:   "connect [TARGET]",
		Short: "Be a stdio server that passes everything on to another server",
		Long: `connect is the other way round: a client that can only start programs starts
it, and reaches any server through it. TARGET is a URL, or the name of a server
in the configuration file; without it, all servers of the file are one.

It speaks MCP on its stdin and stdout, and logs to stderr. It ends when its
client closes its stdin, and what it has started ends with it. In a client's
configuration it looks like this:

  "tools": { "command": "bridge", "args": ["connect", "https://tools.example.com/mcp"] }

In a --header, ${NAME} is taken from the environment, so that the value does
not stand in the list of processes.`,
		Example: `  bridge connect https://tools.example.com/mcp
  bridge connect https://tools.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  bridge connect search -c bridge.yaml
  bridge connect`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("connect takes one target, but got %d (see 'bridge connect --help')", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			var c *config.Config
			if len(args) > 0 && flags.IsURL(args[0]) {
				if err := useless(cmd, "a server of the file", "config"); err != nil {
					return err
				}
				log = hinting(log)
				c, err = connectURL(args[0], &remote, era)
				if err == nil {
					c.Offer = offer
				}
			} else {
				if err := useless(cmd, "a URL", "header", "transport", "era", "offer"); err != nil {
					return err
				}
				c, err = connectFile(file, cmd.Flags().Changed("config"), args)
			}
			if err != nil {
				return err
			}
			s, stop, err := begin(cmd.Context(), c, log)
			if err != nil {
				return err
			}
			defer stop()
			defer s.Close(context.Background())
			if isTerminal(stderr) {
				fmt.Fprintln(stderr, "bridge: waiting for a client on stdin; to be started by a client, rather than by hand. Ctrl-C ends it.")
			}
			// A client that is gone must not end us before we have stopped what we
			// started: the write then fails, and that is all.
			pipe := make(chan os.Signal, 1)
			signal.Notify(pipe, syscall.SIGPIPE)
			defer signal.Stop(pipe)
			// The empty name means all servers as one, and the only one if there is one.
			err = stdio.Serve(cmd.Context(), s.Bridge(), "", cmd.InOrStdin(), stdout, stdio.DownstreamOptions{Log: log, MaxMessage: int(c.MaxMessage)})
			if cmd.Context().Err() != nil {
				return nil // somebody asked for the end
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	remote.Add(f)
	flags.AddEra(f, &era)
	addOfferFlag(f, &offer)
	return cmd
}

// connectURL makes the configuration of a server that is named by its URL.
func connectURL(address string, remote *flags.Remote, era string) (*config.Config, error) {
	s, err := remote.Server(address, config.ShareSession)
	if err != nil {
		return nil, err
	}
	s.Era = era
	c := config.Default()
	c.Servers, c.Warnings = []config.Server{s}, s.Warnings()
	return &c, nil
}

// connectFile reads the configuration file and leaves the server that is named
// of it, or all.
func connectFile(file string, named bool, target []string) (*config.Config, error) {
	c, err := flags.Load(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named && len(target) > 0:
		return nil, exit.Usagef("%q is no URL, and there is no %s in which it could be the name of a server: name a URL, or a file with -c", target[0], file)
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil, exit.Usagef("there is no target, and no %s whose servers could be meant: name a URL, or a file with -c", file)
	case err != nil:
		return nil, err
	}
	if c.AccessLog.To == "stdout" {
		return nil, exit.Usagef("%s: access_log: to is stdout, which is the client's here: name stderr or a file", file)
	}
	c.Access = nil // they are about those who come over the network
	if len(target) == 0 {
		return c, nil
	}
	var names []string
	for _, s := range c.Servers {
		if s.Name == target[0] {
			c.Servers = []config.Server{s}
			return c, nil
		}
		names = append(names, s.Name)
	}
	return nil, exit.Usagef("%s has no server %q: %s", file, target[0], similar.Hint(target[0], names, "it has none"))
}
