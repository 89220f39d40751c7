package imports

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// looksSecret reports whether a value may be a secret. A reference to a variable is not a secret, but its default may
// be.
func looksSecret(name, value string) bool {
	bare := placeholder.ReplaceAllStringFunc(value, func(whole string) string {
		_, fallback, _ := strings.Cut(strings.TrimSuffix(whole, "}"), ":-")
		return fallback
	})
	if value == "" || bare != value && len(strings.TrimSpace(strings.TrimPrefix(bare, "Bearer"))) < 4 {
		return false
	}
	return sanitize.LooksSecret(strings.TrimLeft(name, "-"), bare)
}

// secret replaces a secret by a reference to a variable. The variable gets the given name if this name is unused.
func (i *Import) secret(s *server, name, value string) string {
	inside := i.reference(s, value)
	if i.Inline {
		return inside
	}
	if i.taken(name, value) {
		name = variable(s.name) + "_" + name
	}
	for base, n := name, 2; ; n++ {
		if !i.taken(name, value) {
			break
		}
		name = fmt.Sprint(base, "_", n)
	}
	i.values[name] = value
	what := "a secret, whose value is in the file"
	if placeholder.MatchString(value) {
		what += ": fill in what stands there as ${…}"
	}
	s.need(name, what)
	return "${" + name + "}"
}

// taken reports whether a variable already has another value.
func (i *Import) taken(name, value string) bool {
	if other, ours := i.values[name]; ours {
		return other != value
	}
	return i.into.refers(name)
}

// table reads variables or headers. Secrets become references to variables whose name is prefix and the name in the
// table.
func (i *Import) table(s *server, v any, prefix string) map[string]string {
	table := map[string]string{}
	from := orEmpty(v)
	for _, name := range slices.Sorted(maps.Keys(from)) {
		value := text(from[name])
		if !looksSecret(name, value) {
			table[name] = i.reference(s, value)
			continue
		}
		table[name] = i.credential(s, prefix, name, value)
	}
	return table
}

// credential returns a reference in place of a secret with a name. In value, the secret may follow the scheme of a
// header.
func (i *Import) credential(s *server, prefix, name, value string) string {
	scheme, token, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "Basic") {
		scheme, token = "", value
	}
	own := variable(name)
	if own == "AUTHORIZATION" {
		own = "TOKEN"
	}
	return strings.TrimPrefix(scheme+" "+i.secret(s, prefix+own, token), " ")
}

// pair matches NAME=VALUE or a header, alone or after a flag.
var pair = regexp.MustCompile(`^(-{0,2}[A-Za-z_][\w.-]*)(=|:\s*)([^/](?s:.*)|/[^/](?s:.*))$`)

// arguments replaces secrets in the arguments of a program. It finds them after --token, in --token=VALUE, NAME=VALUE,
// headers and URLs, and by their form.
func (i *Import) arguments(s *server, args []string) []string {
	all := make([]string, len(args))
	for count, arg := range args {
		if count > 0 && strings.HasPrefix(args[count-1], "--") && !strings.Contains(args[count-1], "=") && !strings.HasPrefix(arg, "-") && looksSecret(args[count-1], arg) {
			all[count] = i.credential(s, variable(s.name)+"_", strings.TrimLeft(args[count-1], "-"), arg)
			continue
		}
		all[count] = i.argument(s, arg)
	}
	return all
}

func (i *Import) argument(s *server, arg string) string {
	p := pair.FindStringSubmatch(arg)
	switch {
	case p != nil && looksSecret(p[1], p[3]):
		return p[1] + p[2] + i.credential(s, variable(s.name)+"_", strings.TrimLeft(p[1], "-"), p[3])
	case p != nil:
		return p[1] + p[2] + i.argument(s, p[3])
	case looksSecret("", arg):
		return i.credential(s, variable(s.name)+"_", "SECRET", arg)
	case strings.Contains(arg, "://"):
		return i.address(s, arg)
	}
	return i.reference(s, arg)
}

// admit adds an access rule for a token and a server.
func (i *Import) admit(s *server, token string) {
	if len(token) < 16 && !placeholder.MatchString(token) {
		s.notes = append(s.notes, "the token of its clients has fewer than 16 characters: choose a longer one")
	}
	if count := slices.IndexFunc(i.tokens, func(a access) bool { return a.token == token }); count >= 0 {
		i.tokens[count].servers = append(slices.Clone(i.tokens[count].servers), s.name)
		return
	}
	i.tokens = append(i.tokens, access{token, []string{s.name}})
}
