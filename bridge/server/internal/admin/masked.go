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

	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// hiddenKeys are the keys below which only names and references to variables are shown.
var hiddenKeys = []string{"env", "headers", "openapi_headers", "query", "auth", "body", "claims", "secret"}

// commandKeys are the keys of a program and its arguments.
var commandKeys = []string{"command", "stdio", "args"}

// harmlessKeys are the keys that have a name like that of a secret, but no secret as their value.
var harmlessKeys = []string{"session_idle", "session_left", "sessions", "max_sessions", "token_file", "token_url"}

// isSecret reports whether the value of a key may be a secret, by the key's name.
func isSecret(key string) bool {
	return slices.Contains(hiddenKeys, key) || key == "key" || key == "keys" || sanitize.IsSecret(key) && !slices.Contains(harmlessKeys, key)
}

// plain matches texts that cannot be secrets: references to variables, times, sizes, rates.
var plain = regexp.MustCompile(`^(?:(?:Bearer |Basic )?\$\{[A-Za-z_][A-Za-z0-9_]*\}|(?:[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ns|us|ms|s|m|h)){1,3}|[0-9]{1,9}(?:[KMG]i?B)?|[0-9]{1,9}/[smh]|on|off|yes|no|)$`)

// hidden replaces a text that may be a secret.
const hidden = "***"

// Masked returns the text of a configuration file for operators: as YAML, without comments, and with *** for each
// text that may be a secret by its key or its form. If server is not empty, Masked returns only the settings of that
// server, and "" if the file has none.
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

// pairs yields the keys and values of a mapping. For other nodes, pairs yields nothing.
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
			below := secret || slices.Contains(hiddenKeys, name) || key == "args" && isSecret(name) // a fixed argument
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
		arguments := slices.Contains(commandKeys, key)
		next := false // the last item announced a value: this item may be a secret, such as a key after --api-key
		for _, v := range n.Content {
			m.b.WriteString(before + "- ")
			before = indent
			hides := secret || next
			next = arguments && v.Kind == yaml.ScalarNode && announces(v.Value)
			m.node(v, key, indent+"  ", hides)
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

// text writes a text, with *** for what may be a secret.
func (m *mask) text(s, key string, secret bool) {
	m.b.WriteString(quoted(shown(s, key, secret)) + "\n")
}

// shown returns the value s of a key, with *** for what may be a secret. secret means that only references are shown.
func shown(s, key string, secret bool) string {
	secret = secret || isSecret(key)
	switch {
	case plain.MatchString(s) && (!secret || s == "" || strings.HasPrefix(s, "$") || strings.Contains(s, " $")) && len(s) < 128:
		return s
	case secret:
		return hidden
	}
	s = fallback.ReplaceAllString(s, "$${$1:-"+hidden+"}")
	if slices.Contains(commandKeys, key) {
		return command(s)
	}
	return text(s)
}

// fallback matches a reference with another text for a variable that is not set, which may be a secret.
var fallback = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*):?[-?+][^}]*\}`)

// text returns a text with *** for what looks like a secret.
func text(s string) string {
	switch {
	case strings.Contains(s, "://"):
		return address(s)
	case userinfo.MatchString(s), sanitize.MayBeSecret(s):
		return hidden
	}
	return queryValue.ReplaceAllString(s, "$1"+hidden)
}

// userinfo matches a name and a password before a host, as drivers of databases take them. queryValue matches a value in
// the query of a path.
var (
	userinfo   = regexp.MustCompile(`^[^\s/:@]+:[^\s/@]+@`)
	queryValue = regexp.MustCompile(`([?&][^\s=&]+=)[^\s&]+`)
)

// announces reports whether an argument of a program says that the next argument may be a secret.
func announces(arg string) bool {
	if len(arg) > 1 && strings.HasSuffix(arg, ":") { // the name of a header
		return true
	}
	name, _, value := strings.Cut(arg, "=")
	if value || !strings.HasPrefix(name, "-") {
		return false
	}
	return slices.Contains([]string{"-u", "-H", "-e", "-p", "-k", "-P", "--user", "--header", "--env", "--pass", "--pat", "--creds", "--license"}, name) || sanitize.MayNameSecret(name)
}

// command returns a program with its arguments, or one argument, with *** for what may be a secret.
func command(s string) string {
	words, next := strings.Fields(s), false
	if len(words) != 1 && strings.ContainsAny(s, "\r\n'\"`;|&<>()\\") { // a script: its words are not its arguments
		if first, _, _ := strings.Cut(s, " "); strings.HasPrefix(s, words[0]+" ") && argument(first) == first {
			return first + " " + hidden
		}
		return hidden
	}
	for i, word := range words {
		if words[i] = argument(word); next && !plain.MatchString(word) {
			words[i] = hidden
		}
		next = announces(word)
	}
	return strings.Join(words, " ")
}

// argument returns an argument of a program, with *** for what may be a secret.
func argument(word string) string {
	name, value, ok := strings.Cut(word, "=")
	switch {
	case strings.HasPrefix(word, "-p") && len(word) > 2: // -pPASSWORD
		return "-p" + hidden
	case !ok || strings.Contains(name, "://"):
		return text(word)
	case strings.HasPrefix(name, "-") && !sanitize.MayNameSecret(name):
		return name + "=" + text(value)
	case plain.MatchString(value) && strings.HasPrefix(value, "$"):
		return word
	}
	return name + "=" + hidden // a variable, or a flag for a secret
}

// reference matches a reference to a variable.
var reference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*(?::-\*\*\*)?\}`)

// address returns an address without its user, the values of its query, and parts of its path that look like secrets:
// servers accept keys in paths too.
func address(s string) string {
	var references []string
	standIn := func(i int) string { return "xref" + strconv.Itoa(i) + "x" } // url.Parse accepts no braces in a host
	u, err := url.Parse(reference.ReplaceAllStringFunc(s, func(r string) string {
		references = append(references, r)
		return standIn(len(references) - 1)
	}))
	if err != nil || u.Host == "" || u.Opaque != "" {
		return hidden
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString(hidden + "@")
	}
	b.WriteString(u.Host)
	for i, part := range strings.Split(u.Path, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		if sanitize.MayBeSecret(part) {
			part = hidden
		}
		b.WriteString(part)
	}
	for i, pair := range strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if !standsIn.MatchString(value) {
			value = hidden
		}
		b.WriteString(map[bool]string{true: "?", false: "&"}[i == 0] + name + "=" + value)
	}
	if u.Fragment != "" {
		b.WriteString("#" + hidden)
	}
	out := b.String()
	for i, r := range references {
		out = strings.ReplaceAll(out, standIn(i), r)
	}
	return out
}

// standsIn matches what address puts in place of a reference.
var standsIn = regexp.MustCompile(`^xref[0-9]+x$`)

// simple matches texts that YAML needs no quotes for.
var simple = regexp.MustCompile(`^[A-Za-z0-9_./$][A-Za-z0-9_./${}@-]*$`)

func quoted(s string) string {
	if s == hidden || simple.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
