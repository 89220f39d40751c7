package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/similar"
	"github.com/mcp-bridge/bridge/config"
)

// target is what a command line says about the server to speak to.
type target struct {
	name    string   // a URL, or a name in the configuration file; empty with a command
	command []string // behind --
	flags   *clientFlags
}

// resolve makes the configuration of the one server that is meant, so that the
// server is reached exactly as when it is served.
func (t target) resolve() (*config.Config, string, error) {
	if err := t.useless(); err != nil {
		return nil, "", err
	}
	var c *config.Config
	var s config.Server
	var err error
	switch {
	case t.command != nil:
		c, s, err = t.fromCommand()
	case isURL(t.name):
		c, s, err = t.fromURL()
	default:
		c, s, err = t.fromFile()
	}
	if err != nil {
		return nil, "", err
	}
	if t.flags.changed("timeout") { // otherwise the file's own
		s.Timeout = t.flags.timeout
		s.MaxTimeout = max(s.MaxTimeout, s.Timeout)
		s.HandshakeTimeout = max(s.HandshakeTimeout, s.Timeout)
	}
	c.Servers = []config.Server{s}
	c.Access, c.AccessLog = nil, config.AccessLog{} // they are about those who are served; stdout is the command's
	if err := c.Validate(); err != nil {
		return nil, "", usageError{err}
	}
	return c, s.Name, nil
}

// useless refuses flags that the target has no use for: they would seem to
// work.
func (t target) useless() error {
	isCommand, remote := t.command != nil, isURL(t.name)
	for _, f := range []struct {
		name   string
		useful bool
		where  string
	}{
		{"env", isCommand, "a command behind --"},
		{"cwd", isCommand, "a command behind --"},
		{"header", remote, "a URL"},
		{"transport", remote, "a URL"},
		{"era", isCommand || remote, "a URL or a command behind --"},
		{"config", !isCommand && !remote, "the name of a server in the file"},
	} {
		if t.flags.changed(f.name) && !f.useful {
			return usageError{fmt.Errorf("--%s is of use with %s only", f.name, f.where)}
		}
	}
	return nil
}

func isURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && !strings.ContainsAny(scheme, `/\ `)
}

func (t target) fromCommand() (*config.Config, config.Server, error) {
	c := config.Default()
	s := config.DefaultServer(serverName(t.command[0]), "")
	own, err := variables(t.flags.env)
	if err != nil {
		return nil, s, err
	}
	s.Stdio = &stdio.Config{Command: t.command[0], Args: t.command[1:], Env: own, Cwd: t.flags.cwd}
	s.Era = t.flags.era
	return &c, s, nil
}

func (t target) fromURL() (*config.Config, config.Server, error) {
	c := config.Default()
	s, err := remoteServer(t.name, config.ShareSession, t.flags.headers, t.flags.transport)
	s.Era = t.flags.era
	return &c, s, err
}

func (t target) fromFile() (*config.Config, config.Server, error) {
	file := t.flags.file
	c, err := load(file)
	if errors.Is(err, fs.ErrNotExist) && !t.flags.changed("config") {
		return nil, config.Server{}, usageError{fmt.Errorf("%q is no URL, and there is no %s in which it could be the name of a server: %s", t.name, file, targetForms)}
	} else if err != nil {
		return nil, config.Server{}, err
	}
	var names []string
	for _, s := range c.Servers {
		if s.Name == t.name {
			return c, s, nil
		}
		names = append(names, s.Name)
	}
	return nil, config.Server{}, usageError{fmt.Errorf("%s has no server %q: %s", file, t.name, similar.Hint(t.name, names, "it has none"))}
}

// targetForms says what a target can be.
const targetForms = "name a URL, a server of the configuration file (-c FILE), or a program at the end, behind --"

// parseHeaders reads the --header flags. Messages do not repeat values: they
// may be secrets.
func parseHeaders(flags []string, env func(string) (string, bool)) (map[string]string, error) {
	headers := map[string]string{}
	for _, f := range flags {
		name, value, ok := strings.Cut(f, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, usageError{errors.New("--header needs 'NAME: VALUE', such as 'Authorization: Bearer ${TOKEN}'")}
		}
		if _, twice := headers[name]; twice {
			return nil, usageError{fmt.Errorf("--header %s is given twice", name)}
		}
		value, err := expand(strings.TrimSpace(value), env)
		if err != nil {
			return nil, usageError{fmt.Errorf("--header %s: %w", name, err)}
		}
		headers[name] = value
	}
	return headers, nil
}

// expand takes ${NAME} and ${NAME:-default} from the environment, and $${ as
// ${, as the configuration file does.
func expand(s string, env func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		if !ok {
			out.WriteString(s)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			s = rest
			continue
		}
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("a ${ has no }")
		}
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		value, set := env(name)
		if value == "" && hasFallback {
			value, set = fallback, true
		}
		if !set {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		out.WriteString(before + value)
		s = after
	}
}
