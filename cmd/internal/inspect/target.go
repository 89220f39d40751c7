package inspect

import (
	"context"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/config"
)

// target is the server that a command line names.
type target struct {
	name    string   // a URL, or a name in the configuration file; empty with a command
	command []string // behind --
	api     bool     // name is an OpenAPI document
	flags   *clientFlags
}

// resolve returns the configuration of the target as when it is served, and its name. The
// name is empty for all servers of the file.
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
	var err error
	switch file, given := t.flags.file, t.flags.changed("config"); {
	case t.command != nil:
		c, err = t.flags.program.Config(t.command, t.flags.era)
	case t.api:
		c, err = t.flags.document.Config(t.name, &t.flags.remote)
	case flags.IsURL(t.name):
		if c, err = t.flags.remote.Config(t.name, t.flags.era); err == nil {
			err = (&flags.SignIn{}).On(c.Servers[0].HTTP, nil, nil, true) // the logins of 'mcp-bridge login'
		}
	case t.name == "":
		c, err = flags.Target(file, given)
	default:
		c, err = flags.Target(file, given, t.name)
	}
	if err == nil {
		err = t.flags.tune(c)
	}
	switch {
	case err != nil:
		return nil, "", err
	case t.command == nil && t.name == "":
		return c, "", nil
	}
	return c, c.Servers[0].Name, nil
}

// tune applies the other flags to the configuration.
func (c *clientFlags) tune(conf *config.Config) error {
	for i := range conf.Servers {
		s := &conf.Servers[i]
		if c.changed("timeout") { // otherwise the file's own
			s.Timeout = c.timeout
			s.MaxTimeout = max(s.MaxTimeout, s.Timeout)
			s.HandshakeTimeout = max(s.HandshakeTimeout, s.Timeout)
		}
		if c.changed("handshake-timeout") {
			s.HandshakeTimeout = c.handshake
		}
	}
	if c.all {
		apis := 0
		for i := range conf.Servers {
			if s := &conf.Servers[i]; s.Rest != nil {
				s.Rest.Mode = rest.ModeTools
				apis++
			}
		}
		if apis == 0 {
			return exit.Usagef("--all is for HTTP APIs, which are OpenAPI documents and servers of the kind rest in the configuration file")
		}
	}
	conf.Access, conf.AccessLog = nil, config.AccessLog{} // they concern served clients, and this command has none; stdout is for its output
	if err := conf.Validate(); err != nil {
		return exit.With(exit.Usage, flags.Named(err, ""))
	}
	return nil
}

// useless refuses flags that have no effect on the target.
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
		{"transport", remote && !t.api, "the URL of an MCP server"},
		{"era", (isCommand || remote) && !t.api, "the URL of an MCP server or a command behind --"},
		{"config", !isCommand && !remote && !t.api, "the name of a server in the file"},
	} {
		if err := flags.Useless(t.flags.set, f.where, f.name); err != nil && !f.useful {
			return err
		}
	}
	if t.api {
		return nil
	}
	return flags.Useless(t.flags.set, "an OpenAPI document", flags.DocumentNames...)
}
