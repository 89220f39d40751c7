package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Validate checks settings that a program made, or changed after Load, by the rules for files. It changes nothing, and
// joins all faults in its error.
func (c *Config) Validate() error {
	all := *c
	all.Servers = nil // they follow, each with its name
	errs := setting.Faults(&all, texts)
	for _, b := range c.breaches() {
		errs = append(errs, fmt.Errorf("%s %s", b.key, b.rule))
	}
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("there are no servers"))
	}
	names, owners := map[string]bool{}, map[string]string{}
	for i := range c.Servers {
		s := &c.Servers[i]
		where := fmt.Sprintf("server %q: ", s.Name)
		if err := checkName(s.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s%w", where, err))
		}
		if names[s.Name] {
			errs = append(errs, errors.New(where+"there are two of this name"))
		}
		names[s.Name] = true
		if s.Unusable != "" { // its settings are incomplete
			continue
		}
		if n := len(s.kinds()); n != 1 {
			errs = append(errs, fmt.Errorf("%sexactly one kind must be set, there are %d", where, n))
		}
		for _, err := range setting.Faults(s, texts) {
			errs = append(errs, fmt.Errorf("%s%w", where, err))
		}
		for _, b := range append(s.breaches(), c.checkAmong(s, owners)...) {
			errs = append(errs, fmt.Errorf("%s%s %s", where, b.key, b.rule))
		}
	}
	return errors.Join(errs...)
}

// breaches returns the broken rules about several keys of the file.
func (c *Config) breaches() (all breaches) {
	if c.MaxInFlight < c.MaxMessage {
		all.with("max_message", "max_bytes_in_flight", "must not be larger than max_bytes_in_flight: such a message could never pass")
	}
	c.Cluster.check(&all, c.Listen, slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Place == PlaceWorkers }))
	c.checkOAuth(&all)
	c.checkAccess(&all)
	c.checkGroups(&all)
	return all
}
