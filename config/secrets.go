package config

import (
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// secretKeys are the keys whose values are secrets.
var secretKeys = []string{"token", "secret", "secrets", "password", "bearer", "secret_key", "session_token"}

// flagValue matches an argument such as --token=VALUE or NAME=VALUE, and a header.
var flagValue = regexp.MustCompile(`^-{0,2}([A-Za-z_][\w.-]*)(?:=|:\s*)(.*)$`)

// noteSecret remembers the first secret that is written in the file, not in a variable. It warns if an argument looks
// like a secret.
func (d *decoder) noteSecret(s *strict.Slot, text string) {
	before := d.argument
	if d.argument = ""; strings.HasPrefix(s.Label, "args: item ") {
		d.argument = text
	}
	if strings.Contains(text, "${") || text == "" {
		return
	}
	label, item, _ := strings.Cut(s.Label, ": ")
	switch label {
	case "args":
		name, value := strings.TrimLeft(before, "-"), text
		if name == before || strings.HasPrefix(text, "-") || s.Label == "args: item 1" {
			name = ""
		}
		if p := flagValue.FindStringSubmatch(text); p != nil {
			name, value = p[1], p[2]
		}
		if !sanitize.LooksSecret("", text) && !secretArgument(name, value) {
			return
		}
		d.Warn(s.Line, "%s%s looks like a secret, and everybody on this machine can see the arguments of programs: if the server takes it from a variable, set that in env, as ${NAME}", s.Section.Where, s.Label)
	case "env", "headers", "openapi_headers":
		if !sanitize.LooksSecret(item, text) {
			return
		}
	default:
		if !slices.Contains(secretKeys, label) {
			return
		}
	}
	if d.secret == nil {
		d.secret = s
	}
}

// secretArgument reports whether the value of the flag name may be a secret. A path or a number is none.
func secretArgument(name, value string) bool {
	return len(value) >= 8 && !strings.ContainsAny(value[:1], "/.") && strings.Trim(value, "0123456789") != "" && sanitize.LooksSecret(name, value)
}

// checkReadable warns if every user of this machine can read a file that contains a secret.
func (d *decoder) checkReadable(path string) {
	if d.secret == nil || runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		d.Warn(d.secret.Line, "%s%s is a secret, and everybody on this machine can read the file: chmod o-r it, or take the secret from the environment, as ${NAME}", d.secret.Section.Where, d.secret.Label)
	}
}

// NoteExpanded remembers values from the environment that requests to an HTTP API contain, in headers, queries or
// arguments.
func (d *decoder) NoteExpanded(s *strict.Slot, whole string, values []string) {
	if len(values) == 0 || !strings.Contains(s.Section.Where, ": rest: ") {
		return
	}
	switch {
	case s.Label == "base_url", s.Label == "request": // only the query of a URL
		_, whole, _ = strings.Cut(whole, "?")
	case strings.HasPrefix(s.Label, "headers: "), strings.HasPrefix(s.Label, "openapi_headers: "), strings.HasPrefix(s.Label, "query: "),
		strings.Contains(s.Section.Where, ": args: ") && (s.Label == "value" || strings.HasPrefix(s.Label, "value: ")):
	default:
		return
	}
	for _, v := range values {
		if strings.Contains(whole, v) {
			d.sent = append(d.sent, sent{s.Section.Where, v})
		}
	}
}

// sentBy returns the values that requests of a section, and of sections in it, contain.
func (d *decoder) sentBy(sec *strict.Section) []string {
	var all []string
	for _, s := range d.sent {
		if strings.HasPrefix(s.where, sec.Where) && !slices.Contains(all, s.value) {
			all = append(all, s.value)
		}
	}
	return all
}
