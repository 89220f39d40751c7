package arguments

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
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/similar"
)

// Pair is one key=value of a command line.
type Pair struct {
	Key   string
	Value string
	JSON  bool // key:=value
}

const pairForms = "key=value, key=@FILE or key:=JSON"

// Pairs reads arguments of the form key=value. If a value begins with @, the text of the named file replaces it.
func Pairs(args []string) ([]Pair, error) {
	var all []Pair
	for _, arg := range args {
		if isJSON(arg, '{') {
			return nil, exit.Usagef("write --json before an object of arguments: --json '%s'", shorten(arg))
		}
		key, value, ok := strings.Cut(arg, "=")
		p := Pair{Key: key, Value: value}
		if before, raw := strings.CutSuffix(key, ":"); raw {
			p.Key, p.JSON = before, true
		}
		if strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://") {
			return nil, exit.Usagef("the server comes first: mcp-bridge call URL TOOL key=value")
		}
		if !ok || p.Key == "" {
			return nil, exit.Usagef("%q is not %s: write the name of the argument before its value, or --json before an object", shorten(arg), pairForms)
		}
		if name, ok := strings.CutPrefix(value, "@"); ok {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, exit.Usagef("%s: %w (key:=JSON takes a string that begins with @)", p.Key, err)
			}
			p.Value = string(text)
		}
		if p.JSON && !json.Valid([]byte(p.Value)) {
			return nil, exit.Usagef("%s: not valid JSON", p.Key)
		}
		all = append(all, p)
	}
	return all, nil
}

// Object reads the value of --json: JSON, @FILE, or - for stdin.
func Object(value string, stdin io.Reader) (json.RawMessage, error) {
	text := []byte(value)
	var err error
	if name, ok := strings.CutPrefix(value, "@"); ok {
		text, err = os.ReadFile(name)
	} else if value == "-" {
		text, err = io.ReadAll(stdin)
	}
	if err != nil {
		return nil, exit.Usagef("--json: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, exit.Usagef(`--json must be an object, such as '{"path":"."}', @FILE, or - for stdin`)
	}
	return text, nil
}

// Build returns the arguments of a tool as a JSON object. The schema decides the types. Numbers keep their digits.
// ARGUMENT.MEMBER is a member of an argument, as in Table.
func (s Schema) Build(all []Pair) (json.RawMessage, error) { return s.build("", s.Arguments(), all) }

// build returns an object with the given members. of is the prefix of their names in errors.
func (s Schema) build(of string, members []Argument, all []Pair) (json.RawMessage, error) {
	known := map[string]Argument{}
	for _, a := range members {
		known[a.Name] = a
	}
	var keys []string
	values := map[string]string{}
	lists := map[string][]string{} // items so far, by argument
	inner := map[string][]Pair{}   // members of arguments
	for _, p := range all {
		if own, member, ok := s.split(p.Key, known); ok {
			if inner[own] == nil {
				keys = append(keys, own)
			}
			p.Key = member
			inner[own] = append(inner[own], p)
			continue
		}
		p.Key = shown(p.Key, known)
		value, item, err := s.value(known[p.Key], p)
		if err != nil {
			return nil, exit.Usagef("%s%s: %v", of, p.Key, err)
		}
		if _, twice := values[p.Key]; twice && (!item || lists[p.Key] == nil) {
			return nil, exit.Usagef("%s%s is given twice, and is no list", of, p.Key)
		} else if !twice {
			keys = append(keys, p.Key)
		}
		if item {
			lists[p.Key] = append(lists[p.Key], value)
			value = "[" + strings.Join(lists[p.Key], ",") + "]"
		}
		values[p.Key] = value
	}
	for own, members := range inner {
		if _, twice := values[own]; twice {
			return nil, exit.Usagef("%s%s is given whole and by its members", of, own)
		}
		whole, err := s.build(of+own+".", s.members(known[own].Schema), members)
		if err != nil {
			return nil, err
		}
		values[own] = string(whole)
	}
	var b strings.Builder
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(Quote(key) + ":" + values[key])
	}
	return json.RawMessage("{" + b.String() + "}"), nil
}

// split splits the name of a member of an argument that is an object.
func (s Schema) split(key string, known map[string]Argument) (own, member string, ok bool) {
	own, member, ok = strings.Cut(key, ".")
	if _, whole := known[shown(key, known)]; !ok || whole || !slices.Contains(s.kinds(known[own].Schema), "object") {
		return "", "", false
	}
	return own, member, true
}

// shown returns the name of the argument whose original name is key. The bridge writes _ for characters that model
// providers do not accept, as in match[].
func shown(key string, known map[string]Argument) string {
	if _, ok := known[key]; ok {
		return key
	}
	plain := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, key)
	if _, ok := known[plain]; ok {
		return plain
	}
	return key
}

// Quote returns text as a JSON string.
func Quote(s string) string {
	text, _ := json.Marshal(s) // strings can always be encoded
	return string(text)
}

// value returns the JSON value of a pair, and whether the value is an item of a list.
func (s Schema) value(a Argument, p Pair) (raw string, item bool, err error) {
	if p.JSON {
		return p.Value, false, nil
	}
	kinds := s.kinds(a.Schema)
	if slices.Contains(kinds, "array") && !slices.Contains(kinds, "string") && !isJSON(p.Value, '[') {
		raw, err = convert(s.kinds(s.items(a.Schema)), p.Value)
		return raw, true, err
	}
	raw, err = convert(kinds, p.Value)
	return raw, false, err
}

// isJSON reports whether text is valid JSON with a given first character.
func isJSON(text string, first byte) bool {
	text = strings.TrimSpace(text)
	return text != "" && text[0] == first && json.Valid([]byte(text))
}

// convert returns text as JSON of one of the kinds. If the kinds allow a string, text becomes a string. Without kinds,
// the form of the text decides.
func convert(kinds []string, text string) (string, error) {
	if slices.Contains(kinds, "string") {
		return Quote(text), nil
	}
	trimmed := strings.TrimSpace(text)
	if kinds == nil {
		if json.Valid([]byte(trimmed)) {
			return trimmed, nil
		}
		return Quote(text), nil
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

// Check compares arguments with the schema. It finds unknown and missing arguments, and values outside of an enum. of
// names the tool in errors.
func (s Schema) Check(of string, args json.RawMessage) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(args, &given); err != nil {
		return exit.With(exit.Usage, err)
	}
	return s.Compare(of, s.Arguments(), given, s.open())
}

// Compare is Check for a list of known arguments. open allows unknown arguments.
func (s Schema) Compare(of string, known []Argument, given map[string]json.RawMessage, open bool) error {
	var missing, faults, names []string
	byName := map[string]Argument{}
	for _, a := range known {
		names, byName[a.Name] = append(names, a.Name), a
	}
	for key := range maps.Clone(given) {
		if name := shown(key, byName); name != key && given[name] == nil {
			given[name] = given[key]
			delete(given, key)
		}
	}
	for _, a := range known {
		value, ok := given[a.Name]
		if !ok && a.Required {
			missing = append(missing, a.Name)
		}
		if list := s.choices(a.Schema); ok && len(list) > 0 && !slices.Contains(list, strings.TrimSpace(string(value))) {
			var plain []string
			for _, raw := range list {
				plain = append(plain, Plain(raw))
			}
			text := Plain(string(value))
			if !slices.Contains(plain, text) { // the spellings of a string may differ
				faults = append(faults, fmt.Sprintf("%s is %q: %s", a.Name, shorten(text), similar.Hint(text, plain, "")))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !open && !slices.Contains(names, key) {
			hint := similar.Hint(key, names, "it takes none")
			for _, a := range known {
				if slices.ContainsFunc(s.members(a.Schema), func(a Argument) bool { return a.Name == key }) {
					hint = fmt.Sprintf("it is a member of %s, as in %[1]s:='{%q:…}'", a.Name, key)
					break
				}
			}
			faults = append(faults, fmt.Sprintf("unknown argument: %q (%s)", key, hint))
		}
	}
	if len(missing) > 0 {
		what := "missing argument: "
		if len(missing) > 1 {
			what = "missing arguments: "
		}
		faults = append([]string{what + strings.Join(missing, ", ")}, faults...)
	}
	if len(faults) == 0 {
		return nil
	}
	text := of + ": " + strings.Join(faults, "; ")
	if len(known) > 0 {
		text += "\n" + strings.TrimRight(s.Table(known, "  "), "\n")
	}
	return exit.With(exit.Usage, errors.New(text))
}
