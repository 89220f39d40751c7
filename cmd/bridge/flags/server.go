package flags

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/strict"
)

// Program is the flags about a server that is a program to run.
type Program struct {
	Env []string
	Cwd string
}

// Add adds the flags.
func (p *Program) Add(f *pflag.FlagSet) {
	f.StringArrayVar(&p.Env, "env", nil, "NAME=VALUE for COMMAND, or NAME to pass it on from here (repeatable)")
	f.StringVar(&p.Cwd, "cwd", "", "working directory of COMMAND")
}

// Server makes the configuration of a program, of its name and its arguments.
func (p *Program) Server(command []string, share string) (config.Server, error) {
	own, err := variables(p.Env)
	if err != nil {
		return config.Server{}, err
	}
	s := config.DefaultServer(nameOf(command[0]), share)
	s.Share = share // also when it is wrong, so that it is refused
	s.Stdio = &stdio.Config{Command: command[0], Args: command[1:], Env: own, Cwd: p.Cwd}
	return s, nil
}

// variables reads the --env flags.
func variables(flags []string) (map[string]string, error) {
	own := map[string]string{}
	for _, f := range flags {
		name, value, set := strings.Cut(f, "=")
		if name == "" {
			return nil, exit.Usagef("--env needs NAME=VALUE or NAME")
		}
		if !set {
			var ok bool
			if value, ok = os.LookupEnv(name); !ok {
				return nil, exit.Usagef("--env %s: the variable is not set: give it as %s=VALUE", name, name)
			}
		}
		maps.Copy(own, map[string]string{name: value})
	}
	return own, nil
}

// Remote is the flags about a server that is named by its URL.
type Remote struct {
	Headers   []string
	Transport string
}

// Add adds the flags.
func (r *Remote) Add(f *pflag.FlagSet) {
	f.StringArrayVarP(&r.Headers, "header", "H", nil, "'NAME: VALUE' to send to URL; ${NAME} is taken from the environment (repeatable)")
	f.StringVar(&r.Transport, "transport", httpclient.TransportAuto, "what URL speaks: streamable, sse, or auto, which finds out")
}

// Server makes the configuration of the server at a URL.
func (r *Remote) Server(address, share string) (config.Server, error) {
	own, err := parseHeaders(r.Headers, os.LookupEnv)
	if err != nil {
		return config.Server{}, err
	}
	name := "server"
	if u, err := url.Parse(address); err == nil {
		name = nameOf(u.Hostname())
	}
	s := config.DefaultServer(name, share)
	s.Share = share // also when it is wrong, so that it is refused
	s.HTTP = &httpclient.Config{URL: address, Headers: own, Transport: r.Transport}
	return s, nil
}

// IsURL reports whether an argument is a URL, rather than the name of a server
// or a program.
func IsURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && !strings.ContainsAny(scheme, `/\ `)
}

// AddEra adds the flag about a server that no file describes.
func AddEra(f *pflag.FlagSet, era *string) {
	f.StringVar(era, "era", config.EraAuto, "revisions to speak to the server: legacy (to 2025-11-25), modern (from 2026-07-28), or auto, which finds out")
}

// parseHeaders reads the --header flags. Messages do not repeat values: they
// may be secrets.
func parseHeaders(flags []string, env func(string) (string, bool)) (map[string]string, error) {
	headers := map[string]string{}
	text := strict.Decoder{Env: env, Program: "bridge", Secrets: map[string]string{}} // as in a configuration file
	for _, f := range flags {
		name, value, ok := strings.Cut(f, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, exit.Usagef("--header needs 'NAME: VALUE', such as 'Authorization: Bearer ${TOKEN}'")
		}
		if _, twice := headers[name]; twice {
			return nil, exit.Usagef("--header %s is given twice", name)
		}
		value, _, err := text.Expand(strings.TrimSpace(value))
		if err != nil {
			return nil, exit.Usagef("--header %s: %w", name, err)
		}
		headers[name] = value
	}
	return headers, nil
}

// nameOf makes the name of a server of its command's, by the rules for
// names: it appears in URLs and in the log.
func nameOf(command string) string {
	base := command[strings.LastIndexAny(command, `/\`)+1:]
	base = strings.TrimSuffix(strings.ToLower(base), ".exe")
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, base), "-")
	switch name {
	case "", "mcp", "sse", "messages", "hooks", "healthz", "readyz", "metrics":
		return "server"
	}
	return name[:min(len(name), 64)]
}
