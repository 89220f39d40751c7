package config

import (
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/rest/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
	"github.com/mcp-bridge/bridge/config/strict"
)

// credentialKeys is how a file writes a wire.Credential.
type credentialKeys struct {
	Value    string       `yaml:"value"`
	Header   string       `yaml:"header"`
	Query    string       `yaml:"query"`
	Cookie   string       `yaml:"cookie"`
	User     string       `yaml:"user"`
	Password string       `yaml:"password"`
	Bearer   string       `yaml:"bearer"`
	Client   *wire.Client `yaml:"client"`
}

// notZeroInRest are the keys of the kind rest, and of its limits, for which 0 is
// refused. A cache of 0 is none.
var notZeroInRest = map[string]bool{"attempts": true, "refresh": true, "answer": true, "body": true, "file": true, "concurrent": true}

// restValue reads the values that only the kind rest has. known reports whether
// v is one.
func (d *decoder) restValue(x *strict.Slot, n ast.Node, v any) (ok, known bool) {
	switch into := v.(type) {
	case *string:
		if _, inline := d.Resolve(n).(ast.MapNode); inline && x.Label == "openapi" {
			return d.document(x, n, into), true
		}
	case *rest.Auth:
		return d.auth(x, n, into), true
	case *rest.Limits:
		_, ok := d.Inner(x, n, into)
		return ok, true
	case *toolset.ToolLimits:
		_, ok := d.Inner(x, n, into)
		return ok, true
	case *rest.Catalog:
		_, ok := d.Inner(x, n, into)
		return ok, true
	case *[]toolset.Entry:
		return d.restTools(x, n, into), true
	case *[]toolset.Arg:
		return d.restArgs(x, n, into), true
	case *failure:
		return d.failure(x, n, into), true
	case *attempts:
		return d.attempts(x, n, into), true
	case *keeping:
		return d.keeping(x, n, into), true
	}
	return false, false
}

// auth reads credentials: one for all, or those of security schemes by name.
func (d *decoder) auth(x *strict.Slot, n ast.Node, into *rest.Auth) bool {
	list, ok := d.Entries(x.Section.Where+x.Label+": ", n)
	if !ok {
		return d.Mistyped(x, n, "a mapping such as { bearer: ${TOKEN} } or { SCHEME: { value: ${KEY} } }")
	}
	schemes := len(list) > 0
	for _, e := range list {
		_, mapping := d.Resolve(e.Value).(ast.MapNode)
		schemes = schemes && mapping && (e.Key != "client" || len(list) > 1)
	}
	if !schemes {
		c, ok := d.credential(x, n)
		into.Default = c
		return ok
	}
	into.Schemes = map[string]wire.Credential{}
	for _, e := range list {
		at := &strict.Slot{Section: x.Section, Label: x.Label + ": " + e.Key, Line: e.Line}
		c, good := d.credential(at, e.Value)
		if ok = good && ok; good {
			into.Schemes[e.Key] = *c
		}
	}
	return ok
}

func (d *decoder) credential(x *strict.Slot, n ast.Node) (*wire.Credential, bool) {
	var k credentialKeys
	before := len(d.Faults)
	if _, ok := d.Inner(x, n, &k); !ok || len(d.Faults) > before {
		return nil, false
	}
	kinds, places := 0, 0
	for _, set := range []bool{k.Value != "", k.User != "" || k.Password != "", k.Bearer != "", k.Client != nil} {
		if set {
			kinds++
		}
	}
	for _, place := range []string{k.Header, k.Query, k.Cookie} {
		if place != "" {
			places++
		}
	}
	wrong := ""
	switch {
	case kinds != 1:
		wrong = "needs one of value, bearer, user and password, and client"
	case places > 1 || places > 0 && k.Value == "":
		wrong = "needs one of header, query and cookie beside value, and with nothing else"
	case k.Client != nil && (k.Client.ID == "" || k.Client.Secret == ""):
		wrong = "needs id and secret in client"
	}
	if wrong != "" {
		d.Fault(x.Line, "%s%s: %s", x.Section.Where, x.Label, wrong)
		return nil, false
	}
	return &wire.Credential{Key: k.Value, Header: k.Header, Query: k.Query, Cookie: k.Cookie, User: k.User, Password: k.Password, Bearer: k.Bearer, Client: k.Client}, true
}

// restBreaches are the rules for an API beyond those of its adapter.
func (s *Server) restBreaches() []breach {
	if s.Rest == nil {
		return nil
	}
	var all []breach
	if s.Era != EraAuto || s.Revision != "" {
		all = append(all, breach{"era", "revision", "is of no use with rest: the bridge itself is the server, and all clients can use it"})
	}
	for _, t := range s.Rest.Tools {
		if t.Timeout > s.MaxTimeout {
			all = append(all, breach{"rest: tools: " + t.Key + ": timeout", "max_timeout", "must not be longer than max_timeout, which is 1h unless it is set"})
		}
	}
	return all
}

// restRemarks are remarks about an API.
func (s *Server) restRemarks() []breach {
	c := s.Rest
	secret := c.Auth.Default != nil || len(c.Auth.Schemes) > 0
	for name, value := range c.Headers {
		secret = secret || isCredential(name) || slices.ContainsFunc(c.Secrets, func(s string) bool { return strings.Contains(value, s) })
	}
	for _, f := range s.Forward {
		secret = secret || isCredential(f.To)
	}
	var all []breach
	if secret && overheard(c.BaseURL) {
		all = append(all, breach{"rest: base_url", "", "is not encrypted: whoever is on the way can read the credentials; use https if the API has it"})
	}
	if secret && c.BaseURL == "" && isURL(c.OpenAPI) {
		all = append(all, breach{"rest: openapi", "", "is a URL, and base_url is missing: set it, so that the configuration and not the document says where the credentials go. Without it they go to the server that the document is read from, and calls to others are refused"})
	}
	for name := range c.Catalog.Headers {
		if isCredential(name) && overheard(c.Catalog.URL) {
			return append(all, breach{"rest: catalog: url", "", "is not encrypted: whoever is on the way can read the credentials; use https if the engine has it"})
		}
	}
	return all
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// overheard reports whether others may read what is sent to an address.
func overheard(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !isLocal(u.Hostname())
}

// sent is a value from the environment, and the section that it is sent by.
type sent struct{ where, value string }

// note keeps values from the environment that go into headers or queries of an
// HTTP API.
func (d *decoder) note(x *strict.Slot, whole string, values []string) {
	if len(values) == 0 || !strings.Contains(x.Section.Where, ": rest: ") {
		return
	}
	switch {
	case x.Label == "base_url", x.Label == "request": // the rest of an address is none
		_, whole, _ = strings.Cut(whole, "?")
	case strings.HasPrefix(x.Label, "headers: "), strings.HasPrefix(x.Label, "query: "):
	default:
		return
	}
	for _, v := range values {
		if strings.Contains(whole, v) {
			d.sent = append(d.sent, sent{x.Section.Where, v})
		}
	}
}

// sentBy returns the values that a section, or one within it, sends.
func (d *decoder) sentBy(sec *strict.Section) []string {
	var all []string
	for _, s := range d.sent {
		if strings.HasPrefix(s.where, sec.Where) && !slices.Contains(all, s.value) {
			all = append(all, s.value)
		}
	}
	return all
}

// visitRest looks at the files that belong to an API. The document may come
// later: what is in it, bridge check says.
func (d *decoder) visitRest(sec *strict.Section, c *rest.Config) {
	if c.Document == nil && !isURL(c.OpenAPI) {
		d.visitText(sec, "openapi", &c.OpenAPI)
	}
	d.visitText(sec, "catalog: file", &c.Catalog.File)
	h := httpclient.Config{URL: "http://localhost", CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Proxy: c.Proxy, IdleTimeout: c.IdleTimeout}
	d.visitRemote(sec, &h)
	c.CAFile, c.CertFile, c.KeyFile = h.CAFile, h.CertFile, h.KeyFile
}

// visitText looks at a file that need not be there yet.
func (d *decoder) visitText(sec *strict.Section, key string, path *string) {
	m := sec.Marks[key]
	if *path == "" || m.Bad {
		return
	}
	*path = d.absolute(*path)
	if info, err := os.Stat(*path); err != nil {
		d.Warn(m.Line, "%s%s is %s: %s", sec.Where, key, m.Shown, reason(err))
	} else if info.IsDir() {
		d.Warn(m.Line, "%s%s is %s: is a directory", sec.Where, key, m.Shown)
	}
}
