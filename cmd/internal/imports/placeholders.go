package imports

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// These patterns match placeholders. Programs write them as ${…}, {env:NAME}, ${{ secrets.NAME }}, $NAME or $(command).
// First, the texts of a table are converted to the form ${…}; then reference converts each placeholder.

var (
	placeholder = regexp.MustCompile(`\$\{([^{}]*)\}`)
	// bare matches placeholders of opencode: {env:NAME} and {file:PATH}.
	bare = regexp.MustCompile(`\$?\{((?:env|file):[^{}]+)\}`)
	// templates matches placeholders of Continue: ${{ secrets.NAME }}.
	templates = regexp.MustCompile(`\$\{\{\s*([^{}]*?)\s*\}\}`)
	dollars   = regexp.MustCompile(`\$+[A-Z_][A-Z0-9_]*\b`)
	dollar    = regexp.MustCompile(`^(Bearer )?\$([A-Za-z_]\w*)$`)
)

// spelled converts the placeholders that files of any program may have to the form ${…}.
func spelled(s string) string {
	return bare.ReplaceAllString(templates.ReplaceAllString(s, "$${template:$1}"), "$${$1}")
}

// braced replaces $NAME by ${NAME} where it is the whole string, or where NAME is in capitals. Gemini expands other
// names only if the variable exists.
func braced(s string) string {
	if m := dollar.FindStringSubmatch(s); m != nil {
		return m[1] + "${" + m[2] + "}"
	}
	return dollars.ReplaceAllStringFunc(s, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref
		}
		return "${" + ref[1:] + "}"
	})
}

// shell is braced for texts that a shell expands, such as texts of Crush.
func shell(s string) string {
	if strings.Contains(s, "$(") || strings.Contains(s, "`") {
		return "${shell:" + strings.NewReplacer("{", "", "}", "").Replace(s) + "}"
	}
	return braced(s)
}

// each returns v with all its strings changed.
func each(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		return change(v)
	case []any:
		all := slices.Clone(v)
		for i := range all {
			all[i] = each(all[i], change)
		}
		return all
	case object:
		all := maps.Clone(v)
		for key := range all {
			all[key] = each(all[key], change)
		}
		return all
	}
	return v
}

// editors lists variables that only an editor can fill in, while a file is open in the editor.
var editors = []string{
	"command", "config", "defaultBuildTask", "execPath", "extensionInstallFolder", "extensionPath",
	"file", "fileBasename", "fileBasenameNoExtension", "fileDirname", "fileDirnameBasename", "fileExtname", "fileWorkspaceFolder",
	"lineNumber", "relativeFile", "relativeFileDirname", "selectedText",
}

// reference converts the references in a text to the bridge's form. If only the client can fill in a reference,
// reference sets s.why.
func (i *Import) reference(s *server, value string) string {
	return placeholder.ReplaceAllStringFunc(value, func(whole string) string {
		inner := whole[2 : len(whole)-1]
		kind, rest, _ := strings.Cut(inner, ":")
		asked := func(name, what string) string {
			s.need(name, what)
			return "${" + name + "}"
		}
		switch {
		case kind == "input":
			return asked(variable(rest), i.inputs[variable(rest)])
		case kind == "template" && (strings.HasPrefix(rest, "secrets.") || strings.HasPrefix(rest, "inputs.")):
			return asked(variable(rest[strings.LastIndexAny(rest, "./")+1:]), "what its client keeps as "+rest)
		case kind == "file" && rest != "":
			return asked("FILE_"+strings.TrimLeft(variable(rest), "_"), "the content of the file "+rest)
		case inner == "userHome":
			return "${HOME}"
		case slices.Contains([]string{"workspaceFolder", "workspaceRoot", "workspacePath"}, kind), inner == "cwd":
			return asked("WORKSPACE_FOLDER", "the folder that the editor would fill in")
		case kind == "workspaceFolderBasename":
			return asked("WORKSPACE_NAME", "the name of the folder that the editor would fill in")
		case inner == "pathSeparator", inner == "/":
			return string(os.PathSeparator)
		case kind == "shell":
			s.why = "only a shell can fill in " + comment(rest)
			return whole
		case kind == "template":
			s.why = "only Continue can fill in ${{ " + comment(rest) + " }}"
			return whole
		case slices.Contains(editors, kind):
			s.why = "only its client can fill in " + comment(whole)
			return whole
		}
		name, operator, fallback := shellForm(strings.TrimPrefix(inner, "env:"))
		switch {
		case !plainName.MatchString(name):
			return "$" + whole // literal
		case operator == ":-" || operator == "-":
			return "${" + name + ":-" + fallback + "}"
		case operator == ":+" || operator == "+":
			s.why = "only a shell can fill in " + comment(whole)
		}
		return "${" + name + "}"
	})
}

// shellForm cuts forms such as NAME, NAME:-fallback and NAME:?message into their parts.
func shellForm(s string) (name, operator, word string) {
	at := strings.IndexAny(s, ":-+?=")
	if at < 0 {
		return s, "", ""
	}
	width := 1
	if s[at] == ':' && at+1 < len(s) {
		width = 2
	}
	return s[:at], s[at : at+width], s[at+width:]
}
