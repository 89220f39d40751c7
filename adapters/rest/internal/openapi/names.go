package openapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxName bounds the names of tools and properties, in bytes: the lowest limit of all model
// providers.
const maxName = 64

// isPlainName reports whether every provider accepts s as a property name.
func isPlainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// plainName replaces characters other than letters, digits, _ and - by _. If dots is set, it keeps
// dots, which names of properties may have.
func plainName(s string, dots bool) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' || r == '.' && dots {
			return r
		}
		return '_'
	}, s)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// tail appends a hash of what to a name, and cuts the name so that both fit limit bytes.
func tail(name, what string, limit int) string {
	if n := limit - 9; len(name) > n {
		name = name[:n]
	}
	return name + "_" + hash(what)
}

// cut64 shortens a property name that is too long.
func cut64(s string) string {
	if len(s) <= maxName {
		return s
	}
	return tail(s, s, maxName)
}

// nameTools names every tool by its operation's own name, or else by method and path. If several
// tools want the same name, only the tool whose operation has exactly that name keeps it. The others
// get a hash of method and path appended, so that their names do not depend on the document's order.
func nameTools(tools []*Tool, prefix string, limit int, rename func(*Operation, string) string) {
	type wish struct {
		name  string
		exact bool
	}
	wishes := make([]wish, len(tools))
	owners, count := map[string]int{}, map[string]int{}
	for i, t := range tools {
		op := t.Operation
		own := cmp.Or(op.MCP.Name, op.ID)
		name := plainName(own, false)
		if strings.Trim(name, "_-") == "" {
			name, own = fromPath(op), ""
		}
		if rename != nil {
			if other := plainName(rename(op, name), true); other != name {
				name, own = other, other
			}
		}
		if len(prefix)+len(name) > limit {
			name, own = tail(name, op.Key(), limit-len(prefix)), ""
		}
		wishes[i] = wish{name, own == name}
		count[name]++
		if own == name {
			owners[name]++
		}
	}
	for i, t := range tools {
		w := wishes[i]
		if count[w.name] > 1 && !(w.exact && owners[w.name] == 1) {
			w.name = tail(w.name, t.Operation.Key(), limit-len(prefix))
		}
		t.Name = prefix + w.name
	}
}

// fromPath returns a name made of method and path, such as get_pets_id.
func fromPath(op *Operation) string {
	words := strings.FieldsFunc(plainName(op.written, false), func(r rune) bool { return r == '_' })
	return strings.Join(append([]string{strings.ToLower(plainName(op.Method, false))}, words...), "_")
}

// argumentName returns the name of an argument or a member as models see it. A name without any plain
// character becomes a hash, which does not depend on other names.
func argumentName(own string) string {
	name := plainName(own, true)
	if name != own && strings.Trim(name, "_.-") == "" {
		return "arg_" + hash(own)
	}
	return cut64(name)
}

// nameArguments returns the names of the arguments for all parameters. "body" and the reserved names
// are not used. If several parameters have the same name, the path parameter keeps the name, and the
// others get their place appended, and a number if that is not enough.
func nameArguments(params []*Parameter, reserved ...string) []string {
	names := make([]string, len(params))
	count := map[string]int{"body": 1}
	for _, r := range reserved {
		count[r]++
	}
	exact := map[string]bool{}
	for i, p := range params {
		names[i] = argumentName(cmp.Or(p.Name, string(p.In)))
		// Among the parameters of one place, the one whose name needs no change keeps it.
		if key := string(p.In) + " " + names[i]; names[i] != p.Name || !exact[key] {
			exact[key] = exact[key] || names[i] == p.Name
		}
		count[names[i]]++
	}
	taken := map[string]bool{"body": true}
	for _, r := range reserved {
		taken[r] = true
	}
	// keeps reports whether a parameter may keep its bare name.
	keeps := func(i int) bool {
		p, n := params[i], names[i]
		if taken[n] {
			return false
		}
		if count[n] == 1 {
			return true
		}
		places := map[Place]bool{}
		for j, p := range params {
			if names[j] == n {
				places[p.In] = true
			}
		}
		if len(places) > 1 && p.In != InPath {
			return false
		}
		return p.Name == n || !exact[string(p.In)+" "+n]
	}
	out := make([]string, len(params))
	for i := range params {
		if keeps(i) {
			out[i] = names[i]
			taken[names[i]] = true
		}
	}
	for i, p := range params {
		if out[i] != "" {
			continue
		}
		suffix := "_" + string(p.In)
		name := names[i]
		if len(name)+len(suffix) > maxName {
			name = name[:maxName-len(suffix)]
		}
		out[i] = name + suffix
		for n := 2; taken[out[i]]; n++ {
			more := suffix + "_" + strconv.Itoa(n)
			out[i] = names[i][:min(len(names[i]), maxName-len(more))] + more
		}
		taken[out[i]] = true
	}
	return out
}
