package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/memory"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cut"
)

func newConnect(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	return newConnectOn(l, stdout, stderr, func(f any) bool {
		is, _ := terminal.Is(f)
		return is
	})
}

// newConnectOn is newConnect with a replaceable check for terminals.
func newConnectOn(l *flags.Log, stdout, stderr io.Writer, isTerminal func(any) bool) *cobra.Command {
	var offer string
	var target flags.Target
	var limits flags.Limits
	cmd := &cobra.Command{
		Use:        "connect [flags] [TARGET | -- COMMAND [ARGS...]]",
		SuggestFor: []string{"proxy"},
		Short:      "Use any server from a stdio client (Claude Desktop, Cursor)",
		Long: `connect is for clients that can only start programs. It is a stdio server that
passes everything on to another server. In a client's configuration:

  "tools": { "command": "mcp-bridge",
             "args": ["connect", "https://tools.example.com/mcp"] }

TARGET is a URL, the path or the URL of an OpenAPI document, or the name of a server
in the configuration file. Without TARGET, the client gets all servers of the file
as one. For a program write -- COMMAND: the bridge then translates revisions.

connect speaks MCP on stdin and stdout, and logs to stderr. When the client closes
stdin, connect and everything that it started end.

If the server at URL wants a sign-in, the bridge opens a browser, if there is one;
otherwise run 'mcp-bridge login URL' first. With --device, the client gets an error
with an address that you can open on any device. In a --header, ${NAME} becomes the value
of that variable, which keeps it out of the list of processes.`,
		Example: `  mcp-bridge connect https://tools.example.com/mcp
  mcp-bridge connect https://tools.example.com/mcp -H 'X-Api-Key: ${KEY}'
  mcp-bridge connect ./openapi.yaml
  mcp-bridge connect search -c bridge.yaml
  mcp-bridge connect -- npx -y @modelcontextprotocol/server-everything
  mcp-bridge connect`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 && cmd.ArgsLenAtDash() != 0 && flags.IsURL(args[0]) {
				return exit.Usagef("connect takes one target, but got %d: for several servers write a configuration file, and 'mcp-bridge connect -c FILE'", len(args))
			} else if len(args) > 1 && cmd.ArgsLenAtDash() != 0 {
				return exit.Usagef("connect takes one target, but got %d: write a program behind --, as in 'mcp-bridge connect -- %s'", len(args), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			settings := func() (*config.Config, error) {
				kind, err := target.Kind(cmd.Context(), args, cmd.ArgsLenAtDash() == 0)
				if err != nil {
					return nil, err
				}
				c, err := target.Config(kind, args)
				if err != nil {
					return nil, err
				}
				switch ask := asking(stderr, isTerminal(stderr)); kind {
				case flags.OfFile:
					if c.AccessLog.To == "stdout" {
						return nil, exit.Usagef("%s: access_log: to is stdout, which is the client's here: name stderr or a file", target.File)
					}
					c.Access = nil // access rules are for clients over the network
					askOf(c, ask)
				case flags.OfURL:
					log = hinting(log)
					if err := target.SignIn.On(c.Servers[0].HTTP, ask, deviceOn(stderr), true); err != nil {
						return nil, err
					}
				}
				for i := range c.Servers {
					limits.Over(cmd.Flags(), &c.Servers[i])
				}
				if cmd.Flags().Changed("offer") {
					c.Offer = gateway.Offer(offer)
				}
				c.Cluster = config.Cluster{} // a bridge for one client is not an instance of a cluster (S-003)
				return c, nil
			}
			var s *server.Server
			var stop func()
			c, fault := settings()
			if fault == nil {
				s, stop, fault = begin(cmd.Context(), c, log)
			}
			if fault != nil {
				if isTerminal(cmd.InOrStdin()) {
					return fault
				}
				fmt.Fprintln(stderr, "mcp-bridge:", fault)
				if s, stop, err = begin(cmd.Context(), explaining(fault), log); err != nil {
					return err
				}
			}
			defer stop()
			defer s.Close(context.Background())
			if isTerminal(stderr) {
				fmt.Fprintln(stderr, "mcp-bridge: waiting for a client on stdin. Clients start this command, not people. Ctrl-C ends it.")
			}
			// The empty name means the aggregate or the only server.
			err = s.ServeStdio(cmd.Context(), "", cmd.InOrStdin(), stdout)
			if fault != nil {
				return printed(fault)
			}
			if cmd.Context().Err() != nil {
				return nil // a signal ended the bridge
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&target.File, "config", "c", flags.DefaultFile, "configuration file")
	target.Add(cmd)
	target.SignIn.Add(f)
	addOfferFlag(f, &offer)
	limits.Add(f)
	return cmd
}

// explaining returns a configuration whose only server answers initialize with the fault. Otherwise, clients would only
// show that the program has ended.
func explaining(fault error) *config.Config {
	c := config.Default()
	one := config.DefaultServer("mcp-bridge", "")
	one.Adapter, one.Breaker.Off = faulty{fault}, true
	c.Servers = []config.Server{one}
	c.Fit(memory.Most())
	return &c
}

// printed returns the error that ends the program with the code of the fault, and prints nothing more.
func printed(fault error) error {
	if e, ok := errors.AsType[exit.Error](fault); ok {
		return exit.With(e.Code, nil)
	}
	return exit.With(exit.Failure, nil)
}

// maxFault bounds the text of a fault for a client, in bytes. stderr has the whole text.
const maxFault = 2 << 10

// faulty is the adapter of a server that cannot be served.
type faulty struct{ err error }

var _ bridge.Adapter = faulty{}

func (f faulty) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return nil, &bridge.Error{Kind: bridge.ErrUnavailable, Public: cut.Head([]byte(f.err.Error()), maxFault)}
}
