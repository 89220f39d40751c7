package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Address returns the listen address that a text means. A port alone, such as 8808, means that port on this machine
// only; :8808 means every network. Other texts stay as they are.
func Address(listen string) string { return address.Listen(listen) }

// Loopback reports whether only this machine can reach a listen address. An empty host means every network, so the
// result is false.
func Loopback(listen string) bool { return address.Loopback(listen) }

// Open reports whether other machines can reach the bridge, and use everything without a key.
func (c *Config) Open() bool { return !Loopback(c.Listen) && len(c.Access) == 0 }

// OperatorsListen returns the address that serves the page and the API for operators.
func (c *Config) OperatorsListen() string { return cmp.Or(c.ConsoleListen, c.Listen) }

func checkName(name string) error {
	if name == "" || len(name) > 64 || name[0] == '-' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return errors.New("a server's name has 1 to 64 lower-case letters, digits and '-', and begins with a letter or a digit")
	}
	if isReserved(name) {
		return errors.New("this name is reserved for URLs of the bridge: choose another one")
	}
	return nil
}

func isReserved(name string) bool {
	return slices.Contains([]string{"mcp", "sse", "messages", "hooks", "ui", "healthz", "readyz", "metrics"}, name)
}

// A breach is a rule that the value of a key breaks, alone or together with the value of another key.
type breach struct{ key, other, rule string }

type breaches []breach

// add adds a rule that a key breaks alone.
func (b *breaches) add(key, format string, args ...any) {
	b.with(key, "", fmt.Sprintf(format, args...))
}

// with adds a rule that a key breaks together with the key other.
func (b *breaches) with(key, other, rule string) { *b = append(*b, breach{key, other, rule}) }

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

// checkAmong returns the rules about a server that are broken together with other parts of the configuration. owners
// maps the prefixes of the servers that were checked before to their names.
func (c *Config) checkAmong(s *Server, owners map[string]string) (all breaches) {
	if owner, taken := owners[s.Prefix]; taken && owner != s.Name {
		all.add("prefix", "is that of server %q too: choose another one, since the names of their tools would be the same", owner)
	} else if s.Prefix != "" {
		owners[s.Prefix] = s.Name
	}
	c.checkIdentity(&all, s)
	c.checkReferences(&all, s)
	switch {
	case s.Place != PlaceWorkers:
	case s.Stdio == nil:
		all.add("place", "cannot be workers for this server: leave it out, since only stdio has a process that workers can run")
	case !c.Cluster.Enabled():
		all.add("place", "is workers, which needs a cluster: add cluster, or leave place out")
	}
	return all
}

// maxPrefix is the longest prefix that a file may set. Some clients accept at most 64 characters for a prefix and a
// name.
const maxPrefix = 40

// breaches returns the broken rules about several keys of a server.
func (s *Server) breaches() (all breaches) {
	if s.MaxTimeout < s.Timeout {
		all.with("timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set")
	}
	// The default prefix may be longer: a long name is no fault of a server that is not used at the aggregate.
	if rest, own := strings.CutPrefix(s.Prefix, s.Name); len(s.Prefix) > maxPrefix && (!own || len(rest) > 8) {
		all.add("prefix", "must not be longer than %d characters", maxPrefix)
	}
	switch modern := era.IsModern(s.Revision); {
	case (s.SSE != nil || s.HTTP != nil && s.HTTP.Transport == remote.TransportSSE) && (modern || s.Era == EraModern):
		all.with("era", "revision", "is not possible over HTTP+SSE: use http in place of sse, or leave it out")
	case modern && s.Era == EraLegacy, s.Revision != "" && !modern && s.Era == EraModern:
		all.with("revision", "era", "does not belong to the era that is set: leave one of the two out")
	}
	s.checkForwards(&all)
	checkFilter(&all, "tools", s.Tools)
	checkFilter(&all, "prompts", s.Prompts)
	checkFilter(&all, "resources", s.Resources)
	s.checkRest(&all)
	s.checkRemote(&all)
	return all
}

// kindKeys returns the keys of all kinds of servers.
var kindKeys = sync.OnceValue(func() []string {
	var all []string
	for _, f := range setting.Fields(reflect.TypeFor[Server]()) {
		if f.Type.Kind() == reflect.Pointer {
			all = append(all, f.Key)
		}
	}
	return all
})

// kinds returns the keys of the kinds that the server has.
func (s *Server) kinds() []string {
	var set []string
	if s.Adapter != nil {
		set = append(set, "Adapter")
	}
	v := reflect.ValueOf(s).Elem()
	for _, f := range setting.Fields(v.Type()) {
		if field := v.FieldByIndex(f.Index); field.Kind() == reflect.Pointer && !field.IsNil() {
			set = append(set, f.Key)
		}
	}
	return set
}

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
