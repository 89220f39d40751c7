package admin

import (
	"errors"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

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
	root, err := strict.Parse(text)
	if err != nil || root == nil {
		return "", errors.New("the file cannot be read as YAML or JSON")
	}
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
func below(root *yaml.Node, server string) *yaml.Node {
	for key, value := range pairs(root) {
		if key == "servers" || key == "mcpServers" {
			for name, s := range pairs(value) {
				if name == server {
					return s
				}
			}
		}
	}
	return nil
}

// pairs yields the keys and values of a mapping. For other nodes it yields nothing.
func pairs(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// mask writes YAML.
type mask struct{ b strings.Builder }

// node writes a value after its key, or after the dash of an item.
func (m *mask) node(n *yaml.Node, key, indent string, secret bool) {
	before := ""
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) == 0 {
			m.b.WriteString("{}\n")
		}
		for name, value := range pairs(n) {
			m.b.WriteString(before + quoted(name) + ":")
			before = indent
			below := secret || slices.Contains(hiddenKeys, name)
			if len(value.Content) > 0 {
				m.b.WriteString("\n" + indent + "  ")
				m.node(value, name, indent+"  ", below)
			} else {
				m.b.WriteString(" ")
				m.node(value, name, indent, below)
			}
		}
	case yaml.SequenceNode:
		if len(n.Content) == 0 {
			m.b.WriteString("[]\n")
		}
		for _, v := range n.Content {
			m.b.WriteString(before + "- ")
			before = indent
			m.node(v, key, indent+"  ", secret || slices.Contains(commandKeys, key)) // arguments may be among them
		}
	case yaml.AliasNode:
		m.b.WriteString("*" + n.Value + "\n")
	default:
		switch strict.Kind(n) {
		case strict.Null:
			m.b.WriteString("null\n")
		case strict.Bool:
			m.b.WriteString(strings.ToLower(n.Value) + "\n")
		default:
			m.text(n.Value, key, secret)
		}
	}
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
