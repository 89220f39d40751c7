package cache

import (
	"cmp"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// Options say for how long the answers of a server are cached. Zero values are the defaults.
type Options struct {
	// Off switches the cache off.
	Off bool `yaml:"-"`
	// Lists is how long the lists of a legacy server are fresh. A modern server says so
	// itself. 0 means 5 s.
	Lists time.Duration `yaml:"lists"`
	// Stale is how long a list that is no longer fresh is still served while the server is
	// stopped, starts, or fails. 0 means 1 h.
	Stale time.Duration `yaml:"stale"`
	// Shared says that the server lists the same for everybody. If it is false, a list serves
	// other principals only if the server says that the list is public. For resources and
	// for server/discover, the server must always say so.
	Shared bool `yaml:"shared"`
	// Bytes bounds the cached answers of the server. 0 means 16 MiB.
	Bytes int64 `yaml:"bytes"`
}

// complete returns the options with the defaults in place of zero values.
func (o Options) complete() Options {
	o.Lists, o.Stale, o.Bytes = cmp.Or(o.Lists, 5*time.Second), cmp.Or(o.Stale, time.Hour), cmp.Or(o.Bytes, 16<<20)
	return o
}

// Validate returns an error for each value out of bounds.
func (o *Options) Validate() error {
	var f guard.Faults
	f.NotNegative("lists", o.Lists)
	f.NotNegative("stale", o.Stale)
	f.AtLeast("bytes", o.Bytes, 1<<10)
	return errors.Join(f...)
}
