package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/similar"
)

// pair is one key=value of a command line.
type pair struct {
	key   string
	value string
	json  bool // key:=value
}

const pairForms = "key=value, key=@FILE or key:=JSON"

// pairs reads arguments of the form key=value. A value that begins with @ is
// the text of a file.
func pairs(args []string) ([]pair, error) {
	var all []pair
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		p := pair{key: key, value: value}
		if before, raw := strings.CutSuffix(key, ":"); raw {
			p.key, p.json = before, true
		}
		if !ok || p.key == "" {
			return nil, usageError{fmt.Errorf("%q is no argument: expected %s", arg, pairForms)}
		}
		if name, ok := strings.CutPrefix(value, "@"); ok {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, usageError{fmt.Errorf("%s: %w (key:=JSON takes a string that begins with @)", p.key, err)}
			}
			p.value = string(text)
		}
		if p.json && !json.Valid([]byte(p.value)) {
			return nil, usageError{fmt.Errorf("%s: not valid JSON", p.key)}
		}
		all = append(all, p)
	}
	return all, nil
}

// object reads the value of --json: JSON, @FILE, or - for stdin.
func object(value string, stdin io.Reader) (json.RawMessage, error) {
	text := []byte(value)
	var err error
	if name, ok := strings.CutPrefix(value, "@"); ok {
		text, err = os.ReadFile(name)
	} else if value == "-" {
		text, err = io.ReadAll(stdin)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--json: %w", err)}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, usageError{errors.New(`--json must be an object, such as '{"path":"."}', @FILE, or - for stdin`)}
	}
	return text, nil
}

// build makes the arguments of a tool, a JSON object, of pairs. Types are as
// the schema has them; numbers keep their digits.
func (s schema) build(all []pair) (json.RawMessage, error) {
	known := map[string]argument{}
	for _, a := range s.arguments() {
		known[a.name] = a
	}
	var keys []string
	values := map[string]string{}
	lists := map[string][]string{} // what has been appended
	for _, p := range all {
		value, item, err := s.value(known[p.key], p)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %v", p.key, err)}
		}
		if _, twice := values[p.key]; twice && (!item || lists[p.key] == nil) {
			return nil, usageError{fmt.Errorf("%s is given twice, and is no list", p.key)}
		} else if !twice {
			keys = append(keys, p.key)
		}
		if item {
			lists[p.key] = append(lists[p.key], value)
			value = "[" + strings.Join(lists[p.key], ",") + "]"
		}
		values[p.key] = value
	}
	var b strings.Builder
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoted(key) + ":" + values[key])
	}
	return json.RawMessage("{" + b.String() + "}"), nil
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always can be
	return string(text)
}

// value makes JSON of one pair, and says whether it is an item of a list.
func (s schema) value(a argument, p pair) (raw string, item bool, err error) {
	if p.json {
		return p.value, false, nil
	}
	kinds := s.kinds(a.schema)
	if slices.Contains(kinds, "array") && !slices.Contains(kinds, "string") && !isJSON(p.value, '[') {
		raw, err = convert(s.kinds(s.items(a.schema)), p.value)
		return raw, true, err
	}
	raw, err = convert(kinds, p.value)
	return raw, false, err
}

// isJSON reports whether text is valid JSON that begins with that character.
func isJSON(text string, first byte) bool {
	text = strings.TrimSpace(text)
	return text != "" && text[0] == first && json.Valid([]byte(text))
}

// convert makes JSON of text for one of the kinds. A string stays a string
// where it may be one; without any kinds it is what it looks like.
func convert(kinds []string, text string) (string, error) {
	if slices.Contains(kinds, "string") {
		return quoted(text), nil
	}
	trimmed := strings.TrimSpace(text)
	if kinds == nil {
		if json.Valid([]byte(trimmed)) {
			return trimmed, nil
		}
		return quoted(text), nil
	}
	for _, k := range kinds {
		ok := false
		switch k {
		case "number":
			ok = isNumber(trimmed)
		case "integer":
			ok = isInteger(trimmed)
		case "boolean":
			ok = trimmed == "true" || trimmed == "false"
		case "null":
			ok = trimmed == "null"
		case "array":
			ok = isJSON(trimmed, '[')
		case "object":
			ok = isJSON(trimmed, '{')
		}
		if ok {
			return trimmed, nil
		}
	}
	return "", fmt.Errorf("%q is not of the type %s", shorten(text), strings.Join(kinds, " or "))
}

// shorten cuts a value for a message.
func shorten(s string) string {
	if runes := []rune(s); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	return s
}

func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s))
}

// isInteger follows JSON Schema, where 1.0 and 1e3 are integers.
func isInteger(s string) bool {
	if !isNumber(s) {
		return false
	}
	if !strings.ContainsAny(s, ".eE") {
		return true
	}
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && f == math.Trunc(f)
}

// check compares arguments with what is asked for: unknown ones, missing ones,
// and values that are not among those listed. of is what they are of.
func (s schema) check(of string, args json.RawMessage) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return usageError{err}
	}
	return s.compare(of, s.arguments(), given, s.open())
}

func (s schema) compare(of string, known []argument, given map[string]json.RawMessage, open bool) error {
	var faults, names []string
	for _, a := range known {
		names = append(names, a.name)
		value, ok := given[a.name]
		if !ok && a.required {
			faults = append(faults, fmt.Sprintf("%s needs %s", of, a.name))
		}
		if list := s.choices(a.schema); ok && len(list) > 0 && !slices.Contains(list, strings.TrimSpace(string(value))) {
			var plain []string
			for _, raw := range list {
				plain = append(plain, plainValue(raw))
			}
			text := plainValue(string(value))
			if !slices.Contains(plain, text) { // the same string may be written in two ways
				faults = append(faults, fmt.Sprintf("%s is %q: %s", a.name, shorten(text), similar.Hint(text, plain, "")))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !open && !slices.Contains(names, key) {
			faults = append(faults, fmt.Sprintf("%s has no argument %q: %s", of, key, similar.Hint(key, names, "it takes none")))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	text := strings.Join(faults, "\n")
	if len(known) > 0 {
		text += "\n" + strings.TrimRight(s.show(known, "  ", plain), "\n")
	}
	return usageError{errors.New(text)}
}
