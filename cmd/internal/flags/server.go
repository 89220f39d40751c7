package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/files"
)

// Program holds the flags for a server that is a program.
type Program struct {
	Env    []string
	EnvAll bool
	Cwd    string
}

func (p *Program) add(f *pflag.FlagSet) {
	f.StringArrayVar(&p.Env, "env", nil, "variable for COMMAND; NAME alone or a pattern such as 'AWS_*' passes yours on (repeatable)")
	f.BoolVar(&p.EnvAll, "env-all", false, "pass all your variables on to COMMAND, with all secrets")
	f.StringVar(&p.Cwd, "cwd", "", "working folder of COMMAND")
}

// Server returns the configuration for a program with its arguments.
func (p *Program) Server(command []string, share string) (config.Server, error) {
	own, pass, err := variables(p.Env)
	if err != nil {
		return config.Server{}, err
	}
	if p.EnvAll {
		pass = []string{"*"}
	}
	s := config.DefaultServer(commandName(command), gateway.Share(share))
	s.Share = gateway.Share(share) // even a wrong value, which is refused later
	s.Stdio = &stdio.Config{
		Command: command[0],
		Args:    command[1:],
		Env:     own,
		EnvPass: pass,
		Cwd:     p.Cwd,
	}
	return s, nil
}

// find refuses a command that cannot start, and suggests a correct command.
func (p *Program) find(s *config.Server) error {
	for _, path := range [][2]string{{"--cwd is", p.Cwd}, {"the program is", s.Stdio.Command}} {
		if home, variable := config.OfShell(path[1]); home || variable {
			return exit.Usagef("%s %q, which no shell has expanded: write $HOME in place of ~, and use no single quotes", path[0], path[1])
		}
	}
	if p.Cwd != "" {
		if info, err := os.Stat(p.Cwd); err != nil {
			return exit.Usagef("--cwd is %q: %w", p.Cwd, files.Unpathed(err))
		} else if !info.IsDir() {
			return exit.Usagef("--cwd is %q: is not a folder", p.Cwd)
		}
	}
	find := func(command string) error {
		c := *s.Stdio
		c.Command = command
		return stdio.New(s.Name, c, conn.Options{}).Check()
	}
	command := s.Stdio.Command
	err := find(command)
	if err == nil {
		return nil
	}
	// A path may contain a space. If the text is a whole command, its first word is a program.
	if words := strings.Fields(command); len(words) > 1 && (!strings.ContainsAny(words[0], `/\`) || find(words[0]) == nil) {
		if len(s.Stdio.Args) > 0 {
			words = append(words, "…") // the other arguments may have secrets
		}
		return exit.Usagef("there is no program %q: write the command as words, not as one text: -- %s", command, strings.Join(words, " "))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return exit.Usagef("there is no program %q in PATH: correct the name, install it, give its full path, or set another PATH with --env PATH=…", command)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if strings.HasPrefix(command, "http://") || strings.HasPrefix(command, "https://") {
			return exit.Usagef("a program belongs behind --, a URL does not: leave -- out")
		}
		if isDocument.MatchString(command) {
			return exit.Usagef("there is no file %q: correct the path of the OpenAPI document", command)
		}
		return exit.Usagef("there is no file %q: correct its path; for a program in PATH write the name alone", command)
	}
	return exit.Usagef("%q cannot be started: %w", command, err)
}

// Unexpanded returns warnings about arguments of a program that a shell should have expanded. It shows no values, which
// may be secrets.
func Unexpanded(args []string) (warnings []string) {
	for i, arg := range args {
		switch home, variable := config.OfShell(arg); {
		case home:
			warnings = append(warnings, fmt.Sprintf("argument %d of the program begins with ~, which it gets as it is: write $HOME, without single quotes", i+1))
		case variable && !slices.Contains([]string{"-c", "-lc"}, args[max(i-1, 0)]):
			warnings = append(warnings, fmt.Sprintf("argument %d of the program has a $NAME, which it gets as it is: for the value of the variable, do not use single quotes", i+1))
		}
	}
	return warnings
}

// variables reads the --env flags: values, and patterns for variables to pass to the program.
func variables(flags []string) (own map[string]string, pass []string, err error) {
	own = map[string]string{}
	for _, f := range flags {
		name, value, set := strings.Cut(f, "=")
		switch {
		case name == "":
			return nil, nil, exit.Usagef("--env needs NAME=VALUE, NAME, or a pattern such as 'AWS_*'")
		case set:
			own[name] = value
		case strings.ContainsAny(name, "*?"):
			pass = append(pass, name)
		default:
			if own[name], set = os.LookupEnv(name); !set {
				return nil, nil, exit.Usagef("--env %s: the variable is not set: give it as %s=VALUE", name, name)
			}
		}
	}
	return own, pass, nil
}

// Remote holds the flags for a server with a URL.
type Remote struct {
	Reach
	Transport string
}

// add adds the flags. A command with own has a --token-env for its own clients.
func (r *Remote) add(f *pflag.FlagSet, own bool) {
	token := "the key or token to send, as Authorization: Bearer"
	if own {
		token = ""
	}
	r.Reach.Add(f, token)
	f.StringVar(&r.Transport, "transport", remote.TransportAuto, "transport of the server: streamable, sse or auto")
}

// Server returns the configuration for the server at a URL.
func (r *Remote) Server(address, share string) (config.Server, error) {
	own, _, err := r.Values()
	if err != nil {
		return config.Server{}, err
	}
	s := config.DefaultServer(urlName(address), gateway.Share(share))
	s.Share = gateway.Share(share) // even a wrong value, which is refused later
	s.HTTP = &remote.Config{
		URL:       address,
		Headers:   own,
		CAFile:    r.CAFile,
		Transport: r.Transport,
	}
	return s, nil
}

// Limits holds the flags for a server's timeouts.
type Limits struct{ timeout, handshake time.Duration }

func (l *Limits) Add(f *pflag.FlagSet) {
	f.DurationVar(&l.timeout, "timeout", config.DefaultServer("x", "").Timeout, "longest silence during a call; progress resets it")
	AddHandshake(f, &l.handshake)
}

// Over applies the flags that are set in f to a server.
func (l *Limits) Over(f *pflag.FlagSet, s *config.Server) {
	if f.Changed("timeout") {
		s.Timeout, s.MaxTimeout = l.timeout, max(s.MaxTimeout, l.timeout)
	}
	if f.Changed("handshake-timeout") {
		s.HandshakeTimeout = l.handshake
	}
}

// AddHandshake adds the flag that bounds the start of a server.
func AddHandshake(f *pflag.FlagSet, limit *time.Duration) {
	f.DurationVar(limit, "handshake-timeout", config.DefaultServer("x", "").HandshakeTimeout, "longest start of the server, with its handshake")
}

// IsURL reports whether an argument is a URL and not the name of a server or a program.
func IsURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && !strings.ContainsAny(scheme, `/\ `)
}
