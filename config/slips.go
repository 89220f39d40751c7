package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// This file recognizes habits from shells and from files of other programs. Its messages name the form that the bridge
// understands.

// shortCommand reads a command line that stands in place of the keys of stdio. It splits the line at spaces, and
// refuses characters that mean something to a shell.
func (d *decoder) shortCommand(s *strict.Slot, line string, into **stdio.Config) (sec *strict.Section, ok bool) {
	words := strings.Fields(line)
	if i := strings.IndexAny(line, "|;&$<>*?~\"'`(){}[]\\#!\n"); i >= 0 {
		d.Fault(s.Line, "%s%s has %q, which only a shell could read: write { command: PROGRAM, args: [ARG, …] }, or give the line to a shell: { command: sh, args: [\"-c\", LINE] }", s.Section.Where, s.Label, line[i:i+1])
		return nil, false
	}
	*into = &stdio.Config{}
	if len(words) > 0 {
		**into = stdio.Config{Command: words[0], Args: words[1:]}
	}
	shown := fmt.Sprintf("%q", strict.Clip((*into).Command))
	return &strict.Section{
		Where: s.Section.Where + s.Label + ": ",
		Line:  s.Line,
		Marks: map[string]strict.Mark{"command": {Line: s.Line, Shown: shown}},
	}, true
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

// expression matches what means something in a regular expression or in a list, and what is in no name.
var expression = regexp.MustCompile(`^\^|\$$|^\.\*$|[\[\](){}|\\,]`)

const noExpression = "has what would mean something in a regular expression or a list: here * and ? have a meaning, and nothing else"
