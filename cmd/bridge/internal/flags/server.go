package flags

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
	"github.com/mcp-bridge/bridge/internal/adapters/stdio"
	"github.com/mcp-bridge/bridge/internal/adapters/upstream"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Program is the flags about a server that is a program to run.
type Program struct {
	Env    []string
	EnvAll bool
	Cwd    string
}

// Add adds the flags.
func (p *Program) Add(f *pflag.FlagSet) {
	f.StringArrayVar(&p.Env, "env", nil, "NAME=VALUE for COMMAND, or NAME or a pattern such as 'AWS_*' to pass variables on from here (repeatable)")
	f.BoolVar(&p.EnvAll, "env-all", false, "pass the whole environment on to COMMAND, with all the secrets in it")
	f.StringVar(&p.Cwd, "cwd", "", "working directory of COMMAND")
}

// Server makes the configuration of a program, of its name and its arguments.
func (p *Program) Server(command []string, share string) (config.Server, error) {
	own, pass, err := variables(p.Env)
	if err != nil {
		return config.Server{}, err
	}
	if p.EnvAll {
		pass = []string{"*"}
	}
	s := config.DefaultServer(commandName(command), share)
	s.Share = share // also when it is wrong, so that it is refused
	s.Stdio = &stdio.Config{Command: command[0], Args: command[1:], Env: own, EnvPass: pass, Cwd: p.Cwd}
	return s, nil
}

// Config makes the configuration of the one server that command starts, if there is
// such a program.
func (p *Program) Config(command []string, era string) (*config.Config, error) {
	s, err := p.Server(command, config.ShareSession)
	if err == nil {
		err = p.Find(&s)
	}
	s.Era = era
	return alone(s), err
}

// Find refuses a command that cannot be started, with what to write instead.
func (p *Program) Find(s *config.Server) error {
	err := stdio.New(s.Name, *s.Stdio, upstream.Options{}).Check()
	if err == nil {
		return nil
	}
	command := s.Stdio.Command
	if words := strings.Fields(command); len(words) > 1 && len(s.Stdio.Args) == 0 {
		return exit.Usagef("there is no program %q: write the command as words, not as one text: -- %s", command, strings.Join(words, " "))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return exit.Usagef("there is no program %q in PATH: correct the name, install it, give its full path, or set another PATH with --env PATH=…", command)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if isDocument.MatchString(command) {
			return exit.Usagef("there is no file %q: correct the path of the OpenAPI document", command)
		}
		return exit.Usagef("there is no file %q: correct the path of the program, or leave it out for one in PATH", command)
	}
	return exit.Usagef("%q cannot be started: %w", command, err)
}

// variables reads the --env flags: values, and patterns of what is passed on.
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

// Remote is the flags about a server that is named by its URL.
type Remote struct {
	Headers   []string
	Transport string
}

// Add adds the flags.
func (r *Remote) Add(f *pflag.FlagSet) {
	f.StringArrayVarP(&r.Headers, "header", "H", nil, "'NAME: VALUE' to send to URL; ${NAME} is taken from the environment (repeatable)")
	f.StringVar(&r.Transport, "transport", httpclient.TransportAuto, "transport of URL: streamable, sse, or auto, which detects it")
}

// Config makes the configuration of the one server that is at a URL.
func (r *Remote) Config(address, era string) (*config.Config, error) {
	s, err := r.Server(address, config.ShareSession)
	s.Era = era
	return alone(s), err
}

// Server makes the configuration of the server at a URL.
func (r *Remote) Server(address, share string) (config.Server, error) {
	own, _, err := r.parse()
	if err != nil {
		return config.Server{}, err
	}
	s := config.DefaultServer(urlName(address), share)
	s.Share = share // also when it is wrong, so that it is refused
	s.HTTP = &httpclient.Config{URL: address, Headers: own, Transport: r.Transport}
	return s, nil
}

// AddHandshake adds the flag about the start of a server.
func AddHandshake(f *pflag.FlagSet, limit *time.Duration) {
	f.DurationVar(limit, "handshake-timeout", config.DefaultServer("x", "").HandshakeTimeout, "how long the server may take to start and answer the handshake, such as 5m for one that is installed first")
}

// IsURL reports whether an argument is a URL, rather than the name of a server
// or a program.
func IsURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && !strings.ContainsAny(scheme, `/\ `)
}

// AddEra adds the flag about a server that no file describes.
func AddEra(f *pflag.FlagSet, era *string) {
	f.StringVar(era, "era", config.EraAuto, "revisions to speak to the server: legacy (to 2025-11-25), modern (from 2026-07-28), or auto, which detects them")
}

// parse reads the --header flags. secrets are the values that come from the
// environment. Messages do not repeat values.
func (r *Remote) parse() (headers map[string]string, secrets []string, err error) {
	headers = map[string]string{}
	text := strict.Decoder{Env: os.LookupEnv, Program: "mcp-bridge", Secrets: map[string]string{}} // as in a configuration file
	for _, f := range r.Headers {
		name, value, ok := strings.Cut(f, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, nil, exit.Usagef("--header needs 'NAME: VALUE', such as 'Authorization: Bearer ${TOKEN}'")
		}
		if _, twice := headers[name]; twice {
			return nil, nil, exit.Usagef("--header %s is given twice", name)
		}
		value, _, err := text.Expand(strings.TrimSpace(value))
		if err != nil {
			return nil, nil, exit.Usagef("--header %s: %w", name, err)
		}
		headers[name] = value
	}
	return headers, slices.Sorted(maps.Keys(text.Secrets)), nil
}
