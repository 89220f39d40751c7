package admin

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// shownKeys are the keys whose texts are shown: names, own addresses, and choices between a few
// words. Any other text may be a secret, or contain one.
var shownKeys = []string{
	"listen", "base_path", "public_url", "ready", "reload", "console", "log_level", "offer", "separator", "share", "place", "role", "era", "revision", "prefix", "transport", "mode",
	"name", "admin", "viewers", "allow", "deny", "servers", "allowed_origins", "allowed_hosts", "trusted_proxies", "forward", "issuer", "audience",
	"scopes", "token_file", "env_file", "cert_file", "key_file", "ca_file", "to", "cwd", "method", "advertise", "store_lost", "replay",
}

// hiddenKeys are the keys below which only names and references are shown.
var hiddenKeys = []string{"args", "env", "headers", "query", "auth", "body", "claims", "secret"}

// commandKeys are the keys of a program and its arguments.
var commandKeys = []string{"command", "stdio"}

// addressKeys are the keys of an address. Only its host is shown: servers accept keys in paths too.
var addressKeys = []string{"url", "http", "sse", "base_url", "openapi", "redis", "jwks"}

// plain matches texts that cannot be secrets: references to variables, times, sizes, rates.
var plain = regexp.MustCompile(`^(?:(?:Bearer |Basic )?\$\{[A-Za-z_][A-Za-z0-9_]*\}|(?:[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ns|us|ms|s|m|h)){1,3}|[0-9]{1,9}(?:[KMG]i?B)?|[0-9]{1,9}/[smh]|on|off|yes|no|)$`)

// hidden replaces a text that may be a secret.
const hidden = "***"

// Masked returns the text of a configuration file for operators: as YAML, without comments, and with
// *** for each text that may be a secret. With a server's name, it returns that server's part, or
// nothing.
func Masked(text []byte, server string) (string, error) {
	file, err := strict.Parse(text)
	if err != nil || file.Root == nil {
		return "", errors.New("the file cannot be read as YAML or JSON")
	}
	root := file.Root
	if server != "" {
		if root = below(root, server); root == nil {
			return "", nil
		}
	}
	m := &mask{}
	m.node(root, "", "", false)
	return m.b.String(), nil
}

// below returns the settings of a server; nil if there are none.
func below(root ast.Node, server string) ast.Node {
	for _, top := range pairs(root) {
		if key := keyOf(top); key == "servers" || key == "mcpServers" {
			for _, s := range pairs(top.Value) {
				if keyOf(s) == server {
					return s.Value
				}
			}
		}
	}
	return nil
}

func pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	case *ast.AnchorNode:
		return pairs(n.Value)
	}
	return nil
}

func keyOf(p *ast.MappingValueNode) string { return p.Key.GetToken().Value }

// mask writes YAML.
type mask struct{ b strings.Builder }

// node writes a value after its key, or after the dash of an item.
func (m *mask) node(n ast.Node, key, indent string, secret bool) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		all := pairs(n)
		if len(all) == 0 {
			m.b.WriteString("{}\n")
			return
		}
		for i, p := range all {
			if i > 0 {
				m.b.WriteString(indent)
			}
			name := keyOf(p)
			m.b.WriteString(quoted(name) + ":")
			below := secret || slices.Contains(hiddenKeys, name)
			if nested(p.Value) {
				m.b.WriteString("\n" + indent + "  ")
				m.node(p.Value, name, indent+"  ", below)
			} else {
				m.b.WriteString(" ")
				m.node(p.Value, name, indent, below)
			}
		}
	case *ast.SequenceNode:
		if len(n.Values) == 0 {
			m.b.WriteString("[]\n")
		}
		for i, v := range n.Values {
			if i > 0 {
				m.b.WriteString(indent)
			}
			m.b.WriteString("- ")
			m.node(v, key, indent+"  ", secret || slices.Contains(commandKeys, key)) // arguments may be among them
		}
	case *ast.AnchorNode:
		m.node(n.Value, key, indent, secret)
	case *ast.TagNode:
		m.node(n.Value, key, indent, secret)
	case *ast.AliasNode:
		m.b.WriteString("*" + n.Value.GetToken().Value + "\n")
	case *ast.LiteralNode:
		m.text(n.Value.Value, key, secret)
	case *ast.StringNode:
		m.text(n.Value, key, secret)
	case *ast.NullNode:
		m.b.WriteString("null\n")
	case *ast.BoolNode:
		m.b.WriteString(strconv.FormatBool(n.Value) + "\n")
	default: // numbers
		m.text(n.GetToken().Value, key, secret)
	}
}

// nested reports whether a value needs lines of its own.
func nested(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AnchorNode:
		return nested(n.Value)
	case *ast.SequenceNode:
		return len(n.Values) > 0
	}
	return len(pairs(n)) > 0
}

// text writes a text, or *** if it may be a secret.
func (m *mask) text(s, key string, secret bool) {
	switch {
	case plain.MatchString(s) && (!secret || strings.HasPrefix(s, "$") || strings.Contains(s, " $")) && len(s) < 128:
	case secret:
		s = hidden
	case slices.Contains(addressKeys, key) && host(s) != "":
		s = host(s)
	case slices.Contains(commandKeys, key): // arguments may follow the program, and variables precede it
		words := strings.Fields(s)
		switch {
		case len(words) == 0 || strings.Contains(words[0], "="):
			s = hidden
		case len(words) > 1:
			s = words[0] + " " + hidden
		}
	case !slices.Contains(shownKeys, key):
		s = hidden
	}
	m.b.WriteString(quoted(s) + "\n")
}

// host returns the scheme and the host of an address.
func host(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return ""
	}
	if short := u.Scheme + "://" + u.Host; u.Path == "" && u.RawQuery == "" && u.User == nil {
		return short
	}
	return u.Scheme + "://" + u.Host + "/" + hidden
}

// simple matches texts that YAML needs no quotes for.
var simple = regexp.MustCompile(`^[A-Za-z0-9_./$][A-Za-z0-9_./${}@-]*$`)

func quoted(s string) string {
	if s == hidden || simple.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
