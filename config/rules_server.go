package config

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/internal/strict"
)

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

// maxPrefix is the longest prefix that a file may set. Some clients accept at most 64 characters for a prefix and a
// name.
const maxPrefix = 40

// Warnings returns remarks about valid settings of the server. Each begins with the key that it is about.
func (s *Server) Warnings() []string {
	var all []string
	for _, b := range s.remarks() {
		all = append(all, b.key+" "+b.rule)
	}
	return all
}

// remarks returns warnings about a container without standard input, and about credentials and forwarded headers of the
// server.
func (s *Server) remarks() (all breaches) {
	if s.Stdio != nil && closedContainer(s.Stdio) {
		all.add("stdio: args", "run a container without -i: it gets no standard input, and ends at once; write run, -i")
	}
	if s.Rest != nil {
		return s.restRemarks()
	}
	c, kind := s.Remote(), "http"
	if c == nil {
		return all
	}
	if s.SSE != nil {
		kind = "sse"
	}
	for _, f := range s.Forward {
		for name := range c.Headers {
			if http.CanonicalHeaderKey(name) == f.To {
				all.add("forward", "sets the header %s, and so does headers: a client that does not send %s acts with the credentials of headers", strict.Clip(f.To), strict.Clip(f.From))
			}
		}
	}
	if !unencrypted(c.URL) {
		return all
	}
	if c.OAuth != nil {
		all.add(kind+": url", "is not encrypted: anybody on the network path can read the token; use https if the server has it")
		return all
	}
	names := slices.Collect(maps.Keys(c.Headers))
	for _, f := range s.Forward {
		names = append(names, f.To)
	}
	slices.Sort(names)
	if i := slices.IndexFunc(names, isCredential); i >= 0 {
		all.add(kind+": url", "is not encrypted: anybody on the network path can read the header %s; use https if the server has it", strict.Clip(names[i]))
	}
	return all
}

// closedContainer reports whether a command runs a container without -i, which keeps standard input open.
func closedContainer(c *stdio.Config) bool {
	program := strings.TrimSuffix(c.Command[strings.LastIndexAny(c.Command, `/\`)+1:], ".exe")
	args := c.Args
	if len(args) > 0 && args[0] == "container" {
		args = args[1:]
	}
	if !slices.Contains([]string{"docker", "podman", "nerdctl"}, program) || len(args) == 0 || args[0] != "run" {
		return false
	}
	return !slices.ContainsFunc(args[1:], func(arg string) bool {
		return withInput.MatchString(arg) // the image's own arguments count, too: only the program knows where they begin
	})
}

// withInput matches a flag of docker run that keeps standard input open, alone or joined with other flags.
var withInput = regexp.MustCompile(`^(--interactive(=true)?|-[dtPq]*i.*)$`)
