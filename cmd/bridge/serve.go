package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// defaultFile is read when no file is named.
const defaultFile = "bridge.yaml"

func newServe(l *logFlags, stdout, stderr io.Writer) *cobra.Command {
	var file, listen string
	cmd := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Serve everything in a configuration file",
		Long: `serve publishes the servers of a configuration file, each at /NAME/mcp and
/NAME/sse, until it gets SIGTERM or SIGINT. The file is YAML or JSON, or the
mcpServers file of a desktop client as it is.`,
		Example: `  bridge serve
  bridge serve -c bridge.yaml --listen 127.0.0.1:0
  bridge serve -c claude_desktop_config.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(file)
			if err != nil {
				return err
			}
			if listen != "" {
				c.Listen = listen
			}
			return serve(cmd.Context(), c, l, stdout, stderr)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultFile, "configuration file")
	cmd.Flags().StringVar(&listen, "listen", "", "address to serve on, instead of the file's; port 0 picks a free one and prints it")
	return cmd
}

func newCheck(stdout io.Writer) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check [-c FILE]",
		Short: "Read a configuration file and report every fault",
		Long:  `check reports every fault of a configuration file with its line. It connects to nothing and starts nothing.`,
		Example: `  bridge check
  bridge check -c bridge.yaml && bridge serve -c bridge.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := load(file)
			if err != nil {
				return err
			}
			for _, w := range c.Warnings {
				fmt.Fprintln(stdout, "warning:", w)
			}
			fmt.Fprintf(stdout, "%s is good: %s on %s\n", file, count(len(c.Servers), "server"), c.Listen)
			for _, s := range c.Servers {
				fmt.Fprintf(stdout, "  %s\tstdio, share: %s\n", s.Name, s.Share)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", defaultFile, "configuration file")
	return cmd
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but got %q (see 'bridge %s --help')", cmd.Name(), args, cmd.Name())}
	}
	return nil
}

func load(file string) (*config.Config, error) {
	c, err := config.Load(file, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, usageError{fmt.Errorf("%w: name a file with -c, or use 'bridge run -- COMMAND', which needs none", err)}
	case err != nil:
		return nil, usageError{fmt.Errorf("the configuration has faults:\n%w", err)}
	}
	return c, nil
}

// serve serves the configuration until ctx ends.
func serve(ctx context.Context, c *config.Config, l *logFlags, stdout, stderr io.Writer) error {
	log, err := l.logger(stderr)
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	for _, w := range c.Warnings {
		log.Warn(w)
	}
	if !config.Loopback(c.Listen) {
		log.Warn("listening beyond loopback without access rules: anyone who reaches the address can use every server", "listen", c.Listen)
	}
	limitMemory(log)
	s := server.New(c, log)
	ln, err := s.Listen(ctx)
	if err != nil {
		s.Close(ctx)
		return err
	}
	announce(stdout, c, ln.Addr())
	var wg sync.WaitGroup
	defer wg.Wait()
	quiet, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { releaseMemory(quiet, s.Bridge().Activity, debug.FreeOSMemory) })
	return s.Serve(ctx, ln)
}

// announce prints where the servers are, and what to paste into a client.
func announce(w io.Writer, c *config.Config, at net.Addr) {
	host, port, err := net.SplitHostPort(at.String())
	if err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
	}
	base := "http://" + net.JoinHostPort(host, port) + c.BasePath
	type client struct {
		Type string `json:"type"`
		URL  string `json:"url"`
	}
	clients := map[string]client{}
	for _, s := range c.Servers {
		url := base + "/" + s.Name
		if len(c.Servers) == 1 {
			url = base
		}
		fmt.Fprintf(w, "%s: %s/mcp (Streamable HTTP), %s/sse (HTTP+SSE)\n", s.Name, url, url)
		clients[s.Name] = client{"http", url + "/mcp"}
	}
	paste, err := json.MarshalIndent(map[string]any{"mcpServers": clients}, "", "  ")
	if err == nil {
		fmt.Fprintf(w, "\nFor a client's configuration:\n%s\n", paste)
	}
}
