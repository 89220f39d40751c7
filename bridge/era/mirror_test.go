package era

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const annotated = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"page":{"type":"integer","x-mcp-header":"page-no"},
	"dry":{"x-mcp-header":"X.Dry","type":"boolean"},
	"free":{"type":"string","default":{"x-mcp-header":"Data"}},
	"x-mcp-header":{"type":"object","properties":{"properties":{"type":"object","properties":{"id":{"type":"string","x-mcp-header":"Deep"}}}}}}}`

func mirror(t *testing.T, schema string) *Mirror {
	t.Helper()
	m, err := NewMirror([]byte(schema))
	if m == nil || err != nil {
		t.Fatalf("NewMirror(%s) = %v, %v", schema, m, err)
	}
	return m
}

// B8, R-101.
func TestNewMirror(t *testing.T) {
	deep := func(n int, inner string) string {
		return strings.Repeat(`{"properties":{"p":`, n) + inner + strings.Repeat(`}}`, n)
	}
	many := func(n int) string {
		return `{"properties":{"a":{"type":"string","x-mcp-header":"A"}` + strings.Repeat(`,"b":{}`, n) + `}}`
	}
	leaf := `{"type":"string","x-mcp-header":"A"}`
	property := func(schema string) string { return `{"properties":{"p":` + schema + `}}` }
	for _, tc := range []struct{ name, schema, wrong string }{
		{"valid", annotated, ""},
		{"every character of a token", property(`{"type":"string","x-mcp-header":"aZ09!#$%&'*+-.^_` + "`" + `|~"}`), ""},
		{"escaped keyword", property(`{"type":"string","\u0078-mcp-header":"A"}`), ""},
		{"as deep as may be", deep(63, leaf), ""},
		{"as large as may be", many(9_998), ""},
		{"empty", property(`{"type":"string","x-mcp-header":""}`), `property "p": x-mcp-header must be a string and not empty`},
		{"no string", property(`{"type":"string","x-mcp-header":5}`), "must be a string"},
		{"null", property(`{"type":"string","x-mcp-header":null}`), "must be a string"},
		{"space", property(`{"type":"string","x-mcp-header":"A B"}`), "must be a token"},
		{"colon", property(`{"type":"string","x-mcp-header":"A:"}`), "must be a token"},
		{"line break", property(`{"type":"string","x-mcp-header":"A\r\nB"}`), "must be a token"},
		{"not ASCII", property(`{"type":"string","x-mcp-header":"Ä"}`), "must be a token"},
		{"number", property(`{"type":"number","x-mcp-header":"A"}`), "type string, integer or boolean"},
		{"object", property(`{"type":"object","x-mcp-header":"A"}`), "type string, integer or boolean"},
		{"several types", property(`{"type":["string","null"],"x-mcp-header":"A"}`), "type string, integer or boolean"},
		{"no type", property(`{"x-mcp-header":"A"}`), "type string, integer or boolean"},
		{"type twice", property(`{"type":"string","x-mcp-header":"A","type":"number"}`), "type string, integer or boolean"},
		{"same name", `{"properties":{"a":{"type":"string","x-mcp-header":"Ab"},"b":{"type":"string","x-mcp-header":"aB"}}}`, `property "b": x-mcp-header names the same header`},
		{"twice", property(`{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}`), "appears twice"},
		{"property twice", `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"a":{"type":"string","x-mcp-header":"B"}}}`, "appears twice"},
		{"root", `{"type":"string","x-mcp-header":"A"}`, "is not on a path of properties"},
		{"items", property(`{"type":"array","items":` + leaf + `}`), `property "p": x-mcp-header is not on a path of properties from the root`},
		{"properties in items", property(`{"items":{"properties":{"q":` + leaf + `}}}`), `property "p.q"`},
		{"prefixItems", property(`{"prefixItems":[{},` + leaf + `]}`), "is not on a path of properties"},
		{"allOf", `{"allOf":[{"properties":{"p":` + leaf + `}}]}`, "is not on a path of properties"},
		{"if", `{"if":{"properties":{"p":` + leaf + `}}}`, "is not on a path of properties"},
		{"not", property(`{"not":` + leaf + `}`), "is not on a path of properties"},
		{"additionalProperties", `{"additionalProperties":` + leaf + `}`, "is not on a path of properties"},
		{"patternProperties", `{"patternProperties":{"p":` + leaf + `}}`, "is not on a path of properties"},
		{"$defs", `{"$defs":{"p":` + leaf + `},"properties":{"p":{"$ref":"#/$defs/p"}}}`, "is not on a path of properties"},
		{"under a keyword of its own", `{"x-shared":{"p":` + leaf + `}}`, "is not on a path of properties"},
		{"a wrong one beside a right one", `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"array","items":{"type":"string","x-mcp-header":"B"}}}}`, "not on a path"},
		{"too deep", deep(64, leaf), "too deep"},
		{"too deep in arrays", `{"x-mcp-headers":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "too deep"},
		{"too large", many(9_999), "too many parts"},
		{"cut", `{"properties":{"x-mcp-header":{`, "not JSON"},
		{"long name", `{"properties":{"` + strings.Repeat("n", 10_000) + `":{"type":"number","x-mcp-header":"A"}}}`, "…"},
	} {
		m, err := NewMirror([]byte(tc.schema))
		switch {
		case tc.wrong == "":
			if m == nil || err != nil {
				t.Errorf("%s: NewMirror = %v, %v", tc.name, m, err)
			}
		case m != nil || err == nil || !strings.Contains(err.Error(), tc.wrong) || len(err.Error()) > 400:
			t.Errorf("%s: NewMirror = %v, %v, want an error with %q", tc.name, m, err, tc.wrong)
		}
	}
	for _, none := range []string{
		``, `true`, `{}`, `{"type":"object","properties":{"a":{"type":"string"}}}`,
		`{"properties":{"x-mcp-header":{"type":"string"}}}`,
		`{"properties":{"a":{"enum":[{"x-mcp-header":"A"}],"const":{"x-mcp-header":"A"},"examples":[{"x-mcp-header":"A"}],"description":"x-mcp-header"}}}`,
		`{"description":"caf\u0065","required":["x-mcp-header"]}`,
		deep(500, `{}`), // too deep to look into, and nothing to look for
	} {
		if m, err := NewMirror([]byte(none)); m != nil || err != nil {
			t.Errorf("NewMirror(%.80s) = %v, %v, want nothing", none, m, err)
		}
	}
}

//
func TestMirrorHeaders(t *testing.T) {
	m := mirror(t, annotated)
	for _, tc := range []struct {
		name, arguments string
		want            map[string][]string
	}{
		{"all", `{"region":"eu-north","page":3,"dry":false,"free":"f","x-mcp-header":{"properties":{"id":"i"}}}`,
			map[string][]string{"Mcp-Param-Region": {"eu-north"}, "Mcp-Param-Page-No": {"3"}, "Mcp-Param-X.dry": {"false"}, "Mcp-Param-Deep": {"i"}}},
		{"escaped", `{"r\u0065gion":"\u00e9","dry":true}`, map[string][]string{"Mcp-Param-Region": {"=?base64?w6k=?="}, "Mcp-Param-X.dry": {"true"}}},
		{"empty text", `{"region":""}`, map[string][]string{"Mcp-Param-Region": {""}}},
		{"line breaks", `{"region":"a\r\nX-Evil: 1"}`, map[string][]string{"Mcp-Param-Region": {"=?base64?YQ0KWC1FdmlsOiAx?="}}},
		{"null and absent (R-077)", `{"region":null,"x-mcp-header":null}`, nil},
		{"none", ``, nil},
		{"no object", `[1]`, nil},
		{"other types", `{"region":5,"page":"3","dry":"true","x-mcp-header":[{"properties":{"id":"i"}}]}`, nil},
		{"a fraction", `{"page":1.5}`, nil},
		{"an integer written otherwise", `{"page":-4.20e1}`, map[string][]string{"Mcp-Param-Page-No": {"-42"}}},
		{"the largest", `{"page":9007199254740991}`, map[string][]string{"Mcp-Param-Page-No": {"9007199254740991"}}},
		{"one more", `{"page":9007199254740992}`, nil},
		{"twice", `{"region":"a","page":1,"region":"b"}`, map[string][]string{"Mcp-Param-Page-No": {"1"}}},
		{"around it twice", `{"x-mcp-header":{"properties":{"id":"i"}},"x-mcp-header":{}}`, nil},
	} {
		got := m.Headers([]byte(tc.arguments))
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: Headers(%s) = %q, want %q", tc.name, tc.arguments, got, tc.want)
		}
		for name := range got {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s: %s is not in Go's form", tc.name, name)
			}
		}
	}
	var none *Mirror
	if h := none.Headers([]byte(`{"region":"x"}`)); h != nil {
		t.Errorf("Headers without annotations = %v", h)
	}
}

//
func TestMirrorCheck(t *testing.T) {
	m := mirror(t, annotated)
	one := func(name string, values ...string) map[string][]string { return map[string][]string{name: values} }
	for _, tc := range []struct {
		name      string
		h         map[string][]string
		arguments string
		wrong     string
	}{
		{"none of either", nil, ``, ""},
		{"equal", one("Mcp-Param-Region", "eu-north"), `{"region":"eu-north"}`, ""},
		{"white space", one("Mcp-Param-Region", " eu-north\t"), `{"region":"eu-north"}`, ""},
		{"encoded", one("Mcp-Param-Region", "=?base64?w6k=?="), `{"region":"é"}`, ""},
		{"raw UTF-8", one("Mcp-Param-Region", "é"), `{"region":"\u00e9"}`, ""},
		{"empty", one("Mcp-Param-Region", ""), `{"region":""}`, ""},
		{"nested", one("Mcp-Param-Deep", "i"), `{"x-mcp-header":{"properties":{"id":"i"}}}`, ""},
		{"null (R-077)", nil, `{"region":null,"page":null}`, ""},
		{"headers of others", one("Mcp-Param-Other", "x"), `{}`, ""},
		{"42.0 in the header (R-078)", one("Mcp-Param-Page-No", "42.0"), `{"page":42}`, ""},
		{"42.0 in the body (R-078)", one("Mcp-Param-Page-No", "42"), `{"page":42.0}`, ""},
		{"minus 0", one("Mcp-Param-Page-No", "0"), `{"page":-0.0}`, ""},
		{"boolean", one("Mcp-Param-X.dry", "true"), `{"dry":true}`, ""},
		{"another type, equal", one("Mcp-Param-Page-No", "42"), `{"page":"42"}`, ""},

		{"different", one("Mcp-Param-Region", "eu-south"), `{"region":"eu-north"}`, `Mcp-Param-Region differs from the argument "region"`},
		{"other case", one("Mcp-Param-Region", "EU-NORTH"), `{"region":"eu-north"}`, "differs"},
		{"sentinel in other case is literal (R-075)", one("Mcp-Param-Region", "=?BASE64?w6k=?="), `{"region":"é"}`, "differs"},
		{"bad base64 (R-075)", one("Mcp-Param-Region", "=?base64?w6k?="), `{"region":"é"}`, "not valid base64"},
		{"absent", nil, `{"region":"eu-north"}`, `Mcp-Param-Region is missing beside the argument "region"`},
		{"absent for empty text", nil, `{"region":""}`, "is missing"},
		{"absent, of another type", nil, `{"page":"42"}`, "is missing"},
		{"there beside none", one("Mcp-Param-Region", "x"), `{}`, `Mcp-Param-Region is present without the argument "region"`},
		{"there, empty, beside none", one("Mcp-Param-Region", ""), `{}`, "is present without"},
		{"there beside null", one("Mcp-Param-Region", "null"), `{"region":null}`, "is present without"},
		{"there beside no arguments", one("Mcp-Param-Deep", "i"), ``, `is present without the argument "x-mcp-header.properties.id"`},
		{"two values", one("Mcp-Param-Region", "a", "a"), `{"region":"a"}`, "more than once"},
		{"argument twice", one("Mcp-Param-Region", "a"), `{"region":"a","r\u0065gion":"b"}`, "appears twice"},
		{"argument twice, null last", one("Mcp-Param-Region", "a"), `{"region":"a","region":null}`, "appears twice"},
		{"around it twice", one("Mcp-Param-Deep", "a"), `{"x-mcp-header":{"properties":{"id":"a"}},"x-mcp-header":{"properties":{"id":"b"}}}`, "appears twice"},
		{"other number", one("Mcp-Param-Page-No", "43"), `{"page":42}`, "differs"},
		{"no number", one("Mcp-Param-Page-No", "0x2A"), `{"page":42}`, "differs"},
		{"a quoted number", one("Mcp-Param-Page-No", `"42"`), `{"page":42}`, "differs"},
		{"digits beyond floating point", one("Mcp-Param-Page-No", "9007199254740993"), `{"page":9007199254740992}`, "can repeat only"},
		{"a fraction", one("Mcp-Param-Page-No", "1.5"), `{"page":1.5}`, "can repeat only"},
		{"an object", one("Mcp-Param-Region", "{}"), `{"region":{}}`, "can repeat only"},
	} {
		got := m.Check(tc.h, []byte(tc.arguments))
		if (got == "") != (tc.wrong == "") || !strings.Contains(got, tc.wrong) {
			t.Errorf("%s: Check(%q, %s) = %q, want %q", tc.name, tc.h, tc.arguments, got, tc.wrong)
		}
	}
	var none *Mirror
	if got := none.Check(one("Mcp-Param-Region", "x"), nil); got != "" {
		t.Errorf("Check without annotations = %q", got)
	}
}

func TestSafeInteger(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"0.000", 0, true}, {"0e999999999999999999999", 0, true},
		{"42", 42, true}, {"42.0", 42, true}, {"4.2e1", 42, true}, {"4.2E+1", 42, true}, {"420e-1", 42, true}, {"0.42e2", 42, true},
		{"-9007199254740991", -9007199254740991, true}, {"9007199254740992", 0, false}, {"1e15", 1e15, true}, {"1e16", 0, false},
		{"1" + strings.Repeat("0", 1000) + "e-1000", 1, true}, {"0." + strings.Repeat("0", 999) + "1e1000", 1, true},
		{"1.5", 0, false}, {"15e-1", 0, false}, {"1e-999999999999", 0, false}, {"1e999999999999", 0, false},
		{"1.5e-9223372036854775808", 0, false}, {"1e2147483647", 0, false},
		{"", 0, false}, {"-", 0, false}, {"+1", 0, false}, {"01", 0, false}, {"1.", 0, false}, {".5", 0, false}, {"1e", 0, false},
		{"1e+-1", 0, false}, {"1e--1", 0, false}, {" 1", 0, false}, {"1_0", 0, false}, {"0x10", 0, false}, {"NaN", 0, false},
	} {
		if got, ok := safeInteger(tc.in); got != tc.want || ok != tc.ok {
			t.Errorf("safeInteger(%.30q) = %d, %t, want %d, %t", tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

func TestStripMirror(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"first", `{"properties":{"a":{"x-mcp-header":"A" , "type":"string"}}}`, `{"properties":{"a":{"type":"string"}}}`},
		{"last", `{"properties":{"a":{"type":"string", "x-mcp-header":"A" }}}`, `{"properties":{"a":{"type":"string" }}}`},
		{"alone", `{"properties":{"a":{"x-mcp-header":5}}}`, `{"properties":{"a":{}}}`},
		{"twice, and escaped", `{"x-mcp-header":[],"x-mcp-header":{},"type":"object","x\u002dmcp-header":1}`, `{"type":"object"}`},
		{"nested behind a cut", `{"x-mcp-header":1,"items":[{"x-mcp-header":1,"a":1.50}],"$defs":{"x-mcp-header":{"x-mcp-header":1}}}`, `{"items":[{"a":1.50}],"$defs":{"x-mcp-header":{}}}`},
		{"data stays", `{"default":{"x-mcp-header":1},"anyOf":[{"x-mcp-header":1}],"enum":[{"x-mcp-header":1}]}`, `{"default":{"x-mcp-header":1},"anyOf":[{}],"enum":[{"x-mcp-header":1}]}`},
	} {
		edited(t, tc.name, tc.in, tc.want, StripMirror)
	}
	for _, same := range []string{`{}`, `true`, `{"properties":{"x-mcp-header":{}}}`, `{"x-mcp-header":`} {
		edited(t, "the same", same, "", StripMirror)
	}
}

// FuzzMirror checks that the result of Headers passes Check. Without the annotations the schema asks for no
// headers, and all else in it stays.
func FuzzMirror(f *testing.F) {
	for _, arguments := range []string{`{"region":"a\u0000","page":1e2,"dry":true,"x-mcp-header":{"properties":{"id":"="}}}`, `{"page":1,"page":2}`, `{"region":{}}`, `[`, `{"`, ``} {
		f.Add([]byte(annotated), []byte(arguments))
	}
	for _, schema := range []string{`{"items":[{"x-mcp-header":1}]}`, `{"x-mcp-header"`, `{"x-mcp-header":"A","\u0078-mcp-header":[[]]}`, `{"default":{"x-mcp-header":1}}`, `{"x-mcp-header":1,"a"`} {
		f.Add([]byte(schema), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, schema, arguments []byte) {
		m, err := NewMirror(schema)
		h := m.Headers(arguments)
		m.Check(nil, arguments)
		stripped := StripMirror(schema)
		if !json.Valid(schema) {
			return
		}
		if m != nil && json.Valid(arguments) {
			for name, v := range h {
				if len(v) != 1 || http.CanonicalHeaderKey(name) != name || strings.ContainsFunc(v[0], func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Fatalf("header %q: %q", name, v)
				}
			}
			if what := m.Check(h, arguments); what != "" && !strings.Contains(what, "twice") && !strings.Contains(what, "is missing") {
				t.Fatalf("Headers(%q) = %q, but %s", arguments, h, what)
			}
			for name := range h { // one that differs, and one too few
				other := maps.Clone(h)
				other[name] = []string{h[name][0] + "~"}
				if m.Check(other, arguments) == "" {
					t.Fatalf("Check(%q, %q) says nothing", other, arguments)
				}
				delete(other, name)
				if m.Check(other, arguments) == "" {
					t.Fatalf("Check(%q, %q) says nothing", other, arguments)
				}
			}
		}
		if !json.Valid(stripped) {
			t.Fatalf("StripMirror(%q) = %q", schema, stripped)
		}
		if again, err := NewMirror(stripped); again != nil || err != nil && err.Error() != "inputSchema: "+errDeep.Error() && err.Error() != "inputSchema: "+errLarge.Error() {
			t.Fatalf("NewMirror(StripMirror(%q)) = %v, %v", schema, again, err)
		}
		if m == nil && err == nil && !bytes.Equal(stripped, schema) {
			t.Fatalf("StripMirror(%q) = %q, though nothing was found", schema, stripped)
		}
		var was, is any
		if json.Unmarshal(schema, &was) != nil || json.Unmarshal(stripped, &is) != nil {
			return // nested deeper than encoding/json reads
		}
		if !unrepeated(schema) {
			return
		}
		if plain := bare(was); !reflect.DeepEqual(plain, is) {
			t.Fatalf("StripMirror(%q) = %q, want what %v says", schema, stripped, plain)
		}
	})
}

// unrepeated reports whether no name appears twice in any object: encoding/json
// merges those that do.
func unrepeated(b []byte) bool {
	d := json.NewDecoder(bytes.NewReader(b))
	var read func() bool
	read = func() bool {
		first, err := d.Token()
		if err != nil {
			return false
		}
		delim, ok := first.(json.Delim)
		if !ok {
			return true
		}
		seen := map[string]bool{}
		for d.More() {
			if delim == '{' {
				name, err := d.Token()
				if err != nil || seen[name.(string)] {
					return false
				}
				seen[name.(string)] = true
			}
			if !read() {
				return false
			}
		}
		_, err = d.Token()
		return err == nil
	}
	return read()
}

// bare is StripMirror in terms of decoded values: the oracle.
func bare(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = bare(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			switch {
			case name == annotationName:
				continue
			case slices.Contains([]string{"default", "const", "enum", "examples", "example", "type"}, name):
			case slices.Contains([]string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}, name):
				if schemas, ok := value.(map[string]any); ok {
					named := map[string]any{}
					for n, s := range schemas {
						named[n] = bare(s)
					}
					value = named
					break
				}
				value = bare(value)
			default:
				value = bare(value)
			}
			out[name] = value
		}
		return out
	}
	return v
}

// A hostile server and a hostile client together cost no more than their
// bytes.
func TestMirrorCost(t *testing.T) {
	var schema strings.Builder
	schema.WriteString(`{"properties":{"o":{"properties":{"a":{"type":"string","x-mcp-header":"A"}`)
	for i := range 5000 {
		fmt.Fprintf(&schema, `,"p%d":{"type":"string","x-mcp-header":"P%d"}`, i, i)
	}
	schema.WriteString(`}}}}`)
	m := mirror(t, schema.String())
	arguments := []byte(`{"o":{}` + strings.Repeat(`,"o":{}`, 200_000) + `}`)
	if what := m.Check(nil, arguments); !strings.Contains(what, "appears twice") {
		t.Errorf("Check = %q", what)
	}
	deep := []byte(strings.Repeat(`{"items":`, 900) + `{"x-mcp-header":1,"description":"` + strings.Repeat("\\\"", 1<<19) + `"}` + strings.Repeat(`}`, 900))
	if got := StripMirror(deep); len(got) != len(deep)-len(`"x-mcp-header":1,`) {
		t.Errorf("StripMirror left %d bytes of %d", len(got), len(deep))
	}
}
