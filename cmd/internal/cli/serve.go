package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/memory"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

func newServe(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	var file string
	var listen flags.Listen
	var insecure, asJSON bool
	cmd := &cobra.Command{
		Use:        "serve [FILE]",
		SuggestFor: []string{"start", "up"},
		Short:      "Serve all servers of a file",
		Long: `serve serves the servers of a configuration file: each at /NAME/mcp and
/NAME/sse, and all of them as one at /mcp and /sse. Ctrl-C or SIGTERM stops it.

When the file changes, serve reads it again, without a restart. Servers that have
not changed notice nothing, and a file with a fault changes nothing. SIGHUP and
'mcp-bridge reload' make it read the file, too.

Documents of HTTP APIs (rest) that are files are read first: serve refuses what
'mcp-bridge check' refuses. Documents at URLs, and a catalogue file that comes
later, are read in the background, again and again until that succeeds; until
then, the API is not ready.

FILE is YAML or JSON, or the mcpServers file of a desktop client as it is. The
default is bridge.yaml.`,
		Example: `  mcp-bridge serve
  mcp-bridge serve bridge.yaml --listen 127.0.0.1:0
  mcp-bridge serve claude_desktop_config.json`,
		Args: fileArg(&file),
		RunE: func(cmd *cobra.Command, _ []string) error {
			read := func() (*config.Config, error) {
				c, err := flags.Load(file)
				if err != nil {
					return nil, err
				}
				if c.Listen, err = listen.Over(c.Listen); err != nil {
					return nil, err
				}
				c.Flags = map[string]string{"listen": listen.Given()}
				c.LogLevel, c.Flags["log_level"] = l.Over(c.LogLevel)
				return c, refuseOpen(c, insecure, "add access: to the configuration")
			}
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			manager := newManager(log)
			again := reload.New(reload.Options{
				File:    file,
				Load:    read,
				Log:     log,
				Began:   manager.reloading,
				Applied: func(c *config.Config) { l.Follow(c.LogLevel) },
			})
			c, err := again.Load()
			if err != nil {
				return err
			}
			l.Follow(c.LogLevel)
			return serve(cmd.Context(), c, log, stdout, asJSON, manager, again, nil)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	addInsecureFlag(cmd.Flags(), &insecure)
	listen.Add(cmd.Flags(), "default: that of the file")
	addJSONFlag(cmd.Flags(), &asJSON)
	return cmd
}

func newCheck(stdout io.Writer) *cobra.Command {
	var file, tools, against string
	at := asked{timeout: reloadTimeout}
	var insecure, asks bool
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE] [--tools NAME]",
		Short: "Validate a configuration file",
		Long: `check reports every fault of a configuration file, with its line. It refuses what
serve refuses, such as an address beyond loopback without access rules or --insecure.
It connects to nothing and starts nothing, unless a flag says so.

For HTTP APIs (rest) it reads the documents that are files, and says how many tools
they become. --tools NAME explains each setting of a tool, and where it comes from.

--against URL asks a bridge that serves the same file what a reload would change
there. It changes nothing.

--online asks the issuers of tokens (oauth) for their metadata and keys. It prints
what is wrong with them, what their clients need, and which addresses tokens must
be for.`,
		Example: `  mcp-bridge check
  mcp-bridge check --online
  mcp-bridge check --tools "get_*"
  mcp-bridge check --json bridge.yaml
  mcp-bridge check bridge.yaml --against http://127.0.0.1:8808
  mcp-bridge check bridge.yaml && mcp-bridge serve bridge.yaml`,
		Args: fileArg(&file),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && tools != "" {
				return exit.Usagef("--tools explains in words: leave out --json")
			} else if asJSON && asks {
				return exit.Usagef("--online explains in words: leave out --json")
			} else if asJSON && against != "" {
				return exit.Usagef("--against: for JSON use 'mcp-bridge reload --check --json'")
			}
			c, faults, err := flags.LoadSound(file)
			var warnings []string
			var sums map[string]string
			var lost, open error
			if err == nil {
				warnings, sums, lost, err = examine(cmd.Context(), file, tools, c, faults)
			}
			if len(faults) > 0 {
				c = nil // the configuration is incomplete
			} else if c != nil {
				open = refuseOpen(c, insecure, "add access: to the configuration")
			}
			if asJSON {
				return checkJSON(stdout, file, c, warnings, err, lost, open)
			} else if err != nil {
				return exit.Usagef("%w", errors.Join(err, lost, open))
			}
			for _, w := range append(c.Warnings, warnings...) {
				fmt.Fprintln(stdout, "warning:", sanitize.Text(w))
			}
			verdict := "is good"
			switch {
			case lost != nil:
				verdict = "loses operations"
			case open != nil:
				verdict = "would not be served"
			}
			fmt.Fprintf(stdout, "%s %s: %s on %s%s\n", file, verdict, count(len(c.Servers), "server"), c.Listen, protection(c))
			width := 0
			for _, s := range c.Servers {
				width = max(width, len(s.Name))
			}
			for _, s := range c.Servers {
				fmt.Fprintf(stdout, "  %-*s  %s\n", width, s.Name, strings.Join(summary(&s, len(c.Servers) > 1), ", "))
				if sum := sums[s.Name]; sum != "" {
					fmt.Fprintf(stdout, "  %-*s  %s\n", width, "", sum)
				}
			}
			if lost != nil {
				return exit.Usagef("%s: %w", file, lost)
			}
			if open != nil {
				return open
			}
			if asks {
				if err := online(cmd.Context(), stdout, c); err != nil {
					return err
				}
			}
			if against == "" {
				return nil
			}
			return at.against(cmd.Context(), stdout, file, against)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", flags.DefaultFile, "configuration file")
	cmd.Flags().StringVar(&against, "against", "", "print what the file would change at the bridge at this URL")
	at.reach.Add(cmd.Flags(), "your key of the bridge")
	addInsecureFlag(cmd.Flags(), &insecure)
	cmd.Flags().BoolVar(&asks, "online", false, "request metadata and keys of the issuers of tokens")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON document")
	cmd.Flags().StringVar(&tools, "tools", "", "explain the tools of REST APIs with this name, operation or key under tools; * stands for any text")
	return cmd
}

// checkJSON prints the result of a check as JSON. errs are the faults.
func checkJSON(w io.Writer, file string, c *config.Config, warnings []string, errs ...error) error {
	type fault struct {
		File    string `json:"file,omitempty"`
		Line    int    `json:"line,omitempty"` // 0 means the whole file
		Message string `json:"message"`
	}
	out := struct {
		File     string              `json:"file"`
		Good     bool                `json:"good"`
		Faults   []fault             `json:"faults"`
		Warnings []string            `json:"warnings"`
		Servers  map[string][]string `json:"servers"`
	}{file, errors.Join(errs...) == nil, []fault{}, []string{}, map[string][]string{}}
	said := map[string]bool{} // faults, which may also be in the warnings
	for _, err := range errs {
		if faults, ok := errors.AsType[config.Faults](err); ok {
			for _, f := range faults {
				out.Faults = append(out.Faults, fault{f.File, f.Line, f.Message})
				said[f.String()] = true
			}
		} else if err != nil {
			out.Faults = append(out.Faults, fault{Message: err.Error()})
		}
	}
	if c != nil {
		for _, w := range append(slices.Clone(c.Warnings), warnings...) {
			if !said[w] {
				out.Warnings = append(out.Warnings, w)
			}
		}
		for i := range c.Servers {
			out.Servers[c.Servers[i].Name] = summary(&c.Servers[i], len(c.Servers) > 1)
		}
	}
	text, _ := json.MarshalIndent(out, "", "  ") // every value in it can be marshalled
	if _, werr := fmt.Fprintln(w, string(sanitize.JSON(text))); werr != nil || out.Good {
		return werr
	}
	return exit.With(exit.Usage, nil)
}

// protection describes the protection of the address by TLS and access rules.
func protection(c *config.Config) string {
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

// summary lists the settings of a server that differ from the defaults. The URL has no query, because a query may
// contain secrets.
func summary(s *config.Server, several bool) []string {
	kind, address := "stdio", ""
	switch {
	case s.Rest != nil:
		kind, address = "rest", cmp.Or(s.Rest.BaseURL, s.Rest.OpenAPI)
	case s.SSE != nil:
		kind, address = "sse", s.SSE.URL
	case s.HTTP != nil:
		kind, address = "http", s.HTTP.URL
	}
	if u, err := url.Parse(address); err == nil && address != "" {
		kind += " " + (&url.URL{
			Scheme: u.Scheme,
			Host:   u.Host,
			Path:   u.Path,
		}).String()
	}
	all := []string{kind, "share: " + string(s.Share)}
	switch {
	case several && s.Prefix == "":
		all = append(all, "no prefix")
	case several:
		all = append(all, "prefix: "+s.Prefix)
	}
	for _, f := range s.Forward {
		all = append(all, "forward: "+f.From+" as "+f.To)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Identity)) {
		all = append(all, "identity: "+s.Identity[name]+" as "+name)
	}
	if s.Era != config.EraAuto {
		all = append(all, "era: "+s.Era)
	}
	if s.Offer == config.OfferLegacy {
		all = append(all, "offer: "+string(s.Offer))
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
		if f.InlineRefs {
			parts = append(parts, "inline_refs")
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

// fileArg accepts the configuration file as the only argument, instead of -c.
func fileArg(file *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return exit.Usagef("%s takes one file, but got %q (see 'mcp-bridge %[1]s --help')", cmd.Name(), args)
		case len(args) == 1 && cmd.Flags().Changed("config"):
			return exit.Usagef("name the file as an argument or with -c, not both")
		case len(args) == 1:
			*file = args[0]
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("%s takes no arguments, but got %q (see 'mcp-bridge %s --help')", cmd.Name(), args, cmd.Name())
	}
	return nil
}

// telemetry sets the traces and metrics of a bridge as the environment describes them. flush sends the last traces and
// metrics.
func telemetry(ctx context.Context, c *config.Config, log *slog.Logger) (flush func(), err error) {
	m, lastValues, err := newMeters(ctx, log) // failures of traces without an exporter are logged last
	if err != nil {
		return nil, err
	}
	t, lastSpans, err := traces(ctx, log, os.Stderr)
	if err != nil {
		lastValues()
		return nil, err
	}
	if m != nil {
		c.Meters = m
	}
	if t != nil {
		c.Traces = t
	}
	return func() {
		var wg sync.WaitGroup
		wg.Go(lastValues)
		wg.Go(lastSpans)
		wg.Wait()
	}, nil
}

// begin returns the server for a configuration. Until stop is called, begin releases memory when the bridge is idle.
func begin(ctx context.Context, c *config.Config, log *slog.Logger) (s *server.Server, stop func(), err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, exit.With(exit.Usage, flags.Named(err, ""))
	}
	for _, w := range c.Warnings {
		log.Warn(w)
	}
	flush, err := telemetry(ctx, c, log)
	if err != nil {
		return nil, nil, err
	}
	memory.Limit(log)
	if why := c.Fitted(); why != "" {
		log.Info(why, "bytes", int64(c.MaxInFlight), "max_message", int64(c.MaxMessage))
	}
	lower := memory.RaiseFloor()
	s = server.New(c, log)
	if faults, ok := errors.AsType[config.Faults](s.Fault()); ok {
		s.Close(ctx)
		lower()
		flush()
		if faults[0].File == "" { // the configuration comes from flags
			return nil, nil, exit.With(exit.Usage, flags.Named(faults, ""))
		}
		return nil, nil, exit.Usagef("the configuration has faults:\n%w", faults)
	}
	var wg sync.WaitGroup
	quiet, cancel := context.WithCancel(ctx)
	wg.Go(func() { memory.Release(quiet, s.Activity, memory.Shrink) })
	return s, func() {
		cancel()
		wg.Wait()
		lower()
		flush()
	}, nil
}

// serve serves the configuration until ctx ends. again reloads the configuration, and is nil without a file. then,
// which may be nil, is called once clients are served. The context of then ends before the server ends.
func serve(ctx context.Context, c *config.Config, log *slog.Logger, stdout io.Writer, asJSON bool, m *manager, again *reload.Reloader, then func(context.Context, *server.Server)) error {
	s, stop, err := begin(ctx, c, log)
	if err != nil {
		return err
	}
	defer stop()
	if c.Open() {
		log.Warn("listening beyond loopback without access rules: anyone who reaches the address can use every server", "listen", c.Listen)
	}
	if again != nil {
		s.Reloads(again)
	}
	ln, err := s.Listen(ctx)
	if err != nil {
		s.Close(ctx)
		return err
	}
	serving, done := context.WithCancel(ctx)
	defer hangups(serving, log, again)()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer done()
	wg.Go(func() {
		if begun(serving, s, m) {
			is, _ := terminal.Is(stdout)
			announce(stdout, c, ln.Addr(), s.ConsoleAddr(), asJSON, is || again == nil)
			if o, ok := stdout.(*terminal.Output); ok { // people look for the addresses first
				o.Settle()
			}
			m.ready(func() string { return count(len(s.Status()), "server") + " on " + ln.Addr().String() })
			if then != nil {
				then(serving, s)
			}
		}
	})
	defer context.AfterFunc(ctx, m.stopping)()
	return s.Serve(ctx, ln)
}

// begun waits until clients are served. If ctx ends first, it returns false.
func begun(ctx context.Context, s *server.Server, m *manager) bool {
	every := time.NewTicker(stillWaiting)
	defer every.Stop()
	for {
		select {
		case <-s.Serving():
			return true
		case <-ctx.Done():
			return false
		case <-every.C:
			m.waiting()
		}
	}
}

func addInsecureFlag(f *pflag.FlagSet, insecure *bool) {
	f.BoolVar(insecure, "insecure", false, "serve other machines without access rules: anyone can use every server")
}

// refuseOpen refuses to listen beyond loopback without access rules, unless insecure is set. rules is a text that says
// how to add access rules.
func refuseOpen(c *config.Config, insecure bool, rules string) error {
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil || insecure || !c.Open() {
		return nil // a malformed address fails elsewhere
	}
	return exit.Usagef("listen is %s, which other machines can reach, and without access rules anyone there could use every server: %s, listen on 127.0.0.1:%s, or pass --insecure", c.Listen, rules, port)
}

// addJSONFlag adds --json, for scripts that start the bridge.
func addJSONFlag(f *pflag.FlagSet, asJSON *bool) {
	f.BoolVar(asJSON, "json", false, "print the addresses as one line of JSON when they can be used")
}

// urlOf returns the URL of a bridge that listens at at, for programs on this machine.
func urlOf(c *config.Config, at net.Addr) string {
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
	return scheme + "://" + net.JoinHostPort(host, port) + c.BasePath
}

// announce prints the addresses as JSON, or the addresses as text, with paste followed by a configuration for clients.
// Without a terminal, the servers of a file need no such configuration. operators is the address for operators; nil
// means at.
func announce(w io.Writer, c *config.Config, at, operators net.Addr, asJSON, paste bool) {
	base := urlOf(c, at)
	type client struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	var headers map[string]string
	keyed := slices.ContainsFunc(c.Access, func(a config.Access) bool { return a.Token != "" || a.TokenFile != "" })
	if keyed { // a client with a fixed header does not sign in
		headers = map[string]string{"Authorization": "Bearer YOUR-KEY"}
	}
	type address struct {
		Name string `json:"name,omitempty"`
		MCP  string `json:"mcp"`
		SSE  string `json:"sse"`
	}
	var said struct {
		Listen  string    `json:"listen"`
		All     *address  `json:"all,omitempty"`
		Servers []address `json:"servers"`
		Console string    `json:"console_listen,omitempty"`
	}
	said.Listen = at.String()
	if operators != nil {
		said.Console = operators.String()
	}
	clients := map[string]client{}
	endpoints := func(name, url string) {
		if asJSON {
			return
		}
		fmt.Fprintf(w, "%s: %s/mcp (Streamable HTTP), %s/sse (HTTP+SSE)\n", name, url, url)
	}
	if len(c.Servers) > 1 {
		endpoints("all servers as one", base)
		said.All = &address{"", base + "/mcp", base + "/sse"}
	}
	for _, s := range c.Servers {
		url := base + "/" + s.Name
		if len(c.Servers) == 1 {
			url = base
		}
		endpoints(s.Name, url)
		clients[s.Name] = client{"http", url + "/mcp", headers}
		said.Servers = append(said.Servers, address{s.Name, url + "/mcp", url + "/sse"})
	}
	if asJSON {
		_ = json.NewEncoder(w).Encode(said) // stdout may be closed
		return
	}
	if server.HasConsole(c) {
		fmt.Fprintf(w, "console: %s/ui\n", urlOf(c, cmp.Or(operators, at)))
	}
	if text, err := json.MarshalIndent(map[string]any{"mcpServers": clients}, "", "  "); err == nil && paste {
		hint := ""
		if len(c.Servers) > 1 {
			hint = ", or one entry with " + base + "/mcp for all of them"
		}
		fmt.Fprintf(w, "\nFor a client's configuration%s:\n%s\n", hint, text)
		switch {
		case len(c.OAuth) == 0:
		case keyed:
			fmt.Fprintln(w, "Clients whose users sign in need no headers: leave them out.")
		default:
			fmt.Fprintln(w, "Clients sign in by themselves: they need no key.")
		}
	}
}
