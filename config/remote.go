package config

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// Remote returns the settings of a server of kind http or sse; nil for other servers.
func (s *Server) Remote() *remote.Config {
	if s.HTTP != nil {
		return s.HTTP
	}
	return s.SSE
}

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

// isCredential guesses from its name whether a header holds a credential.
func isCredential(header string) bool {
	header = strings.ToLower(header)
	return slices.ContainsFunc([]string{"auth", "token", "secret", "key", "password", "cookie", "credential"}, func(part string) bool {
		return strings.Contains(header, part)
	})
}

// keyFile are settings with the file of a private key.
type keyFile interface {
	Look(absolute func(string) string) (setting, remark string, fault error)
}

// resolveKey makes the path of the key file absolute, and checks the file.
func (d *decoder) resolveKey(sec *strict.Section, k keyFile) {
	if setting, remark, fault := k.Look(d.absolute); fault != nil {
		d.unusable(sec, setting, d.Redact(fault.Error()))
	} else if remark != "" {
		d.Warn(sec.Marks[setting].Line, "%s%s is %s: %s", sec.Where, setting, sec.Marks[setting].Shown, remark)
	}
}

// resolveRemote makes the paths of a remote server's files absolute, and checks the files. Wrong content is only a
// warning: someone may replace the file later, and only this server needs it.
func (d *decoder) resolveRemote(sec *strict.Section, c *remote.Config) {
	good := true
	for _, f := range []struct {
		key  string
		path *string
	}{{"ca_file", &c.CAFile}, {"cert_file", &c.CertFile}, {"key_file", &c.KeyFile}} {
		if *f.path == "" {
			continue
		}
		*f.path = d.absolute(*f.path)
		if info, err := os.Stat(*f.path); err != nil {
			d.unusable(sec, f.key, files.Reason(err).Error())
			good = false
		} else if info.IsDir() {
			d.unusable(sec, f.key, "is a directory")
			good = false
		}
	}
	if !good || c.Validate() != nil || c.CAFile == "" && c.CertFile == "" {
		return
	}
	if _, err := remote.New(*c); err != nil {
		message := d.Redact(strings.ReplaceAll(err.Error(), "\n", " "))
		name, _, _ := strings.Cut(message, ":")
		name, _, _ = strings.Cut(name, " ") // "cert_file and key_file"
		m, _ := sec.At(name)
		d.Warn(m.Line, "%s%s", sec.Where, message)
	}
}
