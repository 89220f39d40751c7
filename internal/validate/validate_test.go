package validate

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pets = `{"type":"object","properties":{
	"limit":{"type":"integer","minimum":1,"maximum":100},
	"price":{"type":"number","multipleOf":0.01},
	"done":{"type":"boolean"},
	"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"maxItems":2,"uniqueItems":true},
	"when":{"anyOf":[{"type":"integer"},{"type":"null"}]},
	"name":{"type":"string","minLength":2,"pattern":"^[a-z]+$"},
	"odd":{"type":"string","pattern":"(?!x)y"},
	"body":{"type":"object","properties":{"kind":{"const":"cat"},"age":{"type":"integer"}},"required":["kind"],"additionalProperties":false},
	"animal":{"oneOf":[
		{"type":"object","properties":{"kind":{"const":"cat"},"lives":{"type":"integer"}},"required":["kind","lives"]},
		{"type":"object","properties":{"kind":{"const":"dog"},"barks":{"type":"boolean"}},"required":["kind","barks"]}]},
	"tree":{"$ref":"#/$defs/node"},
	"first-name":{"type":"string"}
},"required":["limit"],"$defs":{"node":{"type":"object","properties":{"n":{"type":"integer"},"next":{"$ref":"#/$defs/node"}}}}}`

func TestCheck(t *testing.T) {
	c := NewCache(4)
	for _, tc := range []struct{ name, args, want string }{
		{"nothing but what is needed", `{"limit":5}`, `{"limit":5}`},
		{"the bytes stay", "{ \"limit\" : 5 ,\n\"price\":19.99}", "{ \"limit\" : 5 ,\n\"price\":19.99}"},
		{"an integer with a zero fraction", `{"limit":5.0}`, `{"limit":5.0}`},
		{"a number in a string", `{"limit":" 5 "}`, `{"limit":5}`},
		{"digits are kept", `{"limit":5,"tree":{"n":"9007199254740993"}}`, `{"limit":5,"tree":{"n":9007199254740993}}`},
		{"a boolean in a string", `{"limit":5,"done":"True"}`, `{"limit":5,"done":true}`},
		{"null in a string", `{"limit":5,"when":"null"}`, `{"limit":5,"when":null}`},
		{"a number where null may be too", `{"limit":5,"when":"7"}`, `{"limit":5,"when":7}`},
		{"an array in a string", `{"limit":5,"tags":"[\"a\", \"b\"]"}`, `{"limit":5,"tags":["a","b"]}`},
		{"an object in a string, with a number in a string in it", `{"limit":5,"tree":"{\"n\":\"1\",\"next\":{\"n\":\"2\"}}"}`, `{"limit":5,"tree":{"n":1,"next":{"n":2}}}`},
		{"what is not touched keeps its bytes", `{"price" : 1.10, "limit":"5", "first-name":"\u0041"}`, `{"price":1.10,"limit":5,"first-name":"\u0041"}`},
		{"a string that may be one", `{"limit":5,"first-name":"5"}`, `{"limit":5,"first-name":"5"}`},
		{"a pattern that Go has not", `{"limit":5,"odd":"z"}`, `{"limit":5,"odd":"z"}`},
		{"an alternative", `{"limit":5,"animal":{"kind":"dog","barks":"true"}}`, `{"limit":5,"animal":{"kind":"dog","barks":true}}`},
	} {
		got, err := c.Check([]byte(pets), []byte(tc.args), true)
		if string(got) != tc.want || err != nil {
			t.Errorf("%s: Check(%s) = %s, %v; want %s", tc.name, tc.args, got, err, tc.want)
		}
	}
}

func TestFaults(t *testing.T) {
	c := NewCache(4)
	for _, tc := range []struct{ args, want string }{
		{``, "the arguments are wrong: limit: is missing"},
		{`{"limit":"five"}`, `limit: must be an integer, not "five"`},
		{`{"limit":"007"}`, `limit: must be an integer, not "007"`},
		{`{"limit":5.5}`, `limit: must be an integer, not 5.5`},
		{`{"limit":101}`, `limit: must be at most 100, not 101`},
		{`{"limit":0}`, `limit: must be at least 1, not 0`},
		{`{"limit":5,"price":1.001}`, `price: must be a multiple of 0.01, not 1.001`},
		{`{"limit":5,"tags":["a","c"]}`, `tags[1]: must be one of "a", "b", not "c"`},
		{`{"limit":5,"tags":["a","b","a"]}`, "tags: must have at most 2 items, not 3"},
		{`{"limit":5,"tags":["a","a"]}`, "tags: must not have an item twice: those at 0 and 1 are equal"},
		{`{"limit":5,"when":"soon"}`, `when: must be an integer or null, not "soon"`},
		{`{"limit":5,"name":"A"}`, "name: must have at least 2 characters, not 1"},
		{`{"limit":5,"name":"Ab"}`, `name: must match the pattern ^[a-z]+$, which "Ab" does not`},
		{`{"limit":5,"body":{}}`, "body.kind: is missing"},
		{`{"limit":5,"body":{"kind":"dog"}}`, `body.kind: must be "cat", not "dog"`},
		{`{"limit":5,"body":{"kind":"cat","aeg":3}}`, "body.aeg: there is no such argument; did you mean age?"},
		{`{"limit":5,"limt":3}`, "limt: there is no such argument; did you mean limit?"},
		{`{"limit":5,"firstName":"x"}`, "firstName: there is no such argument; did you mean first-name?"},
		{`{"limit":5,"zzzzzzzz":3}`, "zzzzzzzz: there is no such argument; there are limit, price"},
		{`{"limit":5,"animal":{"kind":"dog"}}`, "animal.barks: is missing"},
		{`{"limit":5,"animal":{"kind":"cow"}}`, `animal.kind: must be one of "cat", "dog", not "cow"`},
		{`{"limit":5,"animal":7}`, "animal: must be an object, not 7"},
		{`{"limit":5,"tree":{"next":{"next":{"n":"x"}}}}`, `tree.next.next.n: must be an integer, not "x"`},
		{`{"limit":5,"limit":6}`, "limit: is given twice"},
		{`{"limit":5,"tree":{"n":1,"\u006e":2}}`, "tree.n: is given twice"},
		{`{"limit":1e999999999}`, "limit: is a number with too many digits"},
		{`{"limit":"1e999999999"}`, `limit: must be an integer, not "1e999999999"`},
		{`[1]`, "they must be an object, not an array"},
		{`{"limit":5`, "not valid JSON"},
		{`{"limit":5,"tree":` + strings.Repeat("[", 100000), "nested more than 200 levels deep"},
		{`{"limit":5,"tree":"` + strings.Repeat("[", 100000) + `"}`, "tree: must be an object"},
	} {
		got, err := c.Check([]byte(pets), []byte(tc.args), true)
		if _, ok := errors.AsType[Faults](err); !ok || !strings.Contains(err.Error(), tc.want) || got != nil {
			t.Errorf("Check(%.80s) = %s, %v; want %s", tc.args, got, err, tc.want)
		}
	}
}

// All faults are reported at once, in a stable order.
func TestFaultsTogether(t *testing.T) {
	c := NewCache(4)
	want := `4 things are wrong with the arguments:
- limit: is missing
- name: must have at least 2 characters, not 1
- tags[0]: must be one of "a", "b", not "x"
- colour: there is no such argument; there are limit, price, done, tags, when, name, odd, body, animal, tree, first-name`
	for range 20 {
		_, err := c.Check([]byte(pets), []byte(`{"name":"a","tags":["x"],"colour":1}`), true)
		if err == nil || err.Error() != want {
			t.Fatalf("got %v\nwant %s", err, want)
		}
	}
	var schemas, values []string
	for i := range 50 {
		schemas = append(schemas, fmt.Sprintf(`"p%d":{"type":"integer"}`, i))
		values = append(values, fmt.Sprintf(`"p%d":"x"`, i))
	}
	schema, args := `{"properties":{`+strings.Join(schemas, ",")+`}}`, "{"+strings.Join(values, ",")+"}"
	_, err := c.Check([]byte(schema), []byte(args), true)
	if err == nil || strings.Count(err.Error(), "\n") != 21 || !strings.Contains(err.Error(), "and 30 more") {
		t.Errorf("50 faults: %v", err)
	}
}

// A server's own schema decides what else is allowed.
func TestOpen(t *testing.T) {
	c := NewCache(4)
	for _, tc := range []struct {
		schema string
		closed bool
		ok     bool
	}{
		{`{"properties":{"a":{}}}`, false, true},
		{`{"properties":{"a":{}}}`, true, false},
		{`{"properties":{"a":{}},"additionalProperties":true}`, true, true},
		{`{"properties":{"a":{}},"additionalProperties":{"type":"integer"}}`, true, true},
		{`{"properties":{"a":{}},"additionalProperties":false}`, false, false},
		{`{"patternProperties":{"^b":{}}}`, true, true},
		{`{}`, true, false},
		{`true`, false, true},
	} {
		_, err := c.Check([]byte(tc.schema), []byte(`{"b":1}`), tc.closed)
		if (err == nil) != tc.ok {
			t.Errorf("%s, closed: %t: %v, want ok: %t", tc.schema, tc.closed, err, tc.ok)
		}
	}
}

// An unusable schema disables the check, but not the call, and fetches nothing.
func TestUnusable(t *testing.T) {
	c := NewCache(64)
	for _, schema := range []string{
		`{"$ref":"https://schemas.example.com/x.json"}`,
		`{"$ref":"file:///etc/passwd"}`,
		`{"$schema":"https://schemas.example.com/draft"}`,
		`{"$ref":"#/$defs/nothing"}`,
		`{"type":"file"}`,
		`{"exclusiveMinimum":true}`,
		`{"type"`,
		strings.Repeat("[", 1000000),
		`{"a":"` + strings.Repeat("x", maxSchema) + `"}`,
	} {
		args := `{"limit":1}`
		got, err := c.Check([]byte(schema), []byte(args), false)
		if _, ok := errors.AsType[*SchemaError](err); !ok || string(got) != args {
			t.Errorf("%.60s: %s, %v; want a SchemaError and the arguments", schema, got, err)
		}
	}
}

// Nested alternatives do not block the bridge, and their arguments do not pass unchecked. Large
// values are no such case.
func TestSteps(t *testing.T) {
	scaletest.Unraced(t)
	c := NewCache(8)
	var defs []string
	for i := range 40 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	wide := `{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + strings.Join(defs, ",") + `,"d40":{"type":"null"}}}`
	deep := `{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":["object","integer"],"anyOf":[{"properties":{"n":{"$ref":"#/$defs/n"}}},{"properties":{"n":{"$ref":"#/$defs/n"}},"not":{"required":["x"]}}]}}}`
	draft7 := strings.Replace(wide, "{", `{"$schema":"http://json-schema.org/draft-07/schema#",`, 1)
	for name, tc := range map[string]struct{ schema, args string }{
		"wide": {wide, `{"a":1}`}, "draft 7": {draft7, `{"a":1}`},
		"deep": {deep, `{"a":` + strings.Repeat(`{"n":`, 100) + `""` + strings.Repeat("}", 101)},
	} {
		got, err := c.Check([]byte(tc.schema), []byte(tc.args), true)
		want := fmt.Sprintf("the arguments are wrong: those of tool cannot be checked in %d steps, the limit for arguments of their size: too many alternatives have to be tried", maxSteps+byteSteps*len(tc.args))
		if faults, ok := errors.AsType[Faults](err); !ok || got != nil || faults.Of("tool").Error() != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	large := `{"tags":[` + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + `]}`
	if _, err := c.Check([]byte(`{"properties":{"tags":{"items":{"type":"integer"}}}}`), []byte(large), true); err != nil {
		t.Errorf("100,000 items: %.200s", err)
	}
	formats := `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"when":{"type":"string","format":"date-time"}}}`
	if _, err := c.Check([]byte(formats), []byte(`{"when":"tomorrow"}`), true); err != nil {
		t.Errorf("a format is checked: %v", err)
	}
}

func TestFits(t *testing.T) {
	c := NewCache(4)
	for value, want := range map[string]bool{`{"limit":1}`: true, `{"limit":"1"}`: false, `{}`: false, `{"limit":1,"more":2}`: true, `{`: false} {
		if got, err := c.Fits([]byte(pets), []byte(value)); got != want || err != nil {
			t.Errorf("Fits(%s) = %t, %v; want %t", value, got, err, want)
		}
	}
}

// Schemas are compiled once, and the cache respects its size.
func TestCache(t *testing.T) {
	c := NewCache(2)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				schema := fmt.Sprintf(`{"properties":{"a":{"maximum":%d}}}`, (i+j)%4)
				_, err := c.Check([]byte(schema), []byte(`{"a":2}`), true)
				if (err == nil) != ((i+j)%4 >= 2) {
					t.Errorf("%s: %v", schema, err)
				}
			}
		})
	}
	wg.Wait()
	if n := c.lru.Len(); n > 2 {
		t.Errorf("%d schemas are kept, want at most 2", n)
	}
	schema := []byte(pets)
	before := c.entry(schema)
	clear(schema) // the caller's bytes are the caller's
	if c.entry([]byte(pets)) != before {
		t.Error("the schema was compiled again")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"limit", "offset", "per_page", "owner", "repo"}
	for name, want := range map[string]string{"limt": "limit", "perPage": "per_page", "LIMIT": "limit", "repository": "repo", "x": "", "colour": "", "ofset": "offset"} {
		if got := Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

// Any input is handled, and a returned value is JSON that the schema allows.
func FuzzCheck(f *testing.F) {
	for _, args := range []string{`{"limit":"5"}`, `{"limit":5,"tree":"{\"n\":\"1\"}"}`, `{"limit":1e400}`, `{"limit":5,"animal":{"kind":"cat"}}`, `{"":{"":[]}}`} {
		f.Add(args)
	}
	c := NewCache(4)
	f.Fuzz(func(t *testing.T, args string) {
		got, err := c.Check([]byte(pets), []byte(args), true)
		if err != nil {
			if len(err.Error()) > 100000 {
				t.Errorf("%d bytes of faults", len(err.Error()))
			}
			return
		}
		if !gjson.ValidBytes(got) {
			t.Fatalf("Check(%q) = %q, which is not JSON", args, got)
		}
		if ok, err := c.Fits([]byte(pets), got); !ok || err != nil {
			t.Fatalf("Check(%q) = %q, which does not fit: %v", args, got, err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	c := NewCache(4)
	schema, args := []byte(pets), []byte(`{"limit":5,"tags":["a","b"],"body":{"kind":"cat","age":3}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Check(schema, args, true); err != nil {
			b.Fatal(err)
		}
	}
}

// Numbers that are short as text and huge in value take no time.
func TestLargeNumbers(t *testing.T) {
	c := NewCache(4)
	for range 100 {
		_, _ = c.Check([]byte(pets), []byte(`{"limit":1e1100,"price":1e-1100}`), true)
	}
}

// Numbers are texts in arguments that a request sends as text, and nowhere else.
func TestCheckTexts(t *testing.T) {
	const schema = `{"properties":{"id":{"type":"string","enum":["5","6"]},"on":{"type":["string","null"]},"ids":{"type":"array","items":{"type":"string"}},"deep":{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"string"}}}}},"body":{"type":"string"},"n":{"type":"string"}}}`
	c := NewCache(1)
	texts := func(name string) bool { return name != "body" }
	for _, test := range []struct{ args, want string }{
		{`{"id":5}`, `{"id":"5"}`},
		{`{"on":true,"n":-1.50}`, `{"on":"true","n":"-1.50"}`},
		{`{"n":12345678901234567890}`, `{"n":"12345678901234567890"}`},
		{`{"ids":[1,"2"]}`, `{"ids":["1","2"]}`},
		{`{"id":7}`, `the arguments are wrong: id: must be one of "5", "6", not "7"`},
		{`{"n":1e3}`, `the arguments are wrong: n: must be a string, not 1e3`},
		{`{"n":{}}`, `the arguments are wrong: n: must be a string, not an object`},
		{`{"deep":{"a":{"b":1}}}`, `the arguments are wrong: deep.a.b: must be a string, not 1`},
		{`{"body":5}`, `the arguments are wrong: body: must be a string, not 5`},
	} {
		got, err := c.CheckTexts([]byte(schema), []byte(test.args), false, texts)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != test.want {
			t.Errorf("CheckTexts(%s) = %s, want %s", test.args, got, test.want)
		}
	}
	if _, err := c.Check([]byte(schema), []byte(`{"id":5}`), false); err == nil {
		t.Error("Check takes a number for a text")
	}
}
