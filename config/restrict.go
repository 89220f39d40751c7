package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/config/foreign"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// The bridge obeys restrictions in the file of another program, or refuses the file: it serves nothing that the author
// of the file blocked.

// restrictions applies the restrictions in a desktop client's server, and returns the other keys. tokens are the keys
// of callers that may use a server without tokens of its own.
func (d *decoder) restrictions(sec *strict.Section, keys []strict.Entry, s *Server, c *Config, tokens []string) []strict.Entry {
	names := func(e strict.Entry, label string) (list []string) {
		s := &strict.Slot{
			Section: sec,
			Label:   label,
			Line:    e.Line,
		}
		if label == "tools: allow" { // it must not be empty
			s.Field = setting.ByKey(reflect.TypeFor[filterKeys](), "allow")
		}
		d.Value(s, e.Value, reflect.ValueOf(&list).Elem())
		return list
	}
	sec.Marks = map[string]strict.Mark{}
	var rest []strict.Entry
	for _, e := range keys {
		ours, _ := foreign.KeyOf(e.Key)
		switch ours {
		case "allow":
			if e.Key == "available_tools" && isEmpty(e.Value) {
				continue // in Goose, an empty list means all tools
			}
			d.allow(sec, e, s, names(e, "tools: allow"))
		case "deny":
			s.Tools.Deny = append(s.Tools.Deny, names(e, "tools: deny")...)
		case "headerToEnv":
			table := map[string]string{}
			x := &strict.Slot{
				Section: sec,
				Label:   e.Key,
				Line:    e.Line,
			}
			d.Value(x, e.Value, reflect.ValueOf(&table).Elem())
			for _, header := range slices.Sorted(maps.Keys(table)) {
				f, err := parseForward(header + " as " + table[header])
				if err != nil {
					d.Fault(e.Line, "%s%s: %v", sec.Where, e.Key, err)
					continue
				}
				s.Forward = append(s.Forward, f)
			}
			sec.Marks["forward"] = strict.Mark{Line: e.Line}
		case "options":
			if own := d.options(sec, e, s); own != nil {
				tokens = own
			}
		default:
			if restricts := d.restricts(sec.Where, e); !restricts && e.Key == "oauth" { // the key has another form in other programs
				d.Warn(e.Line, "%soauth is ignored: it means nothing to mcp-bridge", sec.Where)
			} else if !restricts {
				rest = append(rest, e)
			}
		}
	}
	for _, token := range tokens {
		d.addToken(c, token, s.Name, sec.Line)
	}
	return rest
}

// allow sets the tools that clients may use. A second list is a fault, because it is unclear which one counts.
func (d *decoder) allow(sec *strict.Section, e strict.Entry, s *Server, list []string) {
	if s.Tools.Allow != nil {
		d.Fault(e.Line, "%s%s: another key lists the allowed tools already: keep one", sec.Where, e.Key)
		return
	}
	s.Tools.Allow = list
}

// proxyTokens reads the key mcpProxy of a file of TBXark's mcp-proxy. It returns the tokens for servers without tokens
// of their own.
func (d *decoder) proxyTokens() []string {
	if d.proxy == nil {
		return nil
	}
	list, _ := d.Entries("mcpProxy: ", d.proxy.Value)
	var p proxyOptions
	for _, e := range list {
		if e.Key != "options" {
			what := "it means nothing to mcp-bridge"
			switch e.Key {
			case "addr":
				what = "set listen to choose the address"
			case "baseURL":
				what = "set base_path for a path in front of all addresses, and public_url for clients that sign in"
			}
			d.Warn(e.Line, "mcpProxy: %s is ignored: %s", strict.Clip(e.Key), what)
			continue
		}
		s := &strict.Slot{
			Section: &strict.Section{Where: "mcpProxy: ", Marks: map[string]strict.Mark{}},
			Label:   e.Key,
			Line:    e.Line,
		}
		d.Inner(s, e.Value, &p)
		if len(p.ToolFilter.List) > 0 {
			d.Fault(e.Line, "mcpProxy: options: toolFilter: set it for each server")
		}
	}
	return p.AuthTokens
}

// options reads the key options in a server of TBXark's mcp-proxy, and returns the tokens in it.
func (d *decoder) options(sec *strict.Section, e strict.Entry, s *Server) []string {
	var p proxyOptions
	d.Inner(&strict.Slot{
		Section: sec,
		Label:   e.Key,
		Line:    e.Line,
	}, e.Value, &p)
	switch p.ToolFilter.Mode {
	case "allow":
		d.allow(sec, e, s, p.ToolFilter.List)
		if len(p.ToolFilter.List) == 0 {
			d.Fault(e.Line, "%soptions: toolFilter: list is empty: list the tools that are allowed", sec.Where)
		}
	case "block":
		s.Tools.Deny = append(s.Tools.Deny, p.ToolFilter.List...)
	default:
		if p.ToolFilter.Mode != "" || len(p.ToolFilter.List) > 0 {
			d.Fault(e.Line, "%soptions: toolFilter: mode must be allow or block", sec.Where)
		}
	}
	return p.AuthTokens
}

// proxyOptions are the options of a server in a file of TBXark's mcp-proxy.
type proxyOptions struct {
	PanicIfInvalid bool     `yaml:"panicIfInvalid"` // ignored: a broken server does not affect others
	LogEnabled     bool     `yaml:"logEnabled"`     // ignored: --log-level replaces it
	Disabled       bool     `yaml:"disabled"`       // desktopKeys reads it
	AuthTokens     []string `yaml:"authTokens"`
	ToolFilter     struct {
		Mode string   `yaml:"mode"`
		List []string `yaml:"list"`
	} `yaml:"toolFilter"`
}

// addToken adds a rule to access by which a token may use a server.
func (d *decoder) addToken(c *Config, token, server string, line int) {
	if i := slices.IndexFunc(c.Access, func(a Access) bool { return a.Token == token }); i >= 0 {
		c.Access[i].Servers = append(c.Access[i].Servers, server)
		return
	}
	d.tokens = append(d.tokens, line)
	c.Access = append(c.Access, Access{
		Name:    fmt.Sprintf("client-%d", len(d.tokens)),
		Token:   token,
		Servers: []string{server},
	})
}

// warnClosed warns of servers without tokens in a file whose other servers have tokens.
func (d *decoder) warnClosed(found strict.Entry, c *Config) {
	if len(d.tokens) == 0 {
		return
	}
	for _, s := range c.Servers {
		if !slices.ContainsFunc(c.Access, func(a Access) bool { return len(a.Servers) == 0 || slices.Contains(a.Servers, s.Name) }) {
			d.Warn(found.Line, "server %q has no authTokens, while others have: nobody can use it until it has one", s.Name)
		}
	}
}

// restricts adds a fault for a key that the bridge does not know, and whose name suggests a restriction or a
// credential. It reports whether the key is done with.
func (d *decoder) restricts(where string, e strict.Entry) bool {
	n := e.Value
	name := similar.Fold(e.Key)
	switch {
	case isEmpty(n) && !((where != "" || strings.HasPrefix(name, "allow")) && isCollection(n) && foreign.NothingAllowed(e.Key)):
		return false
	case where == "" && e.Key == "mcpProxy":
		d.proxy = &e
		return true
	case where == "" && e.Key == "mcp": // of Gemini's file
		inner, _ := d.Quiet().Entries("", e.Value)
		if !slices.ContainsFunc(inner, func(e strict.Entry) bool {
			v := e.Value
			return e.Key == "allowed" && (isCollection(v) || !isEmpty(v)) || e.Key == "excluded" && !isEmpty(v)
		}) {
			return false
		}
		d.Fault(e.Line, "mcp: mcp-bridge does not read allowed and excluded, which restrict the servers to use: remove them, and the servers that are not to be served")
		return true
	case where == "" && !foreign.ListsServers(e.Key):
		return false
	case name == "oauth":
		d.Fault(e.Line, "%soauth is of another form here: write the server in bridge's own form, with http: { url: …, oauth: { … } }, or remove the key", where)
		return true
	case slices.Contains([]string{"env", "headers", "autoApprove", "alwaysAllow", "envFile", "disabled", "enabled"}, e.Key):
		return false
	}
	if where != "" && !foreign.MayRestrict(e.Key, isEmpty(n), isCollection(n)) {
		return false
	}
	d.Fault(e.Line, "%s%s may be a restriction or a credential, and mcp-bridge does not know it: write it in bridge's own form (tools: { allow: […], deny: […] }, access, headers), or remove the key", where, strict.Clip(e.Key))
	return true
}
