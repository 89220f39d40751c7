package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/bridge/bridge/guard"
)

// What follows are settings of what guards a server, and the other servers from
// it. Zero values are the defaults.

// Cache says for how long what a server lists is kept.
type Cache struct {
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

// Breaker says when a server is left alone because it fails, and for how long.
type Breaker struct {
	// Off never leaves it alone.
	Off bool `yaml:"-"`
	// Failures is how many in a row are too many. 0 means 5.
	Failures int `yaml:"failures"`
	// Percent is which part of the calls within Window may fail. 0 means 60.
	Percent int `yaml:"percent"`
	// Calls is how many there must have been within Window before Percent counts.
	// 0 means 20.
	Calls int `yaml:"calls"`
	// Window is the time that Percent and Calls look at. 0 means 30 s.
	Window time.Duration `yaml:"window"`
	// Pause is how long the server is left alone at first. It doubles with each
	// trial that fails, up to 2 min. 0 means 5 s.
	Pause time.Duration `yaml:"pause"`
	// Slow is how long a call may take before it counts as a failure. 0 means as
	// long as it may take at all.
	Slow time.Duration `yaml:"slow"`
}

// Grant is what a principal may use. Patterns are as in Filter.
type Grant struct {
	// Servers are patterns of names of servers; empty means all.
	Servers []string
	// Allow and Deny are patterns of tools, by the names that clients see at the
	// server itself. Deny wins; an empty Allow means all.
	Allow, Deny []string
}

// Validate reports what is out of bounds.
func (c *Cache) Validate() error {
	var f guard.Faults
	f.NotNegative("lists", c.Lists)
	f.NotNegative("stale", c.Stale)
	f.AtLeast("bytes", c.Bytes, 1<<10)
	return errors.Join(f...)
}

// Validate reports what is out of bounds.
func (b *Breaker) Validate() error {
	var f guard.Faults
	f.AtLeast("failures", int64(b.Failures), 1)
	f.AtLeast("percent", int64(b.Percent), 1)
	if b.Percent > 100 {
		f = append(f, fmt.Errorf("percent is %d: must be at most 100", b.Percent))
	}
	f.AtLeast("calls", int64(b.Calls), 1)
	f.NotNegative("window", b.Window)
	f.NotNegative("pause", b.Pause)
	f.NotNegative("slow", b.Slow)
	return errors.Join(f...)
}
