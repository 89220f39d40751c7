package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Group offers some of the servers as one, at an address of its own.
type Group struct {
	// Servers are the names of its servers; at least one.
	Servers []string `yaml:"servers"`
	// Tools choose among the tools of the servers, by the names that clients see at the aggregate. Default: all.
	Tools Choice `yaml:"tools"`
	// Listing decides how the group offers its tools, as in Config.
	gateway.Listing
}

// checkGroups adds the broken rules about groups. Their names are those of addresses, as the names of servers are.
func (c *Config) checkGroups(all *breaches) {
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		group := "groups: " + name
		if err := checkName(name); err != nil {
			all.add(group, "is no name for an address: %s", strings.Replace(err.Error(), "a server's", "a group's", 1))
		}
		is := func(name string) func(Server) bool { return func(s Server) bool { return s.Name == name } }
		if slices.ContainsFunc(c.Servers, is(name)) || slices.Contains(c.off, name) {
			all.add(group, "is the name of a server too: choose another one, since both have the address /%s/mcp", name)
		}
		if len(c.Groups[name].Servers) == 0 {
			all.add(group, "has no servers: name at least one")
		}
		for i, one := range c.Groups[name].Servers {
			if !slices.ContainsFunc(c.Servers, is(one)) && !slices.Contains(c.off, one) {
				all.add(fmt.Sprintf("%s: servers: item %d", group, i+1), "is %q, but there is no such server", strict.Clip(one))
			}
		}
	}
}

// GatewayGroups returns the groups as package gateway has them, sorted by name.
func (c *Config) GatewayGroups() (all []gateway.Group) {
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		g := c.Groups[name]
		all = append(all, gateway.Group{
			Name:    name,
			Servers: g.Servers,
			Allow:   g.Tools.Allow,
			Deny:    g.Tools.Deny,
			Listing: g.Listing,
		})
	}
	return all
}
