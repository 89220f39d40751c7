package inspect

import (
	"context"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/config"
)

// target is the server that a command line names: by one argument, or by a command after --. Neither means all servers
// of the file.
type target struct {
	args   []string
	dashed bool
}

// resolve returns the configuration and the name of the target, as if the target were served. For all servers of the
// file, the name is empty.
func (c *clientFlags) resolve(ctx context.Context, t target) (*config.Config, string, error) {
	kind, err := c.target.Kind(ctx, t.args, t.dashed)
	if err != nil {
		return nil, "", err
	}
	conf, err := c.target.Config(kind, t.args)
	if err == nil && kind == flags.OfURL {
		c.address, c.name = flags.Bare(t.args[0]), conf.Servers[0].Name
		err = c.target.SignIn.On(conf.Servers[0].HTTP, nil, nil, true) // the logins of 'mcp-bridge login'
	}
	if err == nil {
		err = c.tune(conf)
	}
	if err != nil || len(t.args) == 0 {
		return conf, "", err
	}
	return conf, conf.Servers[0].Name, nil
}

// tune applies the other flags to the configuration.
func (c *clientFlags) tune(conf *config.Config) error {
	for i := range conf.Servers {
		s := &conf.Servers[i]
		if c.changed("timeout") { // otherwise, the file decides
			s.Timeout = c.timeout
			s.MaxTimeout = max(s.MaxTimeout, s.Timeout)
			s.HandshakeTimeout = max(s.HandshakeTimeout, s.Timeout)
		}
		if c.changed("handshake-timeout") {
			s.HandshakeTimeout = c.handshake
		}
	}
	if c.all {
		found := conf.ToolsMode == config.ToolsSearch
		for i := range conf.Servers {
			s := &conf.Servers[i]
			found = found || s.ToolsMode == config.ToolsSearch || s.Rest != nil
			s.ToolsMode = config.ToolsAll
		}
		if conf.ToolsMode = config.ToolsAll; !found {
			return exit.Usagef("--all is for tools that are found by search: those of HTTP APIs, and with tools_mode: search in the configuration file")
		}
	}
	conf.Access, conf.AccessLog = nil, config.AccessLog{} // access rules and access log are for served clients, which this command does not have; stdout is for its output
	if err := conf.Validate(); err != nil {
		return exit.With(exit.Usage, flags.Named(err, ""))
	}
	return nil
}
