package gateway

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// guarded returns what the calls that go over a lane go through first, from the
// outside to the inside: see the order of wrappers in the design.
// The breaker stands between a lane and its connections, which it keeps from
// being opened too.
func (r *route) guarded(l *lane) bridge.Upstream {
	up := r.bounded(r.tried(l))
	l.asks = up.parkOne
	return r.cache.over(up, l.caller, l)
}

// tried is the inner part of that. It is all there is around a lane that serves
// one call: what is further outside stands around what makes such lanes.
func (r *route) tried(l *lane) bridge.Upstream {
	return r.retrying(l)
}

// What follows are the settings of what guards a server, and the other servers
// from it. Zero values are the defaults.

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

// Limits bound the calls to one server.
type Limits struct {
	// Calls is how many may be under way. 0 means 512.
	Calls int `yaml:"calls"`
	// Queue is how many more may wait for a place. 0 means as many as Calls.
	Queue int `yaml:"queue"`
	// Wait is how long one may wait for a place. 0 means 30 s.
	Wait time.Duration `yaml:"wait"`
	// PerPrincipal is how many of one principal may be under way or wait. 0 means
	// no limit. It has no meaning without access rules.
	PerPrincipal int `yaml:"per_principal"`
	// Rate is how often a principal may call, everybody together without access
	// rules. The zero Rate means no limit.
	Rate Rate `yaml:"rate"`
	// Tools are such limits for tools, by patterns of the server's own names as in
	// Filter. All that match count.
	Tools map[string]Rate `yaml:"tools"`
}

// Retry says which calls are made again that the server may have got.
type Retry struct {
	// Off makes none again.
	Off bool `yaml:"-"`
	// Attempts is how often a call is made at most. 0 means 2.
	Attempts int `yaml:"attempts"`
	// Tools is whether that is so for tools too that the server says are read-only
	// or idempotent. Otherwise it is only so for what lists, reads and asks for a
	// sign of life (protocol.md D0.8).
	Tools bool `yaml:"tools"`
}

// PerPrincipal bounds what one principal may have in the whole bridge. It has no
// meaning without access rules, where everybody is one principal.
type PerPrincipal struct {
	// Sessions is how many may be open. 0 means 1,000.
	Sessions int `yaml:"sessions"`
	// Calls is how many may be under way. 0 means 512.
	Calls int `yaml:"calls"`
	// Rate is how often it may call. The zero Rate means no limit.
	Rate Rate `yaml:"rate"`
}

// Grant is what a principal may use. Patterns are as in Filter.
type Grant struct {
	// Servers are patterns of names of servers; empty means all.
	Servers []string
	// Allow and Deny are patterns of tools, by the names that clients see at the
	// server itself. Deny wins; an empty Allow means all.
	Allow, Deny []string
}

// Rate is how often something may be done.
type Rate struct {
	PerSecond float64 // 0 means no limit
	Burst     int     // at once, after a pause; at least 1
}

// ParseRate reads a rate such as 10/s, 600/m or 1000/h, which may be followed by
// how much may come at once: "10/s burst 50". Without that it is what may come
// within a second, and at least 1.
func ParseRate(s string) (Rate, error) {
	bad := errors.New(`must be a number and a time, such as 10/s, 600/m or 1000/h, or "10/s burst 50"`)
	text, burst, bursts := strings.Cut(s, " burst ")
	n, unit, ok := strings.Cut(text, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
	if !ok || err != nil || per == 0 || !(v > 0 && v < 1e9) {
		return Rate{}, bad
	}
	r := Rate{PerSecond: v / per, Burst: max(1, int(v/per))}
	if bursts {
		if r.Burst, err = strconv.Atoi(strings.TrimSpace(burst)); err != nil || r.Burst < 1 {
			return Rate{}, bad
		}
	}
	return r, nil
}

// String returns the rate as ParseRate reads it.
func (r Rate) String() string {
	if r.PerSecond == 0 {
		return "none"
	}
	n, unit := r.PerSecond, "s"
	for _, longer := range []string{"m", "h"} {
		if n >= 1 {
			break
		}
		n, unit = n*60, longer
	}
	if whole := math.Round(n); math.Abs(n-whole) < 1e-9*whole { // 5/3600*3600 is not quite 5
		n = whole
	}
	s := strconv.FormatFloat(n, 'f', -1, 64) + "/" + unit
	if r.Burst != max(1, int(r.PerSecond)) {
		s += " burst " + strconv.Itoa(r.Burst)
	}
	return s
}

// faults says which of some settings are out of bounds, each as "KEY RULE".
type faults []error

func (f *faults) atLeast(key string, v, least int64) {
	if v != 0 && v < least {
		*f = append(*f, fmt.Errorf("%s is %d: must be at least %d", key, v, least))
	}
}

func (f *faults) positive(key string, v time.Duration) {
	if v < 0 {
		*f = append(*f, fmt.Errorf("%s is %v: must not be negative", key, v))
	}
}

// Validate reports what is out of bounds.
func (c *Cache) Validate() error {
	var f faults
	f.positive("lists", c.Lists)
	f.positive("stale", c.Stale)
	f.atLeast("bytes", c.Bytes, 1<<10)
	return errors.Join(f...)
}

// Validate reports what is out of bounds.
func (b *Breaker) Validate() error {
	var f faults
	f.atLeast("failures", int64(b.Failures), 1)
	f.atLeast("percent", int64(b.Percent), 1)
	if b.Percent > 100 {
		f = append(f, fmt.Errorf("percent is %d: must be at most 100", b.Percent))
	}
	f.atLeast("calls", int64(b.Calls), 1)
	f.positive("window", b.Window)
	f.positive("pause", b.Pause)
	f.positive("slow", b.Slow)
	return errors.Join(f...)
}

// Validate reports what is out of bounds.
func (l *Limits) Validate() error {
	var f faults
	f.atLeast("calls", int64(l.Calls), 1)
	f.atLeast("queue", int64(l.Queue), 1)
	f.positive("wait", l.Wait)
	f.atLeast("per_principal", int64(l.PerPrincipal), 1)
	return errors.Join(f...)
}

// Validate reports what is out of bounds.
func (r *Retry) Validate() error {
	var f faults
	f.atLeast("attempts", int64(r.Attempts), 1)
	if r.Attempts > 5 {
		f = append(f, fmt.Errorf("attempts is %d: must be at most 5", r.Attempts))
	}
	return errors.Join(f...)
}

// Validate reports what is out of bounds.
func (p *PerPrincipal) Validate() error {
	var f faults
	f.atLeast("sessions", int64(p.Sessions), 1)
	f.atLeast("calls", int64(p.Calls), 1)
	return errors.Join(f...)
}
