package flags

import (
	"errors"
	"io/fs"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// DefaultFile is read when no file is named.
const DefaultFile = "bridge.yaml"

// Load reads a configuration file. Its faults are the user's.
func Load(file string) (*config.Config, error) {
	c, err := config.Load(file, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usagef("%w: name a file with -c, write one with 'mcp-bridge init', or use 'mcp-bridge run -- COMMAND', which needs none", err)
	case err != nil:
		return nil, exit.Usagef("the configuration has faults:\n%w", err)
	}
	return c, nil
}

// Target reads a configuration file and leaves the server of that name in it; without a
// name, all. given says that the command line names the file, and forms what a target can
// be, for the message that there is none.
func Target(file string, given bool, forms string, name ...string) (*config.Config, error) {
	c, err := Load(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !given && len(name) > 0:
		return nil, exit.Usagef("%q is no URL, and there is no %s in which it could be the name of a server: %s", name[0], file, forms)
	case errors.Is(err, fs.ErrNotExist) && !given:
		return nil, exit.Usagef("there is no target, and no %s whose servers could be meant: %s", file, forms)
	case err != nil || len(name) == 0:
		return c, err
	}
	var names []string
	for _, s := range c.Servers {
		if s.Name == name[0] {
			c.Servers = []config.Server{s}
			return c, nil
		}
		names = append(names, s.Name)
	}
	return nil, exit.Usagef("%s has no server %q: %s", file, name[0], similar.Hint(name[0], names, "it has none"))
}

// alone makes the configuration of one server.
func alone(s config.Server) *config.Config {
	c := config.Default()
	c.Servers, c.Warnings = []config.Server{s}, s.Warnings()
	return &c
}

// Useless refuses flags that are of use with something else only: they would seem to
// work.
func Useless(f *pflag.FlagSet, with string, names ...string) error {
	for _, name := range names {
		if f.Changed(name) {
			return exit.Usagef("--%s is of use with %s only", name, with)
		}
	}
	return nil
}
