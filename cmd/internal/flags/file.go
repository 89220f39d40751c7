package flags

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/memory"
	"github.com/mcp-bridge/bridge/config"
)

// DefaultFile is the default of -c.
const DefaultFile = "bridge.yaml"

// Load reads a configuration file. Its errors have code Usage.
func Load(file string) (*config.Config, error) {
	c, err := config.Load(file, nil)
	return loaded(file, c, err)
}

// LoadSound is Load for reports. If the file has faults, the configuration has only the servers without faults.
func LoadSound(file string) (*config.Config, config.Faults, error) {
	c, err := config.LoadSound(file, nil)
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return c, faults, nil
	}
	c, err = loaded(file, c, err)
	return c, nil, err
}

// loaded explains the error of a configuration file.
func loaded(file string, c *config.Config, err error) (*config.Config, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.With(exit.Usage, noFile(file))
	case err != nil:
		return nil, exit.Usagef("the configuration has faults:\n%w", err)
	}
	c.Fit(memory.Most())
	return c, nil
}

// noFile is the error about a configuration file that does not exist. It is an fs.ErrNotExist.
type noFile string

// Error implements error.
func (n noFile) Error() string {
	if n == DefaultFile {
		return "there is no " + DefaultFile + " here: name a file with -c, write one with 'mcp-bridge init', or use 'mcp-bridge run -- COMMAND', which needs none"
	}
	if strings.Contains(string(n), "://") {
		return fmt.Sprintf("%q is a URL, and no configuration file: mcp-bridge run URL serves a remote server", Bare(string(n)))
	}
	return fmt.Sprintf("there is no file %q: correct its path, or write one with 'mcp-bridge init'", string(n))
}

func (noFile) Unwrap() error { return fs.ErrNotExist }

// Running reads where the bridge of a configuration file listens, for a command about that bridge. given means that the
// command line names the file.
func Running(command, file string, given bool) (*config.Config, error) {
	c, err := config.LoadAddress(file, nil)
	c, err = loaded(file, c, err)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return nil, exit.Usagef("there is no %s that says where the bridge is: name its address, as in 'mcp-bridge %s http://127.0.0.1:8808', or its file with -c", file, command)
	}
	return c, err
}

// noURL matches URLs without a scheme.
var noURL = regexp.MustCompile(`^[\w.-]+:\d+(/|$)|^[\w-]+(\.[\w-]+)+/(mcp|sse)$`)

// Remotely returns a question for the scheme if a text is a URL without a scheme, else "".
func Remotely(text string) string {
	if !noURL.MatchString(text) {
		return ""
	}
	return fmt.Sprintf("did you mean http://%s or https://%[1]s?", text)
}

// Forms lists the forms of a target, for errors.
const Forms = "Give a URL, an OpenAPI file, a configuration file with -c FILE, or a command after --"

// Useless refuses flags that have no effect without something else.
func Useless(f *pflag.FlagSet, with string, names ...string) error {
	for _, name := range names {
		if f.Changed(name) {
			return exit.Usagef("--%s needs %s", name, with)
		}
	}
	return nil
}
