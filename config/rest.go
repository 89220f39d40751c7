package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/internal/address"
)

// hookFault returns the fault of a hook, or "".
func hookFault(h *rest.Hook) string {
	u, err := url.Parse(h.URL)
	switch {
	case (len(h.Command) == 0) == (h.URL == ""):
		return "needs one of command and url in hook"
	case h.URL == "" && h.Command[0] == "":
		return "needs a program in command of hook"
	case h.URL == "" && len(h.Headers) > 0:
		return "has headers in hook, which are for url"
	case h.URL != "" && len(h.Env) > 0:
		return "has env in hook, which is for command"
	case h.URL != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https"):
		return "needs an address such as https://sign.example.com/headers as url in hook"
	}
	return ""
}

// checkRest adds the broken rules about an HTTP API that its adapter does not check.
func (s *Server) checkRest(all *breaches) {
	if s.Rest == nil {
		return
	}
	if s.Era != EraAuto || s.Revision != "" {
		all.with("era", "revision", "has no effect with rest: the bridge itself is the server, for all clients; leave it out")
	}
	const tooLong = "must not be longer than max_timeout, which is 1h unless it is set"
	for _, e := range s.Rest.Tools {
		if e.Timeout > s.MaxTimeout {
			all.with("rest: tools: "+e.Key+": timeout", "max_timeout", tooLong)
		}
	}
	for i := range s.Rest.Rules {
		if s.Rest.Rules[i].Entry.Timeout > s.MaxTimeout {
			all.with(fmt.Sprintf("rest: rules: item %d: timeout", i+1), "max_timeout", tooLong)
		}
	}
}

// restRemarks returns warnings about the credentials of an HTTP API.
func (s *Server) restRemarks() (all breaches) {
	c := s.Rest
	secret := c.Auth.Default != nil || len(c.Auth.Schemes) > 0
	for name, value := range c.Headers {
		secret = secret || isCredential(name) || slices.ContainsFunc(c.Secrets, func(s string) bool { return strings.Contains(value, s) })
	}
	for _, f := range s.Forward {
		secret = secret || isCredential(f.To)
	}
	if secret && unencrypted(c.BaseURL) {
		all.add("rest: base_url", "is not encrypted: anybody on the network path can read the credentials; use https if the API has it")
	}
	if secret && c.BaseURL == "" && address.IsHTTP(c.OpenAPI) {
		all.add("rest: openapi", "is a URL, and base_url is missing: set base_url, so that the configuration and not the document decides where the credentials go. Without it they go to the server of the document, and calls to other servers are refused")
	}
	for _, hook := range hooks(&c.Auth) {
		if unencrypted(hook.URL) {
			all.add("rest: auth: hook: url", "is not encrypted: anybody on the network path can read what is to be signed; use https if the service has it")
		}
	}
	for name := range c.Catalog.Headers {
		if isCredential(name) && unencrypted(c.Catalog.URL) {
			all.add("rest: catalog: url", "is not encrypted: anybody on the network path can read the credentials; use https if the engine has it")
			break
		}
	}
	for name := range c.OpenAPIHeaders {
		if isCredential(name) && unencrypted(c.OpenAPI) {
			all.add("rest: openapi", "is not encrypted: anybody on the network path can read the credentials in openapi_headers; use https if the server has it")
			break
		}
	}
	return all
}

func hooks(a *rest.Auth) (all []*rest.Hook) {
	for _, c := range append(slices.Collect(maps.Values(a.Schemes)), *cmp.Or(a.Default, &rest.Credential{})) {
		if c.Hook != nil {
			all = append(all, c.Hook)
		}
	}
	return all
}
