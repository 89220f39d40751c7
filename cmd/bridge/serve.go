package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/bridge/list/filter"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/bridge/visible"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
	"github.com/mcp-bridge/bridge/config"
)

func newServe(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	var file, listen string
	var insecure bool
	cmd := &cobra.Command{
		Use:   "serve [-c FILE]",
		Short: "Serve everything in a configuration file",
		Long: `serve publishes the servers of a configuration file until it gets SIGTERM or
SIGINT: each at /NAME/mcp and /NAME/sse, and all of them as one at /mcp and
/sse. The file is YAML or JSON, or the mcpServers file of a desktop client as
it is.`,
		Example: `  bridge serve
  bridge serve -c bridge.yaml --listen 127.0.0.1:0
  bridge serve -c claude_desktop_config.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Load(file)
			if err != nil {
				return err
			}
			if listen != "" {
				c.Listen = listen
			}
			if err := refuseOpen(c, insecure, "add access: to the configuration"); err != nil {
				return err
			}
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), c, log, stdout)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	addInsecureFlag(cmd.Flags(), &insecure)
	cmd.Flags().StringVar(&listen, "listen", "", "address to serve on, instead of the file's; port 0 picks a free one and prints it")
	return cmd
}

func newCheck(stdout io.Writer) *cobra.Command {
	var file, tools string
	cmd := &cobra.Command{
		Use:   "check [-c FILE] [--tools NAME]",
		Short: "Read a configuration file and report every fault",
		Long: `check reports every fault of a configuration file with its line. It connects to
nothing and starts nothing. Of HTTP APIs (rest) it reads the documents that are
files, and tells what becomes of them; with --tools also why a tool is as it is:
each line of it with the place that it comes from.`,
		Example: `  bridge check
  bridge check --tools "get_*"
  bridge check -c bridge.yaml && bridge serve -c bridge.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Load(file)
			if err != nil {
				return err
			}
			warnings, sums, lost, err := examine(cmd.Context(), file, tools, c)
			if err != nil {
				return err
			}
			for _, w := range append(c.Warnings, warnings...) {
				fmt.Fprintln(stdout, "warning:", visible.Text(w))
			}
			verdict := "is good"
			if lost != nil {
				verdict = "loses operations"
			}
			fmt.Fprintf(stdout, "%s %s: %s on %s%s\n", file, verdict, count(len(c.Servers), "server"), c.Listen, doors(c))
			for _, s := range c.Servers {
				fmt.Fprintf(stdout, "  %s\t%s\n", s.Name, strings.Join(summary(&s, len(c.Servers) > 1), ", "))
				if sum := sums[s.Name]; sum != "" {
					fmt.Fprintf(stdout, "  \t%s\n", sum)
				}
			}
			if lost != nil {
				return exit.Usagef("%s: %w", file, lost)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	cmd.Flags().StringVar(&tools, "tools", "", "explain the tools of HTTP APIs that are called so, or whose operation or key under tools is; * stands for anything")
	return cmd
}

// doors says how the address is protected: whether by TLS, and who may call.
func doors(c *config.Config) string {
	text := ""
	if c.TLS.CertFile != "" {
		text += ", HTTPS"
	}
	var names []string
	for _, a := range c.Access {
		names = append(names, a.Name)
	}
	if len(names) > 0 {
		text += ", access: " + strings.Join(names, " ")
	}
	return text
}

// summary says in short what is configured for a server, beside what has its
// default. The URL is without its query, which may hold secrets.
func summary(s *config.Server, several bool) []string {
	kind, address := "stdio", ""
	switch {
	case s.Rest != nil:
		kind, address = "rest", s.Rest.BaseURL
		if address == "" {
			address = s.Rest.OpenAPI
		}
	case s.SSE != nil:
		kind, address = "sse", s.SSE.URL
	case s.HTTP != nil:
		kind, address = "http", s.HTTP.URL
	}
	if u, err := url.Parse(address); err == nil && address != "" {
		kind += " " + (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	all := []string{kind, "share: " + s.Share}
	switch {
	case several && s.Prefix == "":
		all = append(all, "no prefix")
	case several:
		all = append(all, "prefix: "+s.Prefix)
	}
	for _, f := range s.Forward {
		all = append(all, "forward: "+f.From+" as "+f.To)
	}
	if s.Era != config.EraAuto {
		all = append(all, "era: "+s.Era)
	}
	if s.Offer == config.OfferLegacy {
		all = append(all, "offer: "+s.Offer)
	}
	if s.Revision != "" {
		all = append(all, "revision: "+s.Revision)
	}
	if s.Ping > 0 {
		all = append(all, "ping: "+s.Ping.String())
	}
	for _, f := range []struct {
		what string
		filter.Rules
	}{{"tools", s.Tools}, {"prompts", s.Prompts}, {"resources", s.Resources}} {
		var parts []string
		for _, part := range []struct {
			key string
			n   int
		}{{"allow", len(f.Allow)}, {"deny", len(f.Deny)}, {"rename", len(f.Rename)}, {"override", len(f.Override)}} {
			if part.n > 0 {
				parts = append(parts, fmt.Sprint(part.key, " ", part.n))
			}
		}
		if len(parts) > 0 {
			all = append(all, f.what+": "+strings.Join(parts, " and "))
		}
	}
	return all
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if n >= 1000 {
		return fmt.Sprintf("%d,%03d %ss", n/1000, n%1000, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("%s takes no arguments, but got %q (see 'bridge %s --help')", cmd.Name(), args, cmd.Name())
	}
	return nil
}

// begin makes the server of a configuration. Until stop, it gives memory back
// when there is little to do.
func begin(ctx context.Context, c *config.Config, log *slog.Logger) (s *server.Server, stop func(), err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	for _, w := range c.Warnings {
		log.Warn(w)
	}
	p, flush, err := traces(ctx, log, os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	if p != nil {
		c.Traces = p
	}
	limitMemory(log)
	lower := raiseHeapFloor()
	s = server.New(c, log)
	var wg sync.WaitGroup
	quiet, cancel := context.WithCancel(ctx)
	wg.Go(func() { releaseMemory(quiet, s.Bridge().Activity, shrink) })
	return s, func() {
		cancel()
		wg.Wait()
		lower()
		flush()
	}, nil
}

// serve serves the configuration until ctx ends.
func serve(ctx context.Context, c *config.Config, log *slog.Logger, stdout io.Writer) error {
	s, stop, err := begin(ctx, c, log)
	if err != nil {
		return err
	}
	defer stop()
	if c.Open() {
		log.Warn("listening beyond loopback without access rules: anyone who reaches the address can use every server", "listen", c.Listen)
	}
	ln, err := s.Listen(ctx)
	if err != nil {
		s.Close(ctx)
		return err
	}
	announce(stdout, c, ln.Addr())
	return s.Serve(ctx, ln)
}

// addInsecureFlag adds the flag without which nothing is served to everybody.
func addInsecureFlag(f *pflag.FlagSet, insecure *bool) {
	f.BoolVar(insecure, "insecure", false, "serve beyond loopback without access rules, to whoever reaches the address")
}

// refuseOpen refuses to serve to whoever reaches the address, unless that is
// asked for. rules says how to make access rules.
func refuseOpen(c *config.Config, insecure bool, rules string) error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil || insecure || !c.Open() {
		return nil // what is no address is refused as that
	}
	return exit.Usagef("listen is %s, which other machines can reach, and without access rules anyone there could use every server: %s, listen on 127.0.0.1, or pass --insecure", c.Listen, rules)
}

// announce prints where the servers are, and what to paste into a client.
func announce(w io.Writer, c *config.Config, at net.Addr) {
	host, port, err := net.SplitHostPort(at.String())
	if err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
	}
	scheme := "http"
	if c.TLS.CertFile != "" {
		scheme = "https"
	}
	base := scheme + "://" + net.JoinHostPort(host, port) + c.BasePath
	type client struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	var headers map[string]string
	if len(c.Access) > 0 {
		headers = map[string]string{"Authorization": "Bearer YOUR-KEY"}
	}
	clients := map[string]client{}
	endpoints := func(name, url string) {
		fmt.Fprintf(w, "%s: %s/mcp (Streamable HTTP), %s/sse (HTTP+SSE)\n", name, url, url)
	}
	if len(c.Servers) > 1 {
		endpoints("all servers as one", base)
	}
	for _, s := range c.Servers {
		url := base + "/" + s.Name
		if len(c.Servers) == 1 {
			url = base
		}
		endpoints(s.Name, url)
		clients[s.Name] = client{"http", url + "/mcp", headers}
	}
	paste, err := json.MarshalIndent(map[string]any{"mcpServers": clients}, "", "  ")
	if err == nil {
		fmt.Fprintf(w, "\nFor a client's configuration:\n%s\n", paste)
	}
}
