package inspect

import (
	"errors"
	"io/fs"

	"github.com/mcp-bridge/bridge/bridge/similar"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/flags"
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
	case flags.IsURL(t.name):
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
		return nil, "", exit.With(exit.Usage, err)
	}
	return c, s.Name, nil
}

// useless refuses flags that the target has no use for: they would seem to
// work.
func (t target) useless() error {
	isCommand, remote := t.command != nil, flags.IsURL(t.name)
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
			return exit.Usagef("--%s is of use with %s only", f.name, f.where)
		}
	}
	return nil
}

func (t target) fromCommand() (*config.Config, config.Server, error) {
	c := config.Default()
	s, err := t.flags.program.Server(t.command, config.ShareSession)
	s.Era = t.flags.era
	return &c, s, err
}

func (t target) fromURL() (*config.Config, config.Server, error) {
	c := config.Default()
	s, err := t.flags.remote.Server(t.name, config.ShareSession)
	s.Era = t.flags.era
	return &c, s, err
}

func (t target) fromFile() (*config.Config, config.Server, error) {
	file := t.flags.file
	c, err := flags.Load(file)
	if errors.Is(err, fs.ErrNotExist) && !t.flags.changed("config") {
		return nil, config.Server{}, exit.Usagef("%q is no URL, and there is no %s in which it could be the name of a server: %s", t.name, file, targetForms)
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
	return nil, config.Server{}, exit.Usagef("%s has no server %q: %s", file, t.name, similar.Hint(t.name, names, "it has none"))
}

// targetForms says what a target can be.
const targetForms = "name a URL, a server of the configuration file (-c FILE), or a program at the end, behind --"
