package cache

import (
	"time"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Options say how long answers of a server are cached. Zero values are the defaults.
type Options struct {
	Off bool `yaml:"-"` // nothing is cached; a file says "off"
	// Lists is how long a list of a legacy server is fresh. 0 means 5 s. A modern server sends that time with each
	// list.
	Lists time.Duration `yaml:"lists" default:"5s" usually:"1m for rest, else 5s"`
	// Stale is how long the cache still uses a list that is no longer fresh, while the server is stopped, starting or
	// failing. 0 means 1 h.
	Stale time.Duration `yaml:"stale" default:"1h"`
	// Shared says that the server has the same lists for all principals. Without it, a list goes to other principals
	// only if the server says that the list is public. The answers to resources/read and server/discover always need
	// that.
	Shared bool `yaml:"shared"`
	// Bytes limits the total size of the cached answers. 0 means 16 MiB.
	Bytes int64 `yaml:"bytes" default:"16MiB"`
}

// complete returns the options with defaults in place of zero values.
func (o Options) complete() Options {
	setting.Fill(&o)
	return o
}
