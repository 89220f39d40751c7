package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
)

// parsed returns the tree of a text as JSON, and its warnings.
func parsed(t *testing.T, text string) (root *tree.Node, far bool, json, told string) {
	t.Helper()
	var all []string
	root, far, err := tree.Parse([]byte(text), 7, func(line int32, text string) { all = append(all, fmt.Sprint(line, ": ", text)) })
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	b, ok := root.AppendJSON(nil, 1<<20)
	if !ok {
		t.Fatalf("%q is too large", text)
	}
	return root, far, string(b), strings.Join(all, "; ")
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, text, json, told string
		far                    bool
	}{
		{"JSON", `{"b": 1.50, "a": [true, null, "\u00e9\n"]}`, `{"b":1.50,"a":[true,null,"é\n"]}`, "", false},
		{"YAML", "b: 1.50\na:\n- yes\n- ~\n- 0x10\n", `{"b":1.50,"a":["yes",null,16]}`, "", false},
		{"a flow mapping", `{a: 1, b: [x]}`, `{"a":1,"b":["x"]}`, "", false},
		{"a name twice in JSON", "{\"a\": 1,\n\"b\": 2,\n\"a\": 3}", `{"a":3,"b":2}`, `3: "a" is given twice: the last one counts`, false},
		{"a reference within", `{"$ref": "#/a"}`, `{"$ref":"#/a"}`, "", false},
		{"a reference out of it", `a: {$ref: other.yaml}`, `{"a":{"$ref":"other.yaml"}}`, "", true},
		{"an alias and <<", "a: &x {p: 1}\nb:\n  <<: *x\n  q: 2\nc: *x\n", `{"a":{"p":1},"b":{"q":2,"p":1},"c":{"p":1}}`, "", false},
		{"an alias of what it is in", "a: &x\n  b: *x\n", `{"a":{"b":null}}`, "2: *x stands within what it stands for: left out", false},
		{"a number that costs", `[1e999999999]`, `["1e999999999"]`, "", false},
		{"too deep", strings.Repeat("[", tree.MaxDepth+1) + strings.Repeat("]", tree.MaxDepth+1), strings.Repeat("[", tree.MaxDepth) + "null" + strings.Repeat("]", tree.MaxDepth), "1: nested deeper than 200 levels: left out", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, far, json, told := parsed(t, tc.text)
			if json != tc.json || told != tc.told || far != tc.far {
				t.Errorf("Parse(%.100q) = %s, told %q, far %t; want %s, %q, %t", tc.text, json, told, far, tc.json, tc.told, tc.far)
			}
		})
	}
}

// Latin-1 within JSON is said, and costs only the characters.
func TestParseLatin1(t *testing.T) {
	var got []string
	root, _, err := tree.Parse([]byte("{\"a\":\n\"caf\xe9\"}"), 0, func(line int32, text string) { got = append(got, fmt.Sprint(line, " ", text)) })
	if want := "2 has a character that is not UTF-8: save the document as UTF-8"; err != nil || len(got) != 1 || got[0] != want || root.Str("a") != "caf\ufffd" {
		t.Errorf("Parse = %q, %v, warnings %q, want %q", root.Str("a"), err, got, want)
	}
}

func TestParseFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "is empty",
		"{\"a\": 1,\n\"b\" 2}":   "line 2: a colon is expected",
		"a: 1\nb: [":             "line 2: did not find expected node content",
		`{"a": tru, "b": "\u00"`: "line 1: a value is expected",
		"a: 1\nb: caf\xe9\n":     "line 2: has a character that is not UTF-8: save the document as UTF-8",
	} {
		if root, _, err := tree.Parse([]byte(text), 0, func(int32, string) {}); err == nil || err.Error() != want || root != nil {
			t.Errorf("Parse(%q) = %v, %v, want %q", text, root, err, want)
		}
	}
}

// Every node has its line and its file, even added ones.
func TestPlaces(t *testing.T) {
	for _, text := range []string{"{\"a\":\n {\"b\":\n [1,\n 2]}}", "a:\n  b:\n  - 1\n  - 2\n"} {
		root, _, _, _ := parsed(t, text)
		n := root.Get("a").Get("b")
		if last := n.Members()[1].Node; last.Line != 4 || last.File != 7 {
			t.Errorf("%q: the last item is at line %d of file %d, want 4 of 7", text, last.Line, last.File)
		}
		made := n.Object([]tree.Member{{Name: "list", Node: *n.Array(n.Members())}})
		if made.Line != n.Line || made.File != 7 || made.Get("list").Line != n.Line || len(made.Get("list").Members()) != 2 {
			t.Errorf("%q: what is made is %+v, want it at line %d", text, made, n.Line)
		}
	}
}

// A document that multiplies itself costs no more than its length allows.
func TestMultiplied(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: 1, y: 2}\n")
	for i := 1; i < 60; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	root, _, err := tree.Parse([]byte(b.String()), 0, func(int32, string) {})
	if err != nil {
		t.Fatal(err)
	}
	if out, ok := root.AppendJSON(nil, 10_000); ok || len(out) > 20_000 {
		t.Errorf("2^60 members become %d bytes of JSON, %t", len(out), ok)
	}
}
