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

// shownKeys are the keys whose texts are shown: names of things, addresses of our own, one
// of a few words. Any other text may be a secret, or have one in it.
var shownKeys = []string{
	"listen", "base_path", "public_url", "ready", "reload", "console", "log_level", "offer", "separator", "share", "place", "role", "era", "revision", "prefix", "transport", "mode",
	"name", "admin", "viewers", "allow", "deny", "servers", "allowed_origins", "allowed_hosts", "trusted_proxies", "forward", "issuer", "audience",
	"scopes", "token_file", "env_file", "cert_file", "key_file", "ca_file", "to", "cwd", "method", "advertise", "store_lost", "replay",
}

// hiddenKeys are those below which nothing is shown but names and references.
var hiddenKeys = []string{"args", "env", "headers", "query", "auth", "body", "claims", "secret"}

// commandKeys have a program, and perhaps its arguments.
var commandKeys = []string{"command", "stdio"}

// addressKeys have an address, of which only the host is shown: servers take keys in paths
// too.
var addressKeys = []string{"url", "http", "sse", "base_url", "openapi", "redis", "jwks"}

// plain are texts that cannot be secrets: references to variables, times, sizes, rates.
var plain = regexp.MustCompile(`^(?:(?:Bearer |Basic )?\$\{[A-Za-z_][A-Za-z0-9_]*\}|(?:[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ns|us|ms|s|m|h)){1,3}|[0-9]{1,9}(?:[KMG]i?B)?|[0-9]{1,9}/[smh]|on|off|yes|no|)$`)

// hidden stands in the place of a text that may be a secret.
const hidden = "***"

// Masked returns the text of a configuration file as it may be shown: as YAML, without
// comments, and with *** in the place of what may be a secret. With a server's name, it is
// that server's part, or nothing.
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

// below returns what is said of a server of that name; nil if there is nothing.
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

// pairs yields the keys and values of a mapping, none of anything else.
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

// node writes a value behind its key, or behind the sign of an item.
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

// text writes a text, if it cannot be a secret.
func (m *mask) text(s, key string, secret bool) {
	switch {
	case plain.MatchString(s) && (!secret || strings.HasPrefix(s, "$") || strings.Contains(s, " $")) && len(s) < 128:
	case secret:
		s = hidden
	case slices.Contains(addressKeys, key) && host(s) != "":
		s = host(s)
	case slices.Contains(commandKeys, key): // arguments may stand behind the program, and variables before it
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

// simple are texts that YAML takes as they are.
var simple = regexp.MustCompile(`^[A-Za-z0-9_./$][A-Za-z0-9_./${}@-]*$`)

func quoted(s string) string {
	if s == hidden || simple.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
