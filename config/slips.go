package config

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/internal/similar"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// This file recognizes habits from shells and from files of other programs. Its messages name the form that the bridge
// understands.

// shortCommand reads a command line that stands in place of the keys of stdio. It splits the line at spaces, and
// refuses characters that mean something to a shell.
func (d *decoder) shortCommand(s *strict.Slot, line string, into **stdio.Config) bool {
	words := strings.Fields(line)
	if i := strings.IndexAny(line, "|;&$<>*?~\"'`(){}[]\\#!\n"); i >= 0 {
		d.Fault(s.Line, "%s%s has %q, which only a shell could read: write { command: PROGRAM, args: [ARG, …] }, or give the line to a shell: { command: sh, args: [\"-c\", LINE] }", s.Section.Where, s.Label, line[i:i+1])
		return false
	}
	*into = &stdio.Config{}
	if len(words) > 0 {
		**into = stdio.Config{Command: words[0], Args: words[1:]}
	}
	shown := fmt.Sprintf("%q", strict.Clip((*into).Command))
	sec := &strict.Section{
		Where: s.Section.Where + s.Label + ": ",
		Line:  s.Line,
		Marks: map[string]strict.Mark{"command": {Line: s.Line, Shown: shown}},
	}
	d.CheckStruct(sec, *into)
	s.Section.Adopt(s.Label, sec)
	return true
}

// checkCommandLine adds a fault for a command that has its arguments in it, such as "npx -y foo". It allows spaces in a
// path.
func (d *decoder) checkCommandLine(sec *strict.Section, c *stdio.Config) {
	m := sec.Marks["command"]
	words := strings.Fields(c.Command)
	if m.Bad || len(words) < 2 || strings.ContainsAny(words[0], `/\`) {
		return
	}
	fix := "write the program alone, and the rest as args"
	if !strings.Contains(m.Shown, "${") { // without variables, the words are no secrets
		fix = fmt.Sprintf("write command: %s, args: [%s]", words[0], strings.Join(quoted(words[1:]), ", "))
	}
	d.Fault(m.Line, "%scommand is a whole command line, and no shell splits it: %s", sec.Where, fix)
	m.Bad = true
	sec.Marks["command"] = m
}

// closedContainer reports whether a command runs a container without -i, which keeps standard input open.
func closedContainer(c *stdio.Config) bool {
	program := strings.TrimSuffix(c.Command[strings.LastIndexAny(c.Command, `/\`)+1:], ".exe")
	args := c.Args
	if len(args) > 0 && args[0] == "container" {
		args = args[1:]
	}
	if !slices.Contains([]string{"docker", "podman", "nerdctl"}, program) || len(args) == 0 || args[0] != "run" {
		return false
	}
	return !slices.ContainsFunc(args[1:], func(arg string) bool {
		return withInput.MatchString(arg) // the image's own arguments count, too: only the program knows where they begin
	})
}

// withInput matches a flag of docker run that keeps standard input open, alone or joined with other flags.
var withInput = regexp.MustCompile(`^(--interactive(=true)?|-[dtPq]*i.*)$`)

func quoted(words []string) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = fmt.Sprintf("%q", word)
	}
	return all
}

// unbraced matches a shell variable without braces, bare such a variable that is the whole text, and atHome a path in
// the home folder.
var (
	unbraced = regexp.MustCompile(`(^|[^$])\$[A-Z_][A-Z0-9_]*\b`)
	bare     = regexp.MustCompile(`^\$[A-Z_][A-Z0-9_]*$`)
	atHome   = regexp.MustCompile(`^~(/|\\|$)`)
)

// OfShell reports whether a shell would replace parts of the text: ~ as the home folder, and a variable without braces.
func OfShell(text string) (home, variable bool) {
	return atHome.MatchString(text), unbraced.MatchString(text)
}

// CheckText looks for parts of a text that only a shell would replace. In a path they are a fault, elsewhere a warning.
// Messages do not show the text, which may be a secret.
func (d *decoder) CheckText(s *strict.Slot, text string) error {
	before := d.argument
	d.noteSecret(s, text)
	warned := d.warnSpelling(s, before, text)
	home, variable := OfShell(text)
	const braces = "$NAME has no meaning here: write ${NAME}, with braces"
	label, _, _ := strings.Cut(s.Label, ": item ")
	switch {
	case !home && !variable:
	case slices.Contains([]string{"command", "cwd", "env_file", "ca_file", "cert_file", "key_file", "key_files", "token_file", "state_dir", "keep_dir"}, label):
		if home {
			return errors.New("~ has no meaning here: write ${HOME} for the home folder")
		}
		return errors.New(braces)
	case home && strings.HasPrefix(s.Label, "args: item "):
		d.Warn(s.Line, "%s%s begins with ~, which reaches the server unchanged, since there is no shell: write ${HOME} for the home folder", s.Section.Where, s.Label)
	case warned:
	case bare.MatchString(text), // in a longer text, such as a password, a $NAME may be meant literally
		variable && slices.ContainsFunc([]string{"args: item ", "env: ", "headers: ", "openapi_headers: "}, func(key string) bool { return strings.HasPrefix(s.Label, key) }):
		d.Warn(s.Line, "%s%s has a $NAME without braces, which stays unchanged: to take it from the environment, write ${NAME}", s.Section.Where, s.Label)
	}
	return nil
}

// spellings are forms that other programs, a shell or other kinds of patterns would replace or interpret, and that the
// bridge takes literally. in lists the keys in whose texts warnSpelling looks for the form.
var spellings = []struct {
	form *regexp.Regexp
	in   []string
	say  string
}{
	{regexp.MustCompile(`(^|[^$])\{(env|file):[^{}]+\}`), given, "has {env:…} or {file:…}, which stays unchanged: to take it from the environment, write ${NAME}"},
	{regexp.MustCompile(`%[A-Z_][A-Z0-9_]{2,}%`), given, "has a %NAME%, which stays unchanged: to take it from the environment, write ${NAME}"},
	{regexp.MustCompile(`<[A-Za-z][\w -]*>$`), given, "ends with a text in < >, which stays unchanged: if it stands for a value, put the value in"},
	{regexp.MustCompile(`\$\([^()]+\)`), given, "has a $(command), which is not run, since there is no shell: start the program by sh, -c"},
	{regexp.MustCompile(`^(\|\|?|&&?|;|[12]?>>?|<|[12]?>&[12])$`), []string{"args"}, "is an operator of a shell, and the program gets it as an argument, since there is no shell: start the program by sh, -c"},
	{regexp.MustCompile(`[^$]\$[A-Z_][A-Z0-9_]*`), addresses, "has a $NAME without braces, which stays unchanged: to take it from the environment, write ${NAME}"},
	{expression, []string{"allow", "deny"}, noExpression},
	{regexp.MustCompile(`^\^|\$$|^\.\*$`), []string{"users", "claims"}, "looks like a regular expression: here * and ? have a meaning, and nothing else"},
	{regexp.MustCompile(`^[\^$]|\.\*`), []string{"env_pass"}, "is the name of no variable: write the name, or a pattern such as AWS_*"},
}

// expression matches what means something in a regular expression or in a list, and what is in no name.
var expression = regexp.MustCompile(`^\^|\$$|^\.\*$|[\[\](){}|\\,]`)

const noExpression = "has what would mean something in a regular expression or a list: here * and ? have a meaning, and nothing else"

// filledIn matches what the decoder replaces: ${NAME} and ${NAME:-default}.
var filledIn = regexp.MustCompile(`\$?\$\{[^{}]*\}`)

var (
	given     = []string{"args", "env", "headers", "openapi_headers"}
	addresses = []string{"url", "base_url", "openapi", "proxy", "redis", "advertise", "issuer", "jwks", "token_url", "resource", "public_url", "redirect_uri"}
)

// warnSpelling warns if a text has one of the spellings, and reports whether it has. before is the argument in front of
// the text: after -c or -e, the text is a program.
func (d *decoder) warnSpelling(x *strict.Slot, before, text string) bool {
	label, _, _ := strings.Cut(x.Label, ": ")
	if before == "-c" || before == "-e" || strings.HasSuffix(x.Section.Where, "resources: ") {
		return false
	}
	text = filledIn.ReplaceAllString(text, "")
	for _, s := range spellings {
		if slices.Contains(s.in, label) && s.form.MatchString(text) {
			d.Warn(x.Line, "%s%s %s", x.Section.Where, x.Label, s.say)
			return true
		}
	}
	return false
}

// warnPatterns warns of patterns that match nothing: names with the prefix that only the aggregate adds, and patterns
// of resources that are no URIs. It also looks at the keys of mappings, which warnSpelling does not see.
func (d *decoder) warnPatterns(c *Config) {
	for i, sec := range d.sections {
		s := &c.Servers[i]
		warn := func(key, say string) {
			m, _ := sec.At(key)
			d.Warn(m.Line, "%s%s %s", sec.Where, key, say)
		}
		items := func(key string, patterns []string) map[string]string {
			all := map[string]string{}
			for i, p := range patterns {
				all[fmt.Sprintf("%s: item %d", key, i+1)] = p
			}
			return all
		}
		tables := map[string]string{}
		keys := func(key string, names iter.Seq[string]) {
			for name := range names {
				tables[key+": "+name] = name
			}
		}
		hidden := func(key string, r *filter.Rules, names iter.Seq[string]) {
			for _, name := range slices.Sorted(names) {
				if !isPattern(name) && !r.Passes(name) {
					warn(key+name, "has no effect: allow and deny hide it")
				}
			}
		}
		keys("limits: tools", maps.Keys(s.Limits.Tools))
		keys("scopes: tools", maps.Keys(s.Scopes.Tools))
		keys("scopes: prompts", maps.Keys(s.Scopes.Prompts))
		for _, key := range slices.Sorted(maps.Keys(tables)) {
			if expression.MatchString(tables[key]) {
				warn(key, noExpression)
			}
		}
		for _, of := range []struct {
			what  string
			rules *filter.Rules
		}{{"tools", &s.Tools}, {"prompts", &s.Prompts}} {
			what, r := of.what, of.rules
			maps.Copy(tables, items(what+": allow", r.Allow))
			maps.Copy(tables, items(what+": deny", r.Deny))
			keys(what+": rename", maps.Keys(r.Rename))
			keys(what+": override", maps.Keys(r.Override))
			hidden(what+": rename: ", r, maps.Keys(r.Rename)) // only a warning: the operator may hide it for a while
			hidden(what+": override: ", r, maps.Keys(r.Override))
		}
		for _, key := range slices.Sorted(maps.Keys(tables)) {
			if s.Prefix != "" && strings.HasPrefix(tables[key], s.Prefix) {
				warn(key, fmt.Sprintf("begins with the prefix %q, which names have only at /mcp: write the server's own name", s.Prefix))
			}
		}
		uris := items("resources: allow", s.Resources.Allow)
		maps.Copy(uris, items("resources: deny", s.Resources.Deny))
		for _, key := range slices.Sorted(maps.Keys(uris)) {
			if pattern := uris[key]; !strings.Contains(pattern, ":") && !strings.ContainsAny(pattern[:min(1, len(pattern))], "*?{") {
				warn(key, "has no scheme, and URIs begin with one: write the whole URI, as in file:///srv/*")
			}
		}
	}
}

// flagKeys adds a fault for each key that is a flag of the command, or of another program. It returns the other keys.
func (d *decoder) flagKeys(list []strict.Entry) []strict.Entry {
	return slices.DeleteFunc(list, func(e strict.Entry) bool {
		say := map[string]string{
			"verbose":   "write log_level: debug",
			"debug":     "write log_level: debug",
			"logformat": "that is a flag: mcp-bridge serve --log-format json",
			"insecure":  "that is a flag: mcp-bridge serve --insecure",
		}[similar.Fold(e.Key)]
		if say == "" || d.Foreign {
			return false
		}
		d.Fault(e.Line, "unknown key %q: %s", strict.Clip(e.Key), say)
		return true
	})
}
