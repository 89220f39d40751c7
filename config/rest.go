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

// credentialKeys is how a file writes a wire.Credential, toolKeys a rest.Tool,
// and argKeys what is not JSON Schema of a rest.Arg.
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

type toolKeys struct {
	Name    string            `yaml:"name"`
	Title   string            `yaml:"title"`
	About   string            `yaml:"about"`
	Request string            `yaml:"request"`
	Args    []rest.Arg        `yaml:"args"`
	Body    tree              `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
	Result  string            `yaml:"result"`
	Writes  bool              `yaml:"writes"`
}

type argKeys struct {
	Value   tree   `yaml:"value"`
	As      string `yaml:"as"`
	About   string `yaml:"about"`
	Default tree   `yaml:"default"`
}

// tree is a value that stays JSON, however deep it is.
type tree json.RawMessage

// restValue reads the values that only the kind rest has. known reports whether
// v is one.
func (d *decoder) restValue(x *slot, n ast.Node, v any) (ok, known bool) {
	switch into := v.(type) {
	case *rest.Auth:
		return d.auth(x, n, into), true
	case *rest.Limits:
		_, ok := d.inner(x, n, into)
		return ok, true
	case *rest.Catalog:
		_, ok := d.inner(x, n, into)
		return ok, true
	case *[]rest.Tool:
		return d.restTools(x, n, into), true
	case *[]rest.Arg:
		return d.restArgs(x, n, into), true
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

// isOff reports whether a node is the word off, or false, which older YAML takes
// it for.
func (d *decoder) isOff(n ast.Node) bool {
	switch v := d.resolve(n).(type) {
	case *ast.StringNode:
		return v.Value == "off"
	case *ast.BoolNode:
		return !v.Value
	}
	return false
}

// restTools reads the tools of an API, with their own faults.
func (d *decoder) restTools(x *slot, n ast.Node, into *[]rest.Tool) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping of operations, or of names of tools, such as { getPet: { about: … } }")
	}
	for _, e := range list {
		t := rest.Tool{Key: e.key, Line: e.line}
		if d.isOff(e.value) {
			t.Off = true
			*into = append(*into, t)
			continue
		}
		var k toolKeys
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line}
		before := len(d.faults)
		sec, good := d.inner(at, e.value, &k)
		if !good || len(d.faults) > before {
			ok = false
			continue
		}
		t.Name, t.Title, t.About, t.Request, t.Args = k.Name, k.Title, k.About, k.Request, k.Args
		t.Body, t.Headers, t.Result = json.RawMessage(k.Body), k.Headers, k.Result
		if _, set := sec.marks["writes"]; set {
			t.Writes = &k.Writes
		}
		for _, f := range t.Check() {
			d.fault(f.Line, "%s%s", x.sec.where, f)
			ok = false
		}
		*into = append(*into, t)
	}
	return ok
}

// restArgs reads the arguments of a tool.
func (d *decoder) restArgs(x *slot, n ast.Node, into *[]rest.Arg) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return d.mistyped(x, n, "a mapping of arguments to types, such as { city: string }")
	}
	for _, e := range list {
		a := rest.Arg{Line: e.line}
		a.Name, a.Optional = strings.CutSuffix(e.key, "?")
		at := &slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line, loose: true}
		good := true
		switch v := d.resolve(e.value).(type) {
		case ast.MapNode:
			good = d.restArg(at, v.(ast.Node), &a)
		case *ast.SequenceNode:
			if len(v.Values) != 1 {
				good = d.mistyped(at, e.value, "a type, such as string or [string]")
				break
			}
			good = d.argType(at, v.Values[0], "[", "]", &a)
		default:
			if a.Off = d.isOff(e.value); !a.Off {
				good = d.argType(at, e.value, "", "", &a)
			}
		}
		ok = good && ok
		*into = append(*into, a)
	}
	return ok
}

// argType reads the short form of a type.
func (d *decoder) argType(x *slot, n ast.Node, before, after string, a *rest.Arg) bool {
	got, ok := d.scalar(x, n, reflect.TypeFor[string]())
	if !ok {
		return false
	}
	schema, def, err := rest.ParseArg(before + got.value + after)
	if err != nil {
		d.fault(x.line, "%s%s: %s", x.sec.where, x.label, d.redact(err.Error()))
		return false
	}
	a.Schema = schema
	if def != nil {
		a.Default = def
	}
	return true
}

// restArg reads the long form of an argument: our keys, and JSON Schema.
func (d *decoder) restArg(x *slot, n ast.Node, a *rest.Arg) bool {
	list, ok := d.entries(x.sec.where+x.label+": ", n)
	if !ok {
		return false
	}
	var k argKeys
	ours := keysOf(reflect.TypeFor[argKeys]())
	var own, schema []entry
	for _, e := range list {
		if slices.Contains(ours, e.key) {
			own = append(own, e)
		} else {
			schema = append(schema, e)
		}
	}
	sec := &section{where: x.sec.where + x.label + ": ", line: x.line}
	before := len(d.faults)
	d.fields(sec, own, reflect.ValueOf(&k).Elem())
	a.As, a.About = k.As, k.About
	if k.Value != nil {
		a.Value = json.RawMessage(k.Value)
	}
	if k.Default != nil {
		a.Default = json.RawMessage(k.Default)
	}
	out := []byte{'{'}
	add := func(members []byte) {
		if len(out) > 1 && len(members) > 0 {
			out = append(out, ',')
		}
		out = append(out, members...)
	}
	for _, e := range schema {
		at := &slot{sec: sec, label: e.key, line: e.line, loose: true}
		if _, short := d.resolve(e.value).(*ast.StringNode); e.key == "type" && short {
			if ok = d.argType(at, e.value, "", "", a) && ok; ok {
				add(a.Schema[1 : len(a.Schema)-1])
			}
			continue
		}
		left := maxTree
		raw, good := d.jsonOf(at, e.value, 0, &left)
		ok = good && ok
		add(append(append(gjson.AppendJSONString(nil, e.key), ':'), raw...))
	}
	if out = append(out, '}'); len(out) > 2 {
		a.Schema = out
	}
	return ok && len(d.faults) == before
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
			raw, ok := d.jsonOf(&slot{sec: x.sec, label: x.label + ": " + e.key, line: e.line}, e.value, depth+1, left)
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
	if s.Rest == nil || s.Era == EraAuto && s.Revision == "" {
		return nil
	}
	return []breach{{"era", "revision", "is of no use with rest: the bridge itself is the server, and all clients can use it"}}
}

// restRemarks are remarks about an API.
func (s *Server) restRemarks() []breach {
	c := s.Rest
	secret := c.Auth.Default != nil || len(c.Auth.Schemes) > 0
	for name := range c.Headers {
		secret = secret || isCredential(name)
	}
	for _, f := range s.Forward {
		secret = secret || isCredential(f.To)
	}
	var all []breach
	if secret && overheard(c.BaseURL) {
		all = append(all, breach{"rest: base_url", "", "is not encrypted: whoever is on the way can read the credentials; use https if the API has it"})
	}
	for name := range c.Catalog.Headers {
		if isCredential(name) && overheard(c.Catalog.URL) {
			return append(all, breach{"rest: catalog: url", "", "is not encrypted: whoever is on the way can read the credentials; use https if the engine has it"})
		}
	}
	return all
}

// overheard reports whether others may read what is sent to an address.
func overheard(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !isLocal(u.Hostname())
}

// visitRest looks at the files that belong to an API. The document may come
// later: what is in it, bridge check says.
func (d *decoder) visitRest(sec *section, c *rest.Config) {
	if !strings.HasPrefix(c.OpenAPI, "http://") && !strings.HasPrefix(c.OpenAPI, "https://") {
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
