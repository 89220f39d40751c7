package strict

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Expand replaces the references in s, and reports whether s has references. The error names each reference that cannot
// be replaced, but shows no values.
func (d *Decoder) Expand(s string) (string, bool, error) {
	var out strings.Builder
	var errs []error
	found := false
	for {
		before, rest, ok := strings.Cut(s, "${")
		if !ok {
			out.WriteString(s)
			return out.String(), found, errors.Join(errs...)
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			s = rest
			continue
		}
		out.WriteString(before)
		found = true
		inner, after, closed := strings.Cut(rest, "}")
		value, err := d.lookup(inner, closed)
		if err != nil {
			errs = append(errs, err)
		}
		out.WriteString(value)
		s = after
	}
}

var errUnset = errors.New("is not set")

// lookup returns the value of a reference. inner is the text between the reference's braces.
func (d *Decoder) lookup(inner string, closed bool) (string, error) {
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if rest, ok := strings.CutPrefix(name, "env:"); ok {
		if !d.Foreign {
			return "", fmt.Errorf("%s is the form of another program: write ${%s}", Clip("${"+inner+"}"), Clip(rest))
		}
		name = rest
	}
	id, isInput := strings.CutPrefix(name, "input:")
	switch {
	case closed && d.Later != nil && d.Later(inner):
		return "${" + inner + "}", nil
	case isInput && closed:
		return "", fmt.Errorf("%s is an input variable of VS Code: write ${%s}, and set that variable in the environment of %s", Clip("${"+inner+"}"), Clip(variableName(id)), d.Program)
	case !closed:
		return "", fmt.Errorf("%s has no closing brace: write ${NAME}, or $${ for a literal ${", Clip("${"+inner))
	case !IsVariable(name):
		return "", fmt.Errorf("%s is not a reference: write ${NAME} or ${NAME:-default}, or $${ for a literal ${", Clip("${"+inner+"}"))
	case strings.Contains(fallback, "${"):
		return "", fmt.Errorf("${%s:-…}: a default is plain text and cannot hold a reference", name)
	}
	// As in a shell, the default also replaces an empty value.
	value, set := d.Env(name)
	if hasFallback && value == "" {
		return fallback, nil
	}
	if !set && isEditorVariable(name) {
		return "", fmt.Errorf("only editors replace ${%s}: write the path itself, or ${HOME} for the home folder", name)
	}
	if !set && sanitize.MayNameSecret(name) { // a default in the file would not be secret
		return "", fmt.Errorf("the variable %s %w: set it in the environment of %s", name, errUnset, d.Program)
	}
	if !set {
		return "", fmt.Errorf("the variable %s %w: set it in the environment of %s, or write ${%s:-default}", name, errUnset, d.Program, name)
	}
	if value != "" {
		d.Secrets[value] = "${" + name + "}"
		d.values = append(d.values, value)
	}
	return value, nil
}

// isEditorVariable reports whether a name is a variable of editors, which no environment has.
func isEditorVariable(name string) bool {
	return slices.Contains([]string{"workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "userHome", "pathSeparator"}, name)
}

// variableName turns a text into the name of a variable.
func variableName(text string) string {
	return strings.Map(func(r rune) rune {
		if IsVariable("_" + string(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, text)
}

// IsVariable reports whether a name is a valid name of a variable.
func IsVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Redact replaces values from the environment by their references, in messages from other code.
func (d *Decoder) Redact(message string) string { return Redact(message, d.Secrets) }

// Redact replaces values from the environment by their references. secrets maps values to references. To keep ordinary
// text readable, it replaces a value of up to three bytes only where the value is a whole word.
func Redact(message string, secrets map[string]string) string {
	// Longest first, because a value may contain another value.
	values := slices.SortedFunc(maps.Keys(secrets), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	for _, value := range values {
		quoted := strconv.Quote(value)
		for _, form := range []string{value, quoted[1 : len(quoted)-1]} {
			message = replaceWord(message, form, secrets[value])
		}
	}
	return message
}

func replaceWord(s, old, with string) string {
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(s, old)
		if !ok {
			out.WriteString(s)
			return out.String()
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(after)
		out.WriteString(before)
		if len(old) < 4 && (isWord(last) || isWord(next)) {
			out.WriteString(old)
		} else {
			out.WriteString(with)
		}
		s = after
	}
}

func isWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// Clip shortens a text of the file for a message.
func Clip(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}
