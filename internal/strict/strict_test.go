package strict_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

type zoo struct {
	Name    string            `yaml:"name"`
	Open    bool              `yaml:"open"`
	Places  int               `yaml:"places"`
	Wait    time.Duration     `yaml:"wait,off"`
	Animals []string          `yaml:"animals,some"`
	Labels  map[string]string `yaml:"labels"`
	More    strict.JSON       `yaml:"more"`
	Weight  kilos             `yaml:"weight" min:"0B"`
	Keeper  *keeper           `yaml:"keeper"`
}

// kilos are written with their unit.
type kilos int64

type keeper struct {
	Name string `yaml:"name"`
}

func (k *keeper) Validate() error {
	if k.Name == "" {
		return errors.New("name is empty: say who it is")
	}
	return nil
}

// rules has a rule or a form for one key of each kind.
type rules struct {
	own      bool // kilos have a form of their own
	d        *strict.Decoder
	expanded []string
}

func (r *rules) Special(s *strict.Slot, n *yaml.Node, into any) (ok, known bool) {
	k, known := into.(*kilos)
	if !known || !r.own {
		return false, false
	}
	got, ok := r.d.Scalar(s, n, reflect.TypeFor[string]())
	*k = kilos(len(got.Value))
	return ok, true
}

func (*rules) Form(t reflect.Type) (string, func(strict.Text) (any, error)) {
	if t != reflect.TypeFor[kilos]() {
		return "", nil
	}
	return "a weight such as 5kg", func(t strict.Text) (any, error) {
		if t.Value != "5kg" {
			return nil, errors.New("expected a weight such as 5kg")
		}
		return kilos(5), nil
	}
}

func (*rules) Texts() setting.Texts { return nil }

func (*rules) OtherKeys(reflect.Type) []string { return []string{"extra"} }

func (*rules) Meant(key string, _ []string) string { return map[string]string{"nam": "name"}[key] }

func (r *rules) CheckStruct(sec *strict.Section, v any) { r.d.Validate(sec, v) }

func (*rules) CheckText(*strict.Slot, string) error { return nil }

func (r *rules) NoteExpanded(s *strict.Slot, whole string, values []string) {
	r.expanded = append(r.expanded, s.Label+" "+whole+" "+strings.Join(values, ","))
}

// decoder returns a decoder with these rules.
func (r *rules) decoder(env func(string) (string, bool)) *strict.Decoder {
	r.d = strict.New("zoo.yaml", "test", env, r)
	return r.d
}

// read reads a file into a zoo.
func read(text string, set func(*strict.Decoder)) (z zoo, d *strict.Decoder) {
	d = new(rules).decoder(func(name string) (string, bool) { return "value-of-" + name, name != "UNSET" })
	if set != nil {
		set(d)
	}
	root, ok := d.Tree([]byte(text))
	if !ok {
		return z, d
	}
	top := &strict.Section{Line: 1}
	list, ok := d.Entries("", root)
	if !ok {
		d.Fault(root.Line, "no mapping")
		return z, d
	}
	d.Fields(top, list, reflect.ValueOf(&z).Elem())
	return z, d
}

func TestDecode(t *testing.T) {
	got, d := read(`name: "${WHO}'s ${NOBODY:-none} $${x}"
open: true
places: 1_000
wait: off
animals: [&first lion, *first, 7]
labels: { <<: { a: b, c: d }, a: e }
more: { z: 1.10, a: [null, true, "${X}"], 7: x }
weight: 5kg
keeper: { name: Ann }
`, nil)
	want := zoo{
		Name: "value-of-WHO's value-of-NOBODY ${x}", Open: true, Places: 1000,
		Animals: []string{"lion", "lion", "7"}, Labels: map[string]string{"a": "e", "c": "d"},
		More: strict.JSON(`{"z":1.10,"a":[null,true,"value-of-X"],"7":"x"}`), Weight: 5, Keeper: &keeper{"Ann"},
	}
	if !reflect.DeepEqual(got, want) || len(d.Faults)+len(d.Warnings) > 0 {
		t.Errorf("got %+v, faults %v, warnings %v, want %+v", got, d.Faults, d.Warnings, want)
	}
	if d.Secrets["value-of-WHO"] != "${WHO}" {
		t.Errorf("secrets are %v", d.Secrets)
	}
}

// Every fault names its line, the key, and what would be right.
func TestFaults(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"nam: x", `1: unknown key "nam": did you mean "name"?`},
		{"nothing: x", `1: unknown key "nothing": the keys here are animals, extra, keeper, labels, more, name, open, places, wait, weight`},
		{"\nname: [a]", `2: name is a list: expected text`},
		{"name: 5", `1: name is 5: expected text; put it in quotes`},
		{"name:", `1: name has no value: expected text`},
		{"name: *gone", "1: not valid YAML: there is no anchor for this alias above; put text that begins with * in quotes (column 7)\n    1 | name: *****\n              ^"},
		{"name: !tag x", `1: name has a YAML tag: remove the tag`},
		{"name: a\nname: b", `2: duplicate key "name": it is on line 1 already`},
		{"name: ${UNSET}", `1: name: the variable UNSET is not set: set it in the environment of test, or write ${UNSET:-default}`},
		{"name: ${env:X}", "1: name: ${env:X} is the form of another program: write ${X}"},
		{`places: "5"`, `1: places is "5": remove the quotes`},
		{"places: 0", `1: places is 0: must not be 0: leave it out for its default`},
		{"places: -1", `1: places is -1: must be at least 1`},
		{"places: ${X}", `1: places is "${X}" (its value is from the environment and not shown): expected a whole number`},
		{"open: yes", `1: open is "yes": expected true or false`},
		{"wait: 90", `1: wait is 90: add a unit, such as 90s or 10m, or write "off" for never`},
		{"wait: -1s", `1: wait is "-1s": must not be negative`},
		{"animals: x", "1: animals is \"x\": expected a list, such as [\"a\", \"b\"]"},
		{"animals: []", `1: animals is empty, which would let all pass: list what may, or leave it out`},
		{"animals:\n  - a\n  - [b]", `3: animals: item 2 is a list: expected text`},
		{"labels: A=SECRET", `1: labels is text: expected a mapping, such as { NAME: value }`},
		{`labels: { "": x }`, `1: labels: a name is empty`},
		{"weight: 6", `1: weight is 6: expected a weight such as 5kg`},
		{"weight: [6]", `1: weight is a list: expected a weight such as 5kg`},
		{"keeper: { name: '' }", `1: keeper: name is empty: say who it is`},
		{"keeper: Ann", `1: keeper is text: expected a mapping with the keys name`},
		{"name: a\n---\nname: b", `3: the file has a second document: only one is read, so remove the line with ---`},
		{"<<: x", `1: << must be followed by an alias of a mapping, such as *base`},
		{"name: x\xff", `1: the file is not UTF-8 text: save it as UTF-8`},
		{"more: &a [*a]", "1: this alias stands within what it stands for: write out what is meant (column 11)\n    1 | more: &* [**]\n                  ^"},
	} {
		_, d := read(test.text, nil)
		if got, want := d.Faults.Error(), "zoo.yaml:"+test.want; got != want {
			t.Errorf("%q:\n%s\nwant\n%s", test.text, got, want)
		}
	}
}

// One run reports all faults, and a line that cannot be read is shown without its values.
func TestManyFaults(t *testing.T) {
	_, d := read("places: x\nopen: 5\nextr: 1\n", nil)
	if len(d.Faults) != 3 {
		t.Errorf("faults: %v", d.Faults)
	}
	_, d = read("name: secret\nopen: [secret\n", nil)
	if text := d.Faults.Error(); !strings.Contains(text, "not valid YAML") || !strings.Contains(text, "open: [******") || strings.Contains(text, "secret") {
		t.Errorf("faults: %v", d.Faults)
	}
}

// A fault shows the line as it stands on the terminal of its owner, without what may be a secret by its form or its name.
func TestOpenFaults(t *testing.T) {
	for _, test := range []struct{ before, line, want string }{
		{"", "name: { command: npx, args: [-y, @scope/thing] }", "name: { command: npx, args: [-y, @scope/thing] }"},
		{"", "\tname: plain words", " name: plain words"},
		{"", "name: [sk-abcdefgh12345, word, @x", "name: [**-*************, word, @x"},
		{"", "name: [https://ann:hunter2@example.com/x, b, @x", "name: [https://ann:*******@*******.***/*, b, @x"},
		{"", "name: [--port, 80, --api-key, hunter2, @x", "name: [--port, 80, --***-***, *******, @*"},
		{"", "name: [https://example.com/?token=hunter2, @x", "name: [https://*******.***/?*****=*******, @*"},
		{"", "name: [DB_PASS=hunter2, @x", "name: [**_****=*******, @*"},
		{"", "token: @hunter2", "token: @*******"},
		{"", "name: [Bearer hunter2, @x", "name: [****** *******, @*"},
		{"", "a: { env: { WHO: hunter2 }, b: @x", "a: { env: { WHO: ******* }, b: @*"},
		{"token:\n", "  @hunter2", "  @*******"},
		{"headers:\n", "- @hunter2", "- @*******"},
		{"a:\n  env:\n    WHO: x\n", "    WHAT: @hunter2", "    WHAT: @*******"},
		{"a: { env: {\n", "WHO: @hunter2", "WHO: @*******"},
		{"a: [x,\n--password,\n", "hunter2, @x", "*******, @*"},
		{"a: [x, -p,\n", "hunter2, @x", "*******, @*"},
		{"a: \"one\n", "  two hunter2 \" @", "  *** ******* \" @"},
	} {
		_, d := read(test.before+test.line+"\n", nil)
		whole := strings.Split(d.Faults.Open(), "\n")
		if len(whole) < 2 {
			t.Errorf("%q: faults %q have no line", test.line, whole)
		} else if _, got, _ := strings.Cut(whole[1], " | "); got != test.want {
			t.Errorf("%q: %s\nwant\n%s", test.line, got, test.want)
		}
		if strings.Contains(d.Faults.Error(), "hunter2") || strings.Contains(d.Faults.Error(), "words") {
			t.Errorf("%q: the text for logs has a value: %v", test.line, d.Faults)
		}
	}
	if _, d := read("nam: x", nil); d.Faults.Open() != d.Faults.Error() {
		t.Errorf("%q and %q differ", d.Faults.Open(), d.Faults.Error())
	}
}

// In a file of another program, an unknown key is a warning.
func TestForeign(t *testing.T) {
	got, d := read("name: ${env:X}\nnothing: x\nnam: y\n", func(d *strict.Decoder) { d.Foreign = true })
	if got.Name != "value-of-X" || d.Warnings.Error() != `zoo.yaml:2: nothing is ignored: it means nothing to test` || d.Faults.Error() != `zoo.yaml:3: unknown key "nam": did you mean "name"?` {
		t.Errorf("got %+v, warnings %v, faults %v", got, d.Warnings, d.Faults)
	}
}

// A quiet decoder finds the entries and drops the faults.
func TestQuiet(t *testing.T) {
	d := strict.New("zoo.yaml", "test", nil, nil)
	root, _ := d.Tree([]byte("base: &b { x: 1 }\nall: { <<: *b, x: 2, x: 3 }\n"))
	top, _ := d.Entries("", root)
	if list, ok := d.Quiet().Entries("", top[1].Value); !ok || len(list) != 1 || list[0].Key != "x" || len(d.Faults) > 0 {
		t.Errorf("entries %v, faults %v", list, d.Faults)
	}
	if list, _ := d.Entries("", top[1].Value); len(list) != 1 || len(d.Faults) != 1 {
		t.Errorf("entries %v, faults %v, want one fault", list, d.Faults)
	}
}

// The Schema reads a value with a form of its own, and gets values from the environment.
func TestOwnForm(t *testing.T) {
	r := &rules{own: true}
	d := r.decoder(func(string) (string, bool) { return "abc", true })
	root, _ := d.Tree([]byte("weight: x${Y}\n"))
	list, _ := d.Entries("", root)
	var z zoo
	d.Fields(&strict.Section{}, list, reflect.ValueOf(&z).Elem())
	if z.Weight != 4 || len(r.expanded) != 1 || r.expanded[0] != "weight xabc abc" || len(d.Faults) > 0 {
		t.Errorf("got %v, expanded %q, faults %v", z.Weight, r.expanded, d.Faults)
	}
}
