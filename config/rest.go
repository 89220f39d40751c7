package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
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

// tree is a value that stays JSON, however deep it is.
type tree json.RawMessage

// restValue reads the values that only the kind rest has. known reports whether
// v is one.
func (d *decoder) restValue(x *slot, n ast.Node, v any) (ok, known bool) {
	switch into := v.(type) {
	case *string:
		if _, inline := d.resolve(n).(ast.MapNode); inline && x.label == "openapi" {
			return d.document(x, n, into), true
		}
	case *rest.Auth:
		return d.auth(x, n, into), true
	case *rest.Limits:
		_, ok := d.inner(x, n, into)
		return ok, true
	case *rest.ToolLimits:
		_, ok := d.inner(x, n, into)
		return ok, true
	case *rest.Catalog:
		_, ok := d.inner(x, n, into)
		return ok, true
	case *[]rest.Tool:
		return d.restTools(x, n, into), true
	case *[]rest.Arg:
		return d.restArgs(x, n, into), true
	case *failure:
		return d.failure(x, n, into), true
	case *attempts:
		return d.attempts(x, n, into), true
	case *keeping:
		return d.keeping(x, n, into), true
	case *tree:
		left := maxTree
		raw, ok := d.jsonOf(x, n, 0, &left)
		*into = tree(raw)
		return ok, true
	}
	return false, false
}

// auth reads credentials: one for all, or those of security schemes by name.
func (d *decoder) auth(x *slot, n ast.Node, into *rest.Auth) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping such as { bearer: ${TOKEN} } or { SCHEME: { value: ${KEY} } }")
	}
	schemes := len(list) > 0
	for _, e := range list {
		_, mapping := d.resolve(e.value).(ast.MapNode)
		schemes = schemes && mapping && (e.key != "client" || len(list) > 1)
	}
	if !schemes {
		c, ok := d.credential(x, n)
		into.Default = c
		return ok
	}
	into.Schemes = map[string]wire.Credential{}
	for _, e := range list {
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line}
		c, good := d.credential(at, e.value)
		if ok = good && ok; good {
			into.Schemes[e.key] = *c
		}
	}
	return ok
}

func (d *decoder) credential(x *slot, n ast.Node) (*wire.Credential, bool) {
	var k credentialKeys
	before := len(d.faults)
	if _, ok := d.inner(x, n, &k); !ok || len(d.faults) > before {
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
		d.fault(x.line, "%s%s: %s", x.sec.where, x.label, wrong)
		return nil, false
	}
	return &wire.Credential{Key: k.Value, Header: k.Header, Query: k.Query, Cookie: k.Cookie, User: k.User, Password: k.Password, Bearer: k.Bearer, Client: k.Client}, true
}

// maxTree bounds the values of a tree, which aliases could make endless.
const maxTree = 10_000

// jsonOf makes JSON of a value. Order is kept, and numbers stay as they are
// written.
func (d *decoder) jsonOf(x *slot, n ast.Node, depth int, left *int) ([]byte, bool) {
	if *left--; depth > 50 || *left < 0 {
		d.fault(x.line, "%s%s is nested too deep, or too large", x.sec.where, x.label)
		return nil, false
	}
	switch v := d.resolve(n).(type) {
	case *ast.NullNode:
		return []byte("null"), true
	case *ast.BoolNode:
		return fmt.Append(nil, v.Value), true
	case *ast.IntegerNode, *ast.FloatNode:
		if text := v.GetToken().Value; gjson.Valid(text) {
			return []byte(text), true
		}
		var value any
		switch v := v.(type) {
		case *ast.IntegerNode:
			value = v.Value
		case *ast.FloatNode:
			value = v.Value
		}
		raw, err := json.Marshal(value)
		return raw, err == nil
	case *ast.StringNode, *ast.LiteralNode:
		got, ok := d.scalar(x, n, reflect.TypeFor[string]())
		return gjson.AppendJSONString(nil, got.value), ok
	case *ast.SequenceNode:
		out := []byte{'['}
		for i, item := range v.Values {
			raw, ok := d.jsonOf(x, item, depth+1, left)
			if !ok {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, raw...)
		}
		return append(out, ']'), true
	case ast.MapNode:
		list, ok := d.entries(x.sec.where+x.label+": ", n)
		if !ok {
			return nil, false
		}
		out := []byte{'{'}
		for i, e := range list {
			at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line}
			x.sec.marks[at.label] = mark{line: e.line}
			raw, ok := d.jsonOf(at, e.value, depth+1, left)
			if !ok {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(gjson.AppendJSONString(out, e.key), ':'), raw...)
		}
		return append(out, '}'), true
	}
	return nil, d.mistyped(x, n, "a value")
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
func (d *decoder) note(x *slot, whole string, values []string) {
	if len(values) == 0 || !strings.Contains(x.sec.where, ": rest: ") {
		return
	}
	switch {
	case x.label == "base_url", x.label == "request": // the rest of an address is none
		_, whole, _ = strings.Cut(whole, "?")
	case strings.HasPrefix(x.label, "headers: "), strings.HasPrefix(x.label, "query: "):
	default:
		return
	}
	for _, v := range values {
		if strings.Contains(whole, v) {
			d.sent = append(d.sent, sent{x.sec.where, v})
		}
	}
}

// sentBy returns the values that a section, or one within it, sends.
func (d *decoder) sentBy(sec *section) []string {
	var all []string
	for _, s := range d.sent {
		if strings.HasPrefix(s.where, sec.where) && !slices.Contains(all, s.value) {
			all = append(all, s.value)
		}
	}
	return all
}

// visitRest looks at the files that belong to an API. The document may come
// later: what is in it, bridge check says.
func (d *decoder) visitRest(sec *section, c *rest.Config) {
	if c.Document == nil && !isURL(c.OpenAPI) {
		d.visitText(sec, "openapi", &c.OpenAPI)
	}
	d.visitText(sec, "catalog: file", &c.Catalog.File)
	h := httpclient.Config{URL: "http://localhost", CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, Proxy: c.Proxy, IdleTimeout: c.IdleTimeout}
	d.visitRemote(sec, &h)
	c.CAFile, c.CertFile, c.KeyFile = h.CAFile, h.CertFile, h.KeyFile
}

// visitText looks at a file that need not be there yet.
func (d *decoder) visitText(sec *section, key string, path *string) {
	m := sec.marks[key]
	if *path == "" || m.bad {
		return
	}
	*path = d.absolute(*path)
	if info, err := os.Stat(*path); err != nil {
		d.warn(m.line, "%s%s is %s: %s", sec.where, key, m.shown, reason(err))
	} else if info.IsDir() {
		d.warn(m.line, "%s%s is %s: is a directory", sec.where, key, m.shown)
	}
}
