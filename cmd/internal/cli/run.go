package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/memory"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
)

func newRun(l *flags.Log, stdout, stderr io.Writer) *cobra.Command {
	c := config.Default()
	var share, offer string
	var target flags.Target
	var restart, insecure, asJSON bool
	var tokenEnv, name string
	var limits flags.Limits
	var listen flags.Listen
	cmd := &cobra.Command{
		Use:        "run [flags] (-- COMMAND [ARGS...] | URL | OPENAPI)",
		SuggestFor: []string{"proxy", "start"},
		Short:      "Serve one server over HTTP",
		Long: `run serves one MCP server at /mcp (Streamable HTTP) and /sse (HTTP+SSE). Ctrl-C
or SIGTERM stops it when running calls have ended; the second one, at once. At its
start it uses the server once, and logs how many tools that has, or why it fails.

COMMAND is a program that speaks MCP on stdin and stdout. It is started without a
shell, once per client session. Flags of run belong before COMMAND; everything
after it belongs to COMMAND, with or without --. Behind a URL or a document, they
work too. COMMAND gets PATH, HOME and the like, the variables of proxies and CA
files, and those that --env names; nothing else of the environment.

URL is a remote server. Its transport is detected. In a --header, ${NAME} becomes
the value of that variable, which keeps it out of the list of processes. If the
server wants a sign-in, the bridge opens a browser, if there is one; otherwise run
'mcp-bridge login URL' first.

OPENAPI is the path or the URL of an OpenAPI document. Its operations become tools,
and --header goes to the API.

A port alone (--listen 9000, --port 9000) serves this machine only; 0.0.0.0:9000 or
:9000 serve other machines, too. With --token-env NAME, clients must send the key in
that variable, as Authorization: Bearer KEY or X-API-Key: KEY.`,
		Example: `  mcp-bridge run -- npx -y @modelcontextprotocol/server-filesystem .
  mcp-bridge run --listen 127.0.0.1:9000 --share all -- uvx mcp-server-time
  mcp-bridge run --listen 0.0.0.0:8808 --token-env BRIDGE_KEY -- ./my-server
  mcp-bridge run --env GITHUB_TOKEN --env LOG=debug -- ./my-server --verbose
  mcp-bridge run https://tools.example.com/mcp
  mcp-bridge run ./openapi.yaml
  mcp-bridge run ./openapi.yaml --header 'X-Api-Key: ${KEY}'
  mcp-bridge run https://tools.example.com/events --transport sse`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("name the program to run, behind --, or the URL of a server: mcp-bridge run -- npx -y @modelcontextprotocol/server-everything")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := ahead(cmd, args)
			if err != nil {
				return err
			}
			log, err := l.Logger(stderr)
			if err != nil {
				return err
			}
			kind, err := target.Kind(cmd.Context(), args, cmd.ArgsLenAtDash() == 0)
			if err != nil {
				return err
			}
			if err := noTarget(args, kind, target.Program.Cwd); err != nil {
				return err
			}
			s, warnings, err := target.Server(kind, args, share)
			if err != nil {
				return err
			}
			switch c.Warnings = warnings; kind {
			case flags.OfDocument:
				if err := s.Rest.Validate(); err != nil {
					return exit.With(exit.Usage, err)
				}
				s.Rest.Remarks = true
			case flags.OfURL:
				log = hinting(log)
				terminal, _ := terminal.Is(stderr)
				if err := target.SignIn.On(s.HTTP, asking(stderr, terminal), deviceOn(stderr), false); err != nil {
					return err
				}
			default:
				if cmd.ArgsLenAtDash() < 0 {
					c.Warnings = append(c.Warnings, flags.Misplaced(cmd.Flags(), args)...)
				}
			}
			s.Restart, s.Offer = restart, gateway.Offer(offer)
			limits.Over(cmd.Flags(), &s)
			if name != "" {
				s.Name = name
			}
			c.Servers, c.NoAhead = []config.Server{s}, true // first starts the server
			c.Fit(memory.Most())
			if c.Listen, err = listen.Over(c.Listen); err != nil {
				return err
			}
			if c.Access, err = tokenRule(tokenEnv, os.LookupEnv); err != nil {
				return err
			}
			if err := refuseOpen(&c, insecure, "name a variable with a key by --token-env"); err != nil {
				return err
			}
			if !slices.Contains([]string{"", config.ConsoleOn, config.ConsolePayloads, config.ConsoleOff}, c.Console) {
				return exit.Usagef("--console is %q: must be on, payloads or off", c.Console)
			}
			if err := c.Validate(); err != nil { // faults are reported first
				return exit.With(exit.Usage, flags.Named(err, listen.Given()))
			}
			return serve(cmd.Context(), &c, log, stdout, asJSON, newManager(log), nil, func(ctx context.Context, served *server.Server) {
				if remark := isolation(&s, tokenEnv != ""); remark != "" {
					log.Debug(remark)
				}
				first(ctx, served, &c, log)
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // arguments after COMMAND belong to COMMAND; see ahead
	listen.Add(f, "default "+c.Listen)
	f.StringVar(&name, "name", "", "name of the server (default: made from COMMAND or URL)")
	f.StringVar(&share, "share", config.ShareSession, "what shares a process or connection: session, principal, call or all")
	f.StringVar(&tokenEnv, "token-env", "", "variable with the key that clients must send (16 characters or more)")
	addInsecureFlag(f, &insecure)
	addJSONFlag(f, &asJSON)
	target.Add(cmd)
	target.SignIn.Add(f)
	addOfferFlag(f, &offer)
	f.BoolVar(&restart, "restart", true, "replace a lost process or connection; false ends the session")
	limits.Add(f)
	f.StringSliceVar(&c.AllowedOrigins, "allow-origin", nil, "allow web pages of this origin, such as https://app.example.com (repeatable)")
	f.StringVar(&c.Console, "console", "", "page for operators at /ui: on, off or payloads (default: on, unless there is --token-env or other machines are served)")
	f.StringSliceVar(&c.AllowedHosts, "allow-host", nil, "accept requests to this host, besides loopback names (repeatable)")
	return cmd
}

// ahead parses flags that follow a URL or a document, because neither has its own arguments. It does not change the
// words after a program or after --.
func ahead(cmd *cobra.Command, args []string) ([]string, error) {
	if len(args) < 2 || cmd.ArgsLenAtDash() >= 0 {
		return args, nil
	}
	if !flags.IsURL(args[0]) {
		if kind, err := rest.Detect(args[0]); err != nil || kind == rest.OtherKind {
			return args, nil // a program, or arguments that are refused later
		}
	}
	cmd.Flags().SetInterspersed(true)
	if err := cmd.ParseFlags(args[1:]); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil, pflag.ErrHelp
	}
	if cmd.Flags().NArg() > 0 {
		return nil, exit.Usagef("a URL or a document takes no arguments: leave them out; for several servers write a configuration file, and 'mcp-bridge serve FILE'")
	}
	return args[:1], nil
}

// noTarget refuses arguments after a URL, and words that cannot be names of programs.
func noTarget(args []string, kind flags.Kind, cwd string) error {
	switch {
	case kind == flags.OfURL && len(args) > 1:
		return exit.Usagef("a URL takes no arguments: write flags before --, or leave -- out")
	case kind != flags.OfProgram:
		return nil
	}
	if hint := flags.Remotely(args[0]); len(args) == 1 && hint != "" {
		return exit.Usagef("%s is not a program: %s", args[0], hint)
	}
	return noProgram(args[0], cwd)
}

// noProgram refuses a path that is a document or a configuration and not a program.
func noProgram(path, cwd string) error {
	if !slices.Contains([]string{".yaml", ".yml", ".json", ".html", ".htm"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	at := path
	if !filepath.IsAbs(at) {
		at = filepath.Join(cwd, at)
	}
	info, err := os.Stat(at)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 && runtime.GOOS != "windows" {
		return nil
	}
	return exit.Usagef("%s is neither a program nor an OpenAPI document, which has openapi, swagger or paths at its top. Serve a configuration file with 'mcp-bridge serve -c FILE'", path)
}

// isolation describes what clients without sessions share if --share does not decide it. Otherwise, isolation returns
// "".
func isolation(s *config.Server, key bool) string {
	if s.Offer == config.OfferLegacy || s.Share != config.ShareSession && s.Share != config.SharePrincipal {
		return ""
	}
	what := "process"
	if s.Stdio == nil {
		what = "connection"
	}
	if key {
		what += " per key"
	}
	return "clients of 2026-07-28 have no sessions and share one " + what + "; --share call gives each call its own"
}

// tokenRule returns the access rule of --token-env, which admits one caller.
func tokenRule(name string, env func(string) (string, bool)) ([]config.Access, error) {
	if name == "" {
		return nil, nil
	}
	key, ok := env(name)
	if !ok {
		return nil, flags.Unset(name)
	}
	if err := auth.Check(key); err != nil {
		return nil, exit.Usagef("--token-env %s: the key in the variable %w", name, err)
	}
	return []config.Access{{Name: "client", Token: key}}, nil
}

// addOfferFlag adds the flag that chooses which revisions clients can use.
func addOfferFlag(f *pflag.FlagSet, offer *string) {
	f.StringVar(offer, "offer", config.OfferAll, "revisions for clients: all, or legacy (to 2025-11-25)")
}

// hinting returns a logger that adds a hint to errors about headers: the flag that sets headers. A user who gave a URL
// has no file for headers.
func hinting(log *slog.Logger) *slog.Logger { return slog.New(hinted{log.Handler()}) }

type hinted struct{ slog.Handler }

var _ slog.Handler = hinted{}

// Handle implements slog.Handler.
func (h hinted) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && flags.ForURL(err.Error()) != err.Error() {
			a.Value = slog.StringValue(flags.ForURL(err.Error()))
		}
		out.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h hinted) WithAttrs(attrs []slog.Attr) slog.Handler { return hinted{h.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (h hinted) WithGroup(name string) slog.Handler { return hinted{h.Handler.WithGroup(name)} }
