package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Cluster lets several instances serve the same clients behind any load balancer.
type Cluster struct {
	// Redis is the address of the store that all instances use.
	Redis string `yaml:"redis"`
	// CAFile names a file of PEM certificates that may sign the store's.
	CAFile string `yaml:"ca_file"`
	// Secret is known to the instances, and to nobody else: whoever knows it is one.
	Secret string `yaml:"secret"`
	// Secrets, in the place of Secret, are the one that is used and older ones that are
	// accepted still.
	Secrets []string `yaml:"secrets"`
	// Listen is the address for the other instances, HOST:PORT.
	Listen string `yaml:"listen"`
	// Advertise is where they reach this instance and no other: HOST or HOST:PORT.
	// Default: Listen.
	Advertise string `yaml:"advertise"`
	// Role is what this instance does: cluster.RoleAll (the default), cluster.RoleFront or
	// cluster.RoleWorker.
	Role string `yaml:"role"`
	// KeyPrefix begins all keys in the store. Default "bridge".
	KeyPrefix string `yaml:"key_prefix"`
	// Lease is how long an instance may be silent before others take over its sessions:
	// 3s to 1m. Default 6s.
	Lease time.Duration `yaml:"lease"`
	// StoreLost says what to do while no instance reaches the store: StoreLostServe (the
	// default), or StoreLostStop.
	StoreLost string `yaml:"store_lost"`
	// Replay says whether streams of clients are copied to the store: ReplayOn (the
	// default), or ReplayOff.
	Replay string `yaml:"replay"`
}

// Values of Server.Place.
const (
	PlaceHere    = "here"    // at the instance that needs it
	PlaceWorkers = "workers" // at one whose Cluster.Role is not cluster.RoleFront
)

// Values of Cluster.Replay.
const (
	ReplayOn  = "on"  // the next owner of a session goes on with them
	ReplayOff = "off" // what a client has missed ends with the owner
)

// Values of Cluster.StoreLost.
const (
	StoreLostServe = "serve" // go on with the sessions that each has
	StoreLostStop  = "stop"  // turn clients away
)

// minSecret is how long the secret of a cluster has to be.
const minSecret = 32 // characters

// Enabled reports whether there is a cluster.
func (c *Cluster) Enabled() bool { return c.Redis != "" }

// Keys returns the secrets: the first is used, and all are accepted.
func (c *Cluster) Keys() []string {
	if c.Secret != "" {
		return []string{c.Secret}
	}
	return c.Secrets
}

// check adds the rules for what belongs together, and for what is not shown. listen is
// that for clients, and works says that there is something for workers to run.
func (c *Cluster) check(all *breaches, listen string, works bool) {
	if !c.Enabled() {
		return // checkIncomplete says so, where a file has something of it
	}
	add := func(key, rule string) { all.with("cluster: "+key, "", rule) }
	if _, err := redis.ParseURL(c.Redis); err != nil {
		add("redis", err.Error())
	}
	for i, secret := range c.Keys() {
		if len(secret) < minSecret {
			key := "secret"
			if c.Secret == "" {
				key = fmt.Sprintf("secrets: item %d", i+1)
			}
			add(key, "must have at least 32 characters: whoever guesses it can read and send what clients do; openssl rand -hex 32 makes one")
		}
	}
	if (c.Secret == "") == (len(c.Secrets) == 0) {
		add("secret", "is missing: set either secret or secrets, with the same text for all instances; openssl rand -hex 32 makes one")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case c.Listen == "":
		add("listen", "is missing: it is where the other instances reach this one, such as :8809")
	case err == nil && address.Overlap(c.Listen, listen):
		add("listen", "is where clients are served too: choose another port")
	case err == nil && c.Advertise == "":
		if a, err := netip.ParseAddr(host); host == "localhost" || address.Everywhere(host) || err == nil && a.IsLoopback() {
			add("advertise", "is missing: say where the other instances reach this one and no other, such as ${POD_IP}, since listen is no address that they could use")
		}
	}
	if c.Role == cluster.RoleWorker && !works {
		add("role", "is worker, but there is nothing to run: set place: workers at a server with stdio")
	}
	at := c.Advertise
	if host, _, err := net.SplitHostPort(at); err == nil {
		at = host
	}
	if a, err := netip.ParseAddr(strings.Trim(at, "[]")); strings.ContainsAny(at, "/@ ") || err == nil && a.IsUnspecified() {
		add("advertise", "must be HOST or HOST:PORT, an address that leads to this instance")
	}
}

// resolveCluster says what only a file can have wrong.
func (d *decoder) resolveCluster(sec *strict.Section, c *Cluster) {
	if c.CAFile != "" {
		c.CAFile = d.absolute(c.CAFile)
		if _, err := readFile(c.CAFile); err != nil {
			d.unusable(sec, "ca_file", reason(err))
		}
	}
}
