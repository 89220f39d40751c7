package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	imported = regexp.MustCompile(`(?m)^import (?:(\{[^}]*\}) from )?'\./([\w-]+\.js)';\n`)
	exported = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
	// Comments may name modules by import().
	described = regexp.MustCompile(`(?s)/\*\*.*?\*/ ?`)
	// Imports and exports of other forms, which joined does not support.
	unknown = regexp.MustCompile(`(?m)^(?:import|export)\b.*|\bimport[.(].*`)
)

// joined returns one script of a module and all its imports. Each module is a block, with its own
// names. So the page needs one request instead of forty, and similar text in modules is compressed
// together. A module follows its imports; cycles are an error.
func joined(name string, read func(name string) (string, error)) (string, error) {
	var out strings.Builder
	out.WriteString("const modules = {};\n")
	const open, done = 1, 2
	states := map[string]int{}
	var add func(name string) error
	add = func(name string) error {
		switch states[name] {
		case open:
			return fmt.Errorf("%s imports itself through other modules", name)
		case done:
			return nil
		}
		states[name] = open
		text, err := read(name)
		if err != nil {
			return err
		}
		text = described.ReplaceAllString(text, "")
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			if err := add(m[2]); err != nil {
				return err
			}
		}
		text = imported.ReplaceAllStringFunc(text, func(line string) string {
			m := imported.FindStringSubmatch(line)
			if m[1] == "" {
				return ""
			}
			return "const " + strings.ReplaceAll(m[1], " as ", ": ") + " = modules['" + m[2] + "'];\n"
		})
		var names []string
		for _, m := range exported.FindAllStringSubmatch(text, -1) {
			names = append(names, m[2])
		}
		text = exported.ReplaceAllString(text, "$1")
		if m := unknown.FindString(text); m != "" {
			return fmt.Errorf("%s: cannot join this: %s", name, m)
		}
		fmt.Fprintf(&out, "{\n%smodules['%s'] = { %s };\n}\n", text, name, strings.Join(names, ", "))
		states[name] = done
		return nil
	}
	if err := add(name); err != nil {
		return "", err
	}
	return out.String(), nil
}
