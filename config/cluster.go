package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/cluster"
)

// Cluster lets several instances serve the same clients behind any load balancer.
type Cluster struct {
	// Redis is the URL of the store that all instances share.
	Redis string `yaml:"redis"`
	// CAFile is a file of PEM certificates to trust for the store.
	CAFile string `yaml:"ca_file"`
	// Secret proves that an instance belongs to the cluster. Only the instances may know it.
	Secret string `yaml:"secret"`
	// Secrets replaces Secret. The bridge uses the first secret, and also accepts the others.
	Secrets []string `yaml:"secrets"`
	// Listen is the address for the other instances, as HOST:PORT.
	Listen string `yaml:"listen" text:"listen"`
	// Advertise is the address, as HOST or HOST:PORT, at which the other instances reach this instance and no other.
	// Default: Listen.
	Advertise string `yaml:"advertise" usually:"listen"`
	// Role is the role of this instance: cluster.RoleAll (the default), cluster.RoleFront or
	// cluster.RoleWorker.
	Role string `yaml:"role" default:"all" one_of:"all front worker"`
	// KeyPrefix is the beginning of all keys in the store. Default "bridge".
	KeyPrefix string `yaml:"key_prefix" default:"bridge" text:"key_prefix"`
	// Lease is the time without a sign of life of an instance after which other instances take over its sessions: 3s to
	// 1m. Default 6s.
	Lease time.Duration `yaml:"lease" default:"6s" min:"3s" max:"1m"`
	// StoreLost sets the behaviour while no instance reaches the store: StoreLostServe (the
	// default) or StoreLostStop.
	StoreLost string `yaml:"store_lost" default:"serve" one_of:"serve stop"`
	// Replay sets whether streams of clients are copied to the store: ReplayOn (the default) or
	// ReplayOff.
	Replay string `yaml:"replay" default:"on" one_of:"on off"`
}

// PlaceHere and PlaceWorkers are the values of Server.Place.
const (
	PlaceHere    = "here"    // at the instance that serves the caller
	PlaceWorkers = "workers" // at any instance with another Cluster.Role than cluster.RoleFront
)

// ReplayOn and ReplayOff are the values of Cluster.Replay.
const (
	ReplayOn  = "on"  // the next owner of a session continues the streams
	ReplayOff = "off" // missed messages are lost with the owner
)

// StoreLostServe and StoreLostStop are the values of Cluster.StoreLost.
const (
	StoreLostServe = "serve" // each instance serves its own sessions
	StoreLostStop  = "stop"  // instances refuse clients
)

// minSecret is the minimum length of the secret of a cluster, in characters.
const minSecret = 32

// Enabled reports whether there is a cluster.
func (c *Cluster) Enabled() bool { return c.Redis != "" }

// Keys returns the secrets. The bridge uses the first, and accepts all.
func (c *Cluster) Keys() []string {
	if c.Secret != "" {
		return []string{c.Secret}
	}
	return c.Secrets
}

// check adds the broken rules about several keys, and about keys whose values must not be shown. listen is
// Config.Listen. works reports whether a server has place: workers.
func (c *Cluster) check(all *breaches, listen string, works bool) {
	if !c.Enabled() {
		return // checkIncomplete reports a section without redis
	}
	add := func(key, rule string) { all.with("cluster: "+key, "", rule) }
	if _, err := cluster.ParseURL(c.Redis); err != nil {
		add("redis", err.Error())
	}
	for i, secret := range c.Keys() {
		if len(secret) < minSecret {
			key := "secret"
			if c.Secret == "" {
				key = fmt.Sprintf("secrets: item %d", i+1)
			}
			add(key, "must have at least 32 characters: whoever guesses it can act for all clients; openssl rand -hex 32 makes one")
		}
	}
	if (c.Secret == "") == (len(c.Secrets) == 0) {
		add("secret", "is missing: set either secret or secrets, with the same text for all instances; openssl rand -hex 32 makes one")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case c.Listen == "":
		add("listen", "is missing: the other instances reach this one there; write an address such as :8809")
	case err == nil && address.Overlap(c.Listen, listen):
		add("listen", "is also the address for clients: choose another port")
	case err == nil && c.Advertise == "":
		if a, err := netip.ParseAddr(host); host == "localhost" || address.Everywhere(host) || err == nil && a.IsLoopback() {
			add("advertise", "is missing: name the address at which the other instances reach this one and no other, such as ${POD_IP}, since they cannot use that of listen")
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
		add("advertise", "must be HOST or HOST:PORT, an address of this instance")
	}
}
