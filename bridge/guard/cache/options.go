package cache

import (
	"cmp"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// Options say how long answers of a server are cached. Zero values are the defaults.
type Options struct {
	Off bool `yaml:"-"` // nothing is cached; a file says "off"
	// Lists is how long a list of a legacy server is fresh. 0 means 5 s. A modern server sends that time with each
	// list.
	Lists time.Duration `yaml:"lists"`
	// Stale is how long the cache still uses a list that is no longer fresh, while the server is stopped, starting or
	// failing. 0 means 1 h.
	Stale time.Duration `yaml:"stale"`
	// Shared says that the server has the same lists for all principals. Without it, a list goes to other principals
	// only if the server says that the list is public. The answers to resources/read and server/discover always need
	// that.
	Shared bool `yaml:"shared"`
	// Bytes limits the total size of the cached answers. 0 means 16 MiB.
	Bytes int64 `yaml:"bytes"`
}

// complete returns the options with defaults in place of zero values.
func (o Options) complete() Options {
	o.Lists, o.Stale, o.Bytes = cmp.Or(o.Lists, 5*time.Second), cmp.Or(o.Stale, time.Hour), cmp.Or(o.Bytes, 16<<20)
	return o
}

// Validate returns an error for each value that is out of bounds.
func (o *Options) Validate() error {
	var f guard.Faults
	f.NotNegative("lists", o.Lists)
	f.NotNegative("stale", o.Stale)
	f.AtLeast("bytes", o.Bytes, 1<<10)
	return errors.Join(f...)
}
