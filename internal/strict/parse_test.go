package strict_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// A text that is too deep, too large or multiplies itself is refused. The same characters within
// texts and comments are not.
func TestBounds(t *testing.T) {
	const deep, copies = "nested deeper than 100 levels", "aliases stand for more than 100000 values"
	block := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'h'; c++ {
		one := "*" + string(c-1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat(one+", ", 9) + one + "]\n"
	}
	merges := "a: &a { x: 1 }\n"
	for c := 'b'; c <= 'h'; c++ {
		one := "*" + string(c-1)
		merges += string(c) + ": &" + string(c) + " { <<: [" + strings.Repeat(one+", ", 9) + one + "] }\n"
	}
	many := strings.Repeat("[{", 500)
	for _, test := range []struct{ name, text, want string }{
		{"lists", "more: " + strings.Repeat("[", 40_000) + strings.Repeat("]", 40_000), deep},
		{"lists that do not end", strings.Repeat("[", 200_000), deep},
		{"mappings in braces", strings.Repeat("{a: ", 40_000), deep},
		{"JSON", strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), deep},
		{"mappings by indentation", block(200), deep},
		{"lists by dashes", strings.Repeat("- ", 40_000) + "a", deep},
		{"keys", strings.Repeat("? ", 40_000) + "a", deep},
		{"of both kinds", block(60) + strings.Repeat(" ", 60) + "- " + strings.Repeat("[", 60) + strings.Repeat("]", 60), deep},
		{"100 levels", "more: " + strings.Repeat("[", 99) + strings.Repeat("]", 99), ""},
		{"101 levels", "more: " + strings.Repeat("[", 101) + strings.Repeat("]", 101), "line 1: lists and mappings are " + deep},
		{"in a plain text", "more: x" + many, ""},
		{"in quotes", `more: ["` + many + `", '` + many + `''` + many + `']`, ""},
		{"in a block", "more: |\n  " + many + "\n  # " + many + "\n", ""},
		{"in a folded block", "more: >-\n  x\n\n    " + many + "\n", ""},
		{"in comments", "# " + many + "\nmore: 1 # " + many, ""},
		{"many empty lines in a block", "more: |\n" + strings.Repeat("\n", 200_000) + "  x\n", ""},
		{"many tabs in quotes", "more: \"" + strings.Repeat("\t", 200_000) + "\"", ""},
		{"aliases of lists", bomb, copies},
		{"aliases of mappings", merges, copies},
		{"aliases of a long text", "a: &a " + strings.Repeat("x", 1<<20) + "\nmore: [" + strings.Repeat("*a, ", 20) + "*a]", copies},
		{"an alias within what it stands for", "a: &a { b: [*a] }", "stands within"},
		{"a few aliases", "a: &a [1, 2]\nmore: [*a, *a, *a]", ""},
		{"a large file", "more: " + strings.Repeat("x", strict.MaxFile), "larger than 4 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := strict.Parse([]byte(test.text))
			switch {
			case err == nil && test.want != "", err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			case err != nil && len(err.Error()) > 300:
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// An alias stands for the last anchor of its name above it.
func TestAliases(t *testing.T) {
	z, d := read("name: &a x\nlabels: { one: *a, two: &a y, three: *a }\n", nil)
	if want := map[string]string{"one": "x", "two": "y", "three": "y"}; !reflect.DeepEqual(z.Labels, want) || len(d.Faults) > 0 {
		t.Errorf("labels %v, want %v; %v", z.Labels, want, d.Faults)
	}
}

// JSON may write a character as two escapes, YAML may not.
func TestJSONEscapes(t *testing.T) {
	z, d := read("{\n\t\"name\": \"\\ud83d\\ude00 \\\\ud83d\\\\ude00 \\/\"\n}", nil)
	if want := `😀 \ud83d\ude00 /`; z.Name != want || len(d.Faults) > 0 {
		t.Errorf("name %q, want %q; %v", z.Name, want, d.Faults)
	}
}

// Decode reads dates as text.
func TestDecodeDate(t *testing.T) {
	root, err := strict.Parse([]byte("a: 2024-01-02\nb: 1.5\nc: [true, ~]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := root.Decode(&got); err != nil || !reflect.DeepEqual(got, map[string]any{"a": "2024-01-02", "b": 1.5, "c": []any{true, nil}}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Source returns the values of a mapping, and each key on its line.
func TestSource(t *testing.T) {
	for _, text := range []string{
		"{ a: b }",
		"{a: [1, {b: c}], d: {e: f}}",
		`{ a: "}", 'b': '}''}' , "c\"}":1}`,
		"{ a: it's, b: x' }",
		"{ a: b, # }\n  c: d }",
		`{ a: &x "}", b: '}', ? "}" : c }`,
		`{"a":"}","b":{"c":'}'},"d":["}"]}`,
		`{ a: http://x:8/y?z='1', é: "ü}" }`,
		"{ a: x\n  'y }",
		"{ a: [1_000, 0x10, 1.10, ~, True, .5, 1e3],\n\n b: [x,\n y], c: z }",
		"{ <<: &y { a: b },\n c: *y }",
	} {
		d := new(rules).decoder(func(string) (string, bool) { return "", false })
		root, ok := d.Tree([]byte("# é\nouter: { é: 1, x: &here " + text + ", last: \"}\" }\n"))
		if !ok {
			t.Errorf("%q: %v", text, d.Faults)
			continue
		}
		list, _ := d.Entries("", root)
		list, _ = d.Entries("", list[0].Value)
		want := strict.Resolve(list[1].Value)
		got, err := strict.Parse(strict.Source(want))
		if err != nil {
			t.Errorf("Source of %q = %q: %v", text, strict.Source(want), err)
			continue
		}
		var a, b any
		if err := errors.Join(got.Decode(&a), want.Decode(&b)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("Source of %q = %q: %v, want %v, error %v", text, strict.Source(want), a, b, err)
		}
		for i := range want.Content {
			if i%2 == 0 && got.Content[i].Line != want.Content[i].Line {
				t.Errorf("Source of %q = %q: key %d on line %d, want %d", text, strict.Source(want), i/2, got.Content[i].Line, want.Content[i].Line)
			}
		}
	}
}

// A text of JSON keeps each character, also those that are special in YAML.
func TestJSONTexts(t *testing.T) {
	for _, text := range []string{"\u0085", "\u2028", "\u2029", "\u007f", "\u00a0", "\ufeff", "\ufffe", "\uffff", "\U0001f600"} {
		want := "x" + text + "y"
		root, err := strict.Parse([]byte(`{"a":	"` + want + `"}`))
		if err != nil {
			t.Errorf("%+q: %v", want, err)
			continue
		}
		var got map[string]string
		if err := root.Decode(&got); err != nil || got["a"] != want {
			t.Errorf("%+q is read as %+q, %v", want, got["a"], err)
		}
	}
}
