package flags

import (
	"errors"
	"io/fs"

	"github.com/mcp-bridge/bridge/cmd/bridge/internal/exit"
	"github.com/mcp-bridge/bridge/config"
)

// DefaultFile is read when no file is named.
const DefaultFile = "bridge.yaml"

// Load reads a configuration file. Its faults are the user's.
func Load(file string) (*config.Config, error) {
	c, err := config.Load(file, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usagef("%w: name a file with -c, or use 'mcp-bridge run -- COMMAND', which needs none", err)
	case err != nil:
		return nil, exit.Usagef("the configuration has faults:\n%w", err)
	}
	return c, nil
}
