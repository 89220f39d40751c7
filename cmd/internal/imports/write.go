package imports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// server is a server of the new file.
type server struct {
	name, from, kind   string
	notes              []string
	needs              []need // variables
	command            string
	args               []string
	env                map[string]string
	envPass            []string
	envFile, cwd       string
	url                string
	headers            map[string]string
	off                bool
	allow, deny        []string
	forward            []string
	login              bool
	timeout, handshake time.Duration
	why                string // why a placeholder cannot be filled in
}

type need struct{ name, what string }

func (s *server) need(name, what string) {
	if !slices.ContainsFunc(s.needs, func(n need) bool { return n.name == name }) {
		s.needs = append(s.needs, need{name, what})
	}
}

func (i *Import) Names() []string {
	var all []string
	for _, s := range i.servers {
		all = append(all, s.name)
	}
	return all
}

// YAML returns the new file, or the file of Into with the servers.
func (i *Import) YAML() []byte {
	var b bytes.Buffer
	var access bytes.Buffer
	for _, c := range i.callers() {
		fmt.Fprintf(&access, "  - { name: %s, token: %s, servers: %s }\n", c.name, scalar(c.token), list(c.servers))
	}
	if access.Len() > 0 {
		b.WriteString("access:\n" + access.String())
	}
	if i.into != nil {
		b.Reset() // see Fault
	} else {
		b.WriteString("servers:\n")
	}
	for _, s := range i.servers {
		s.write(&b)
	}
	if i.into != nil {
		return i.into.with(b.Bytes())
	}
	return b.Bytes()
}

// caller is a rule of the new file for the holder of a token.
type caller struct {
	server  // for the caller's name and needs
	token   string
	servers []string
}

// callers returns the rules for the tokens. It adds the variables for them to the variables of the import. Every call
// returns the same rules.
func (i *Import) callers() []caller {
	var all []caller
	for count, a := range i.tokens {
		c := caller{server: server{name: fmt.Sprintf("client-%d", count+1)}, servers: a.servers}
		if c.token = i.reference(&c.server, a.token); placeholder.ReplaceAllString(a.token, "") != "" {
			c.token = i.secret(&c.server, fmt.Sprintf("CLIENT_%d_TOKEN", count+1), a.token)
		}
		all = append(all, c)
	}
	return all
}

// needed returns the variables to set, with the names of the servers and callers that need them.
func (i *Import) needed() []server {
	all := slices.Clone(i.servers)
	for _, c := range i.callers() {
		all = append(all, c.server)
	}
	return all
}

// Variables returns the variables to set before the file is used.
func (i *Import) Variables() []string {
	var names []string
	for _, s := range i.needed() {
		for _, n := range s.needs {
			names = append(names, n.name)
		}
	}
	names = slices.AppendSeq(names, maps.Keys(i.values))
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *server) write(b *bytes.Buffer) {
	from := "from " + comment(s.from)
	if s.from == "" {
		from = "an example: put your own server here"
	}
	fmt.Fprintf(b, "  %s:\n    # %s\n", s.name, from)
	for _, note := range s.notes {
		fmt.Fprintf(b, "    # %s\n", comment(note))
	}
	for _, n := range s.needs {
		fmt.Fprintf(b, "    # %s: %s\n", n.name, comment(n.what))
	}
	if s.off {
		b.WriteString("    enabled: false\n")
	}
	put := func(key, value string) {
		if value != "" {
			fmt.Fprintf(b, "      %s: %s\n", key, scalar(value))
		}
	}
	table := func(key string, values map[string]string) {
		if len(values) == 0 {
			return
		}
		fmt.Fprintf(b, "      %s:\n", key)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(b, "        %s: %s\n", scalar(name), quoted(values[name]))
		}
	}
	fmt.Fprintf(b, "    %s:\n", s.kind)
	put("command", s.command)
	if len(s.args) > 0 {
		fmt.Fprintf(b, "      args: %s\n", list(s.args))
	}
	table("env", s.env)
	if len(s.envPass) > 0 {
		fmt.Fprintf(b, "      env_pass: %s\n", list(s.envPass))
	}
	put("env_file", s.envFile)
	put("cwd", s.cwd)
	put("url", s.url)
	table("headers", s.headers)
	if s.login {
		b.WriteString("      oauth: { login: true }\n")
	}
	var parts []string
	for _, f := range []struct {
		key   string
		names []string
	}{{"allow", s.allow}, {"deny", s.deny}} {
		if len(f.names) > 0 {
			parts = append(parts, f.key+": "+list(f.names))
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "    tools: { %s }\n", strings.Join(parts, ", "))
	}
	if len(s.forward) > 0 {
		fmt.Fprintf(b, "    forward: %s\n", list(s.forward))
	}
	if s.timeout > 0 {
		fmt.Fprintf(b, "    timeout: %s\n", seconds(s.timeout))
	}
	if s.timeout > time.Hour { // an hour is the default of max_timeout
		fmt.Fprintf(b, "    max_timeout: %s\n", seconds(s.timeout))
	}
	if s.handshake > 0 {
		fmt.Fprintf(b, "    handshake_timeout: %s\n", seconds(s.handshake))
	}
}

// check returns the reason why the bridge would refuse the server, or "".
func (s *server) check() string {
	var b bytes.Buffer
	b.WriteString("servers:\n")
	on := *s
	on.off = false
	on.write(&b)
	_, err := config.Parse("it", b.Bytes(), func(name string) (string, bool) { return "the-value-of-" + name, true })
	if err == nil {
		return ""
	}
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, message, _ := strings.Cut(line, fmt.Sprintf("server %q: ", s.name))
		all = append(all, cmp.Or(message, line))
	}
	return strings.Join(all, "; ")
}

// comment returns a text as one line, safe for a terminal.
func comment(s string) string { return sanitize.Text(strings.Join(strings.Fields(s), " ")) }

var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// scalar returns a text as a YAML scalar, quoted only if necessary.
func scalar(s string) string {
	if plain.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return quoted(s)
}

// quoted returns a text in quotes, safe for a terminal.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text can always be encoded
	return string(sanitize.JSON(bytes.TrimSuffix(b.Bytes(), []byte("\n"))))
}

func list(texts []string) string {
	all := make([]string, len(texts))
	for i, s := range texts {
		all[i] = quoted(s)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// Server returns a configuration with one server, described as in a client's file. A comment contains from, the origin
// of the server. For an example, from is empty.
func Server(from, name string, entry map[string]any) ([]byte, error) {
	im := Import{values: map[string]string{}}
	if args, ok := entry["args"].([]string); ok {
		all := make([]any, len(args))
		for i, arg := range args {
			all[i] = arg
		}
		entry["args"] = all
	}
	im.add(from, name, table{servers: object{name: entry}})
	if len(im.servers) == 0 {
		return nil, fmt.Errorf("%s", strings.Join(im.Notes, "; "))
	}
	return im.YAML(), nil
}
