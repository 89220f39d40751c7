package cache

import (
	"cmp"
	"errors"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// Options say for how long what a server lists is kept. Zero values are the
// defaults.
type Options struct {
	// Off keeps nothing.
	Off bool `yaml:"-"`
	// Lists is for how long the lists of a server are fresh that does not say so
	// itself, as legacy ones do not. 0 means 60 s when the server announces their
	// changes and a connection is open that it can do so over, and 5 s otherwise.
	Lists time.Duration `yaml:"lists"`
	// Stale is for how long after that a list is still served while the server
	// cannot be had: it sleeps, starts, or fails. 0 means 1 h.
	Stale time.Duration `yaml:"stale"`
	// Shared says that the server lists the same for everybody. Otherwise lists,
	// and in any case resources and what the server says of itself, go to other
	// principals only when the server says that they are public.
	Shared bool `yaml:"shared"`
	// Bytes bounds what is kept of the server. 0 means 16 MiB.
	Bytes int64 `yaml:"bytes"`
}

// complete returns the options with the defaults in place of zero values.
func (o Options) complete() Options {
	o.Stale, o.Bytes = cmp.Or(o.Stale, time.Hour), cmp.Or(o.Bytes, 16<<20)
	return o
}

// Validate reports what is out of bounds.
func (o *Options) Validate() error {
	var f guard.Faults
	f.NotNegative("lists", o.Lists)
	f.NotNegative("stale", o.Stale)
	f.AtLeast("bytes", o.Bytes, 1<<10)
	return errors.Join(f...)
}
