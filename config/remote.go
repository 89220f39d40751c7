package config

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/adapters/httpclient"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Remote returns the settings of a server that is reached over HTTP, whichever
// kind it is; nil for other servers.
func (s *Server) Remote() *httpclient.Config {
	if s.HTTP != nil {
		return s.HTTP
	}
	return s.SSE
}

// EndsInSSE reports whether the path of an address ends in /sse, as that of
// servers that speak HTTP+SSE does by custom (protocol.md C2.9).
func EndsInSSE(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse")
}

// remoteBreaches are the rules for remote servers beyond those of their adapters.
func (s *Server) remoteBreaches() []breach {
	var all []breach
	if s.SSE != nil && s.SSE.Transport != "" && s.SSE.Transport != httpclient.TransportSSE {
		all = append(all, breach{"sse: transport", "", "must be sse or left out: for a server that speaks another one, write http instead of sse"})
	}
	for _, kind := range []struct {
		name string
		c    *httpclient.Config
	}{{"http", s.HTTP}, {"sse", s.SSE}} {
		if kind.c == nil {
			continue
		}
		names := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(kind.c.Headers)) {
			canonical := http.CanonicalHeaderKey(name)
			if names[canonical] {
				all = append(all, breach{kind.name + ": headers: " + name, "", "is there twice: upper and lower case are the same in the names of headers"})
			}
			names[canonical] = true
		}
		if kind.c.OAuth != nil && slices.ContainsFunc(s.Forward, func(f bridge.Forward) bool { return f.To == "Authorization" }) {
			all = append(all, breach{"forward", "", "sets the header Authorization, and so does " + kind.name + ": oauth: remove one of the two"})
		}
	}
	return all
}

// Warnings returns remarks about settings of the server that keep nothing from
// working, each beginning with the key that it is about.
func (s *Server) Warnings() []string {
	var all []string
	for _, r := range s.remarks() {
		all = append(all, r.key+" "+r.rule)
	}
	return all
}

func (s *Server) remarks() []breach {
	if s.Rest != nil {
		return s.restRemarks()
	}
	c, kind := s.Remote(), "http"
	if c == nil {
		return nil
	}
	if s.SSE != nil {
		kind = "sse"
	}
	var all []breach
	for _, f := range s.Forward {
		for name := range c.Headers {
			if http.CanonicalHeaderKey(name) == f.To {
				all = append(all, breach{"forward", "", fmt.Sprintf("sets the header %s, and so does headers: a client that does not send %s acts with the credentials that stand there", strict.Clip(f.To), strict.Clip(f.From))})
			}
		}
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" || isLocal(u.Hostname()) {
		return all
	}
	if c.OAuth != nil {
		return append(all, breach{kind + ": url", "", "is not encrypted: whoever is on the way can read the token; use https if the server has it"})
	}
	names := slices.Collect(maps.Keys(c.Headers))
	for _, f := range s.Forward {
		names = append(names, f.To)
	}
	slices.Sort(names)
	for _, name := range names {
		if isCredential(name) {
			return append(all, breach{kind + ": url", "", fmt.Sprintf("is not encrypted: whoever is on the way can read the header %s; use https if the server has it", strict.Clip(name))})
		}
	}
	return all
}

// isCredential guesses whether a header holds what others must not see.
func isCredential(header string) bool {
	header = strings.ToLower(header)
	return slices.ContainsFunc([]string{"auth", "token", "secret", "key", "password", "cookie", "credential"}, func(part string) bool {
		return strings.Contains(header, part)
	})
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// visitClient looks at the key of a client of OAuth.
func (d *decoder) visitClient(sec *strict.Section, c *oauth.Client) {
	if remark, fault := c.Look(d.absolute); fault != nil {
		d.Fault(sec.Marks["key_file"].Line, "%skey_file is %s: %s", sec.Where, sec.Marks["key_file"].Shown, d.Redact(fault.Error()))
	} else if remark != "" {
		d.Warn(sec.Marks["key_file"].Line, "%skey_file is %s: %s", sec.Where, sec.Marks["key_file"].Shown, remark)
	}
}

// visitRemote looks at the files that belong to a remote server. One that is not
// what it should be is a warning, as is a command that is not found: it may be
// replaced, and only this server depends on it.
func (d *decoder) visitRemote(sec *strict.Section, c *httpclient.Config) {
	good := true
	for _, f := range []struct {
		key  string
		path *string
	}{{"ca_file", &c.CAFile}, {"cert_file", &c.CertFile}, {"key_file", &c.KeyFile}} {
		if *f.path == "" {
			continue
		}
		*f.path = d.absolute(*f.path)
		m := sec.Marks[f.key]
		if info, err := os.Stat(*f.path); err != nil {
			d.Fault(m.Line, "%s%s is %s: %s", sec.Where, f.key, m.Shown, reason(err))
			good = false
		} else if info.IsDir() {
			d.Fault(m.Line, "%s%s is %s: is a directory", sec.Where, f.key, m.Shown)
			good = false
		}
	}
	if !good || c.Validate() != nil || c.CAFile == "" && c.CertFile == "" {
		return
	}
	if _, err := httpclient.New(*c); err != nil {
		message := d.Redact(strings.ReplaceAll(err.Error(), "\n", " "))
		name, _, _ := strings.Cut(message, ":")
		name, _, _ = strings.Cut(name, " ") // "cert_file and key_file"
		m, _ := sec.At(name)
		d.Warn(m.Line, "%s%s", sec.Where, message)
	}
}
