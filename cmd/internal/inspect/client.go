//lint:file-ignore SA1019 logging and roots are deprecated in 2026-07-28, but today's servers use them.

package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
)

// Options let a program replace parts of the commands.
type Options struct {
	Log            *flags.Log
	Stdout, Stderr io.Writer
	// Dial opens the link to a server. nil means DialBridge.
	Dial func(c *config.Config, name string, log *slog.Logger) (*Link, error)
	// Terminal reports whether a file is a terminal, and its number of columns. nil means terminal.Is.
	Terminal func(file any) (is bool, columns int)
}

// Commands returns the commands tools, prompts, resources and call.
func Commands(o Options) []*cobra.Command {
	if o.Dial == nil {
		o.Dial = DialBridge
	}
	if o.Terminal == nil {
		o.Terminal = terminal.Is
	}
	var all []*cobra.Command
	for _, command := range []func(*clientFlags) *cobra.Command{newTools, newPrompts, newResources, newCall} {
		f := &clientFlags{Options: o}
		c := command(f)
		f.add(c)
		all = append(all, c)
	}
	return all
}

// clientFlags holds the common flags of the commands of this package.
type clientFlags struct {
	Options
	set *pflag.FlagSet

	command            string // its name
	address, name      string // the URL on the command line, without what may be secret, and the server's name; empty for other targets
	target             flags.Target
	roots              []string
	timeout, handshake time.Duration
	verbose            bool
	quiet              bool
	json               bool
	all                bool // also list operations of HTTP APIs that are found by search
}

func (c *clientFlags) add(one *cobra.Command) {
	c.set, c.command = one.Flags(), one.Name()
	c.set.StringVarP(&c.target.File, "config", "c", flags.DefaultFile, "configuration file with the server TARGET")
	c.target.Add(one)
	c.set.StringArrayVar(&c.roots, "root", nil, "folder to offer as a root (repeatable)")
	c.set.DurationVar(&c.timeout, "timeout", 300*time.Second, "longest silence of the server; progress resets it")
	flags.AddHandshake(c.set, &c.handshake)
	c.set.BoolVarP(&c.verbose, "verbose", "v", false, "show the log, with the server's messages and its stderr")
	c.set.BoolVarP(&c.quiet, "quiet", "q", false, "show no progress")
	c.set.BoolVar(&c.json, "json-output", false, "print only the server's result, or {\"error\":…}, as JSON")
}

func (c *clientFlags) changed(name string) bool { return c.set.Changed(name) }

// exitHelp is the end of the help texts of these commands.
const exitHelp = `
TARGET is a URL (http or https), the path or the URL of an OpenAPI document, or
the name of a server in the configuration file. Instead of TARGET you
can run a program, at the end of the line: -- COMMAND [ARGS...]. If its start takes
long, the terminal shows its stderr.

Exit codes: 0 success; 1 the server answered with an error; 2 wrong usage;
3 the server could not be reached or started, or was lost; 4 time-out;
130 interrupted.`

// split separates the target from the arguments. The target is the first argument, or everything after --.
func (c *clientFlags) split(cmd *cobra.Command, args []string) (t target, rest []string, err error) {
	switch n := cmd.ArgsLenAtDash(); {
	case n >= 0 && n < len(args):
		t, rest = target{args[n:], true}, args[:n]
	case n < 0 && len(args) == 0 && c.command == "tools": // all servers of the file
	case n >= 0 || len(args) == 0:
		return t, nil, exit.Usagef("no target. %s (see '%s --help')", flags.Forms, cmd.CommandPath())
	default:
		t.args, rest = args[:1], args[1:]
	}
	return t, rest, nil
}

// action is the work of a command with a server. prepare checks the arguments after the target, before the server
// starts.
type action struct {
	prepare func(rest []string) error
	do      func(ctx context.Context, c *client) error
}

// runE returns the RunE of a cobra command for an action.
func (c *clientFlags) runE(a action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		con := newConsole(cmd.InOrStdin(), c.Stdout, c.Stderr, c.Terminal)
		err := c.run(cmd, args, con, a)
		if err != nil && c.json {
			return c.jsonError(con, err)
		}
		return err
	}
}

func (c *clientFlags) run(cmd *cobra.Command, args []string, con *console, a action) error {
	t, rest, err := c.split(cmd, args)
	if err != nil {
		return err
	}
	if c.timeout <= 0 {
		return exit.Usagef("--timeout must be longer than 0")
	}
	if err := a.prepare(rest); err != nil {
		return err
	}
	roots, err := rootsOf(c.roots)
	if err != nil {
		return err
	}
	settings, name, err := c.resolve(cmd.Context(), t)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	client, err := c.connect(ctx, settings, name, con, roots)
	if err != nil {
		return c.explain(ctx, err)
	}
	if len(settings.Servers) == 1 && settings.Servers[0].Rest != nil {
		client.api = settings
	}
	if name == "" {
		client.file = settings
	}
	err = a.do(ctx, client)
	if err != nil {
		err = c.explain(ctx, client.reason(err))
	}
	client.close()
	return err
}

// rootsOf returns the roots of the --root flags.
func rootsOf(folders []string) ([]*mcp.Root, error) {
	var roots []*mcp.Root
	for _, folder := range folders {
		path, err := filepath.Abs(folder)
		if err == nil {
			var info os.FileInfo
			if info, err = os.Stat(path); err == nil && !info.IsDir() {
				err = errors.New("not a folder")
			}
		}
		if err != nil {
			return nil, exit.Usagef("--root %s: %w", folder, err)
		}
		slashed := filepath.ToSlash(path)
		if slashed[0] != '/' {
			slashed = "/" + slashed // a Windows drive
		}
		u := url.URL{Scheme: "file", Path: slashed}
		roots = append(roots, &mcp.Root{URI: u.String(), Name: filepath.Base(path)})
	}
	return roots, nil
}

type client struct {
	*mcp.ClientSession
	*console
	flags  *clientFlags
	wire   *wire
	status *status
	asker  *asker
	link   *Link
	api    *config.Config // the configuration with the HTTP API; nil for other servers
	// lacking has the servers that the last list of several servers lacked, in the form of era.KeyMissing.
	lacking []gjson.Result
	file    *config.Config // the configuration file if the target is all of its servers; otherwise nil

	silence time.Duration // maximum time for which a task may stay unchanged; 0 means no limit
	longest time.Duration // maximum duration of a task; 0 means no limit
	tasks   bool          // the server can run tool calls as tasks
}

// logs returns the flags of the log. Without --verbose and --log-level, only errors are logged.
func (c *clientFlags) logs() *flags.Log {
	logs := &flags.Log{Level: c.Log.Level, Format: c.Log.Format}
	if !c.verbose && !c.changed("log-level") {
		logs.Level = "error"
	}
	return logs
}

// connect opens a session in the newest legacy revision. The bridge translates for servers of other revisions.
func (c *clientFlags) connect(ctx context.Context, settings *config.Config, name string, con *console, roots []*mcp.Root) (*client, error) {
	logs := c.logs()
	log, err := logs.Logger(c.Stderr)
	if err != nil {
		return nil, err
	}
	one := &client{
		console: con,
		flags:   c,
		status: &status{
			console: con,
			quiet:   c.quiet,
			verbose: c.verbose,
		},
	}
	for _, s := range settings.Servers { // there is only one server
		one.silence, one.longest = s.Timeout, s.MaxTimeout
	}
	log = slog.New(&listener{Handler: log.Handler(), status: one.status})
	defer one.status.starting(cmp.Or(name, "all servers"))()
	one.link, err = c.Dial(settings, name, log)
	if err != nil {
		return nil, err
	}
	one.asker = newAsker(con, one.status)
	one.wire = newWire(one.link.Transport, one.status, one.asker)
	can := &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}}
	if len(roots) > 0 {
		can.RootsV2 = &mcp.RootCapabilities{}
	}
	own := mcp.NewClient(&mcp.Implementation{Name: "mcp-bridge", Version: server.Version()}, &mcp.ClientOptions{Capabilities: can})
	own.AddRoots(roots...)
	err = addTasks(own)
	if err != nil {
		one.close()
		return nil, err
	}

	opening, cancel := context.WithTimeoutCause(ctx, c.timeout, errSilent)
	defer cancel()
	one.ClientSession, err = own.Connect(opening, one.wire, &mcp.ClientSessionOptions{ProtocolVersion: legacyRevision})
	if err != nil {
		if a := one.wire.last(); a != nil && a.Error != nil {
			err = a.Error
		} else if opening.Err() != nil {
			err = context.Cause(opening)
		}
		err = one.reason(err)
		one.close()
		return nil, err
	}
	if a := one.wire.last(); a != nil { // to initialize; the SDK does not support tasks
		one.tasks = gjson.GetBytes(a.Result, "capabilities.tasks.requests.tools.call").Exists()
	}
	if c.verbose && one.InitializeResult().Capabilities != nil && one.InitializeResult().Capabilities.Logging != nil {
		// If the server refuses the level, the command shows the log messages that the server sends anyway.
		_ = one.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(serverLevel(logs.Level))})
	}
	return one, nil
}

// legacyRevision is the newest revision with a handshake.
const legacyRevision = "2025-11-25"

// serverLevel returns the MCP level of a --log-level.
func serverLevel(level string) string {
	if level == "warn" {
		return "warning"
	}
	return level
}

// close ends the session, the bridge and its child processes.
func (c *client) close() {
	c.status.clear()
	defer c.status.stopping()()
	if c.ClientSession != nil {
		_ = c.Close() // the session is over
	}
	c.wire.stop()
	c.link.Close(c.ClientSession == nil)
	c.wire.wg.Wait()
	c.asker.close()
}

// takeBackLimit bounds how long the command waits until a cancellation is sent.
const takeBackLimit = time.Second

// request makes a request by a method of the SDK, and returns the raw result even if the SDK cannot decode it.
func (c *client) request(ctx context.Context, send func(context.Context) error) (json.RawMessage, error) {
	c.wire.begin()
	err := send(ctx)
	if a := c.wire.last(); a != nil {
		if a.Error != nil {
			return nil, a.Error
		}
		return a.Result, nil
	}
	if ctx.Err() != nil {
		// The SDK sends the cancellation in the background, and the connection must not close before.
		select {
		case <-c.wire.takenBack():
		case <-time.After(takeBackLimit):
		}
	}
	return nil, err
}

// reason adds the known cause to an error of the bridge. The cause may name programs and files of the user.
func (c *client) reason(err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || faultOf(e) == "" {
		return err
	}
	if why := c.link.Reason(); why != "" {
		return &causeError{err, why}
	}
	return err
}

// causeError is an error with its cause.
type causeError struct {
	error
	why string
}

func (c *causeError) Error() string {
	if strings.Contains(c.why, c.error.Error()) { // the cause may name several servers
		return c.why
	}
	return c.error.Error() + ": " + c.why
}

func (c *causeError) Unwrap() error { return c.error }
