package config

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/address"
)

// EndsInSSE reports whether the path of a URL ends in /sse, as paths for HTTP+SSE usually do (protocol.md C2.9).
func EndsInSSE(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse")
}

// checkRemote adds the broken rules about a remote server that its adapter does not check.
func (s *Server) checkRemote(all *breaches) {
	if s.SSE != nil && s.SSE.Transport != "" && s.SSE.Transport != remote.TransportSSE {
		all.add("sse: transport", "must be sse or left out: for a server with another transport, write http instead of sse")
	}
	for _, kind := range []struct {
		name string
		c    *remote.Config
	}{{"http", s.HTTP}, {"sse", s.SSE}} {
		if kind.c == nil {
			continue
		}
		names := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(kind.c.Headers)) {
			canonical := http.CanonicalHeaderKey(name)
			if names[canonical] {
				all.add(kind.name+": headers: "+name, "is there twice: the names of headers ignore upper and lower case")
			}
			names[canonical] = true
		}
		if kind.c.OAuth != nil && slices.ContainsFunc(s.Forward, func(f bridge.Forward) bool { return f.To == "Authorization" }) {
			all.add("forward", "sets the header Authorization, and so does %s: oauth: remove one of the two", kind.name)
		}
	}
}

// isCredential guesses from its name whether a header holds a credential.
func isCredential(header string) bool {
	header = strings.ToLower(header)
	return slices.ContainsFunc([]string{"auth", "token", "secret", "key", "password", "cookie", "credential"}, func(part string) bool {
		return strings.Contains(header, part)
	})
}

// unencrypted reports whether requests to a URL cross the network without encryption.
func unencrypted(at string) bool {
	u, err := url.Parse(at)
	return err == nil && u.Scheme == "http" && !address.Local(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")))
}
