package inspect

import (
	"context"
	"errors"
	"io/fs"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/internal/flags"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// target is what a command line says about the server to speak to.
type target struct {
	name    string   // a URL, or a name in the configuration file; empty with a command
	command []string // behind --
	api     bool     // name is an OpenAPI document
	flags   *clientFlags
}

// resolve makes the configuration of the one server that is meant, so that the
// server is reached exactly as when it is served. Its name is empty when all
// servers of the file are meant.
func (t target) resolve(ctx context.Context) (*config.Config, string, error) {
	if t.command == nil && t.name != "" && flags.MayBeDocument(t.name) {
		var err error
		if t.api, err = t.flags.document.Is(ctx, t.flags.command, t.name); err != nil {
			return nil, "", err
		}
	}
	if err := t.useless(); err != nil {
		return nil, "", err
	}
	var c *config.Config
	var s config.Server
	var err error
	switch {
	case t.command != nil:
		c, s, err = t.fromCommand()
	case t.api:
		if c, err = t.flags.document.Config(t.name, &t.flags.remote); err == nil {
			s = c.Servers[0]
		}
	case flags.IsURL(t.name):
		c, s, err = t.fromURL()
	default:
		c, s, err = t.fromFile()
	}
	if err != nil {
		return nil, "", err
	}
	if all := t.command == nil && t.name == ""; !all {
		c.Servers = []config.Server{s}
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		if t.flags.changed("timeout") { // otherwise the file's own
			s.Timeout = t.flags.timeout
			s.MaxTimeout = max(s.MaxTimeout, s.Timeout)
			s.HandshakeTimeout = max(s.HandshakeTimeout, s.Timeout)
		}
		if t.flags.changed("handshake-timeout") {
			s.HandshakeTimeout = t.flags.handshake
		}
	}
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
		{"env-all", isCommand, "a command behind --"},
		{"cwd", isCommand, "a command behind --"},
		{"header", remote || t.api, "a URL or an OpenAPI document"},
		{"base-url", t.api, "an OpenAPI document"},
		{"transport", remote && !t.api, "the URL of an MCP server"},
		{"era", (isCommand || remote) && !t.api, "the URL of an MCP server or a command behind --"},
		{"config", !isCommand && !remote && !t.api, "the name of a server in the file"},
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
	if err == nil {
		err = t.flags.program.Find(&s)
	}
	s.Era = t.flags.era
	return &c, s, err
}

func (t target) fromURL() (*config.Config, config.Server, error) {
	c := config.Default()
	s, err := t.flags.remote.Server(t.name, config.ShareSession)
	if err == nil {
		err = (&flags.SignIn{}).On(s.HTTP, nil, true) // with what 'mcp-bridge login' has kept
	}
	s.Era = t.flags.era
	return &c, s, err
}

func (t target) fromFile() (*config.Config, config.Server, error) {
	file := t.flags.file
	c, err := flags.Load(file)
	if errors.Is(err, fs.ErrNotExist) && t.name == "" && !t.flags.changed("config") {
		return nil, config.Server{}, exit.Usagef("there is no target, and no %s whose servers could be meant: %s", file, targetForms)
	} else if errors.Is(err, fs.ErrNotExist) && !t.flags.changed("config") {
		return nil, config.Server{}, exit.Usagef("%q is no URL, and there is no %s in which it could be the name of a server: %s", t.name, file, targetForms)
	} else if err != nil {
		return nil, config.Server{}, err
	}
	if t.name == "" {
		return c, config.Server{}, nil
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
const targetForms = "name a URL, an OpenAPI document, a server of the configuration file (-c FILE), or a program at the end, behind --"
