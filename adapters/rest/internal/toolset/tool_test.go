package toolset_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// args makes arguments of their short forms: "name type = default". A ? behind the name makes one
// optional.
func args(t testing.TB, texts ...string) []toolset.Arg {
	t.Helper()
	var all []toolset.Arg
	for _, text := range texts {
		name, kind, _ := strings.Cut(text, " ")
		schema, def, err := toolset.ParseArg(kind)
		if err != nil {
			t.Fatal(err)
		}
		a := toolset.Arg{Schema: schema, Default: def, Line: 7}
		a.Name, a.Optional = strings.CutSuffix(name, "?")
		all = append(all, a)
	}
	return all
}

// TestParseArg reads the short forms of arguments.
func TestParseArg(t *testing.T) {
	for _, test := range []struct{ text, schema, def, err string }{
		{text: "string", schema: `{"type":"string"}`},
		{text: "integer = 3", schema: `{"type":"integer"}`, def: "3"},
		{text: "string = 3", schema: `{"type":"string"}`, def: `"3"`},
		{text: `string = "a b"`, schema: `{"type":"string"}`, def: `"a b"`},
		{text: "metric | imperial=metric", schema: `{"type":"string","enum":["metric","imperial"]}`, def: `"metric"`},
		{text: "[string]", schema: `{"type":"array","items":{"type":"string"}}`},
		{text: "[ a|b ] = [\"a\"]", schema: `{"type":"array","items":{"type":"string","enum":["a","b"]}}`, def: `["a"]`},
		{text: "array", schema: `{"type":"array","items":{}}`},
		{text: "any", schema: `{}`},
		{text: "", err: "the type is missing"},
		{text: "str", err: `"str" is not a type`},
		{text: "[string", err: "no closing bracket"},
		{text: "a |", err: "empty word"},
		{text: "number = many", err: "not JSON"},
	} {
		schema, def, err := toolset.ParseArg(test.text)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("ParseArg(%q): %v, want %s", test.text, err, test.err)
			}
		case err != nil || string(schema) != test.schema || string(def) != test.def:
			t.Errorf("ParseArg(%q) = %s, %s, %v, want %s, %s", test.text, schema, def, err, test.schema, test.def)
		}
	}
}

// TestWrongTools: Check finds what cannot work, with the line.
func TestWrongTools(t *testing.T) {
	yes := true
	for _, test := range []struct {
		tool toolset.Entry
		want string
	}{
		{toolset.Entry{Request: "FETCH /x"}, "request must begin with one of DELETE, GET,"},
		{toolset.Entry{Request: "GET x"}, "request must have a path that begins with a slash: GET /items/{id}; base_url names the server"},
		{toolset.Entry{Request: "GET https://x/y"}, "request must have a path that begins with a slash"},
		{toolset.Entry{Request: "GET /x#y"}, "request must not contain a blank or a #"},
		{toolset.Entry{Request: "GET /{id}"}, "request has {id}, and no argument is called that"},
		{toolset.Entry{Request: "GET /{id"}, "request has an unmatched brace"},
		{toolset.Entry{Request: "GET /{a,b}", Args: args(t, "a string")}, "request has {a,b} in its path: write {name}"},
		{toolset.Entry{Request: "GET /{/a}", Args: args(t, "a string")}, "request has {/a} in its path: write {name}"},
		{toolset.Entry{Request: "GET /x{?a:3}", Args: args(t, "a string")}, "request has {?a:3} in its query, which is not of the form {?name,name*}"},
		{toolset.Entry{Request: "GET /x?a=b{a}", Args: args(t, "a string")}, "request has a=b{a} in its query, which is neither fixed"},
		{toolset.Entry{Request: "GET /{a}/{a}", Args: args(t, "a string")}, "request uses {a} twice"},
		{toolset.Entry{Request: "GET /{a}", Args: args(t, "a? string")}, "args: a: must not be optional: it is a part of the path"},
		{toolset.Entry{Request: "GET /x{?a}", Args: args(t, "a string", "b string")}, "args: b: is not used: put {b} into the request, the body or a header"},
		{toolset.Entry{Request: "POST /x", Args: args(t, "a string", "b string"), Body: json.RawMessage(`{"x":"{a}"}`)}, "args: b: is not used"},
		{toolset.Entry{Request: "POST /x", Body: json.RawMessage(`{"x":["{a}"]}`)}, "body has {a}, and no argument is called that; write {{a}} for the text itself"},
		{toolset.Entry{Request: "GET /x", Args: args(t, "a string"), Body: json.RawMessage(`"{a}"`)}, "a GET has no body"},
		{toolset.Entry{Request: "GET /x", Headers: map[string]string{"Host": "x"}}, "headers: Host is set by the bridge itself"},
		{toolset.Entry{Request: "GET /x", Headers: map[string]string{"X y": "x"}}, `headers: "X y" is not the name of a header`},
		{toolset.Entry{Request: "GET /x", Headers: map[string]string{"X-Y": "{a}"}}, "headers: X-Y: has {a}, and no argument is called that"},
		{toolset.Entry{Request: "GET /x", Args: []toolset.Arg{{Name: "a b", Schema: json.RawMessage(`{}`)}}}, "args: a b: the name of an argument has 1 to 64 letters"},
		{toolset.Entry{Request: "GET /x", Name: "a b"}, "a tool's name has 1 to 64 letters"},
		{toolset.Entry{Request: "GET /x", Args: []toolset.Arg{{Name: "a"}}}, "args: a: has no type"},
		{toolset.Entry{Request: "GET /x", Args: []toolset.Arg{{Name: "a", As: "b", Schema: json.RawMessage(`{}`)}}}, "args: a: off and as are for arguments of the document"},
		{toolset.Entry{Request: "GET /x", Args: []toolset.Arg{{Name: "a", Schema: json.RawMessage(`{"type":"strng"}`)}}}, "args: a: is not a valid JSON Schema: "},
		{toolset.Entry{Args: []toolset.Arg{{Name: "a", Schema: json.RawMessage(`{"maximum":"5"}`)}}}, "args: a: is not a valid JSON Schema: "},
		{toolset.Entry{Request: "GET /x", Attempts: 11}, "retry is 11: must be 1 to 10"},
		{toolset.Entry{Request: "POST /x", Attempts: 2}, "retry: a repeated POST may take effect twice: set writes: false"},
		{toolset.Entry{Request: "PUT /x", Cache: &yes}, "cache is for GET: answers to PUT are not cached"},
		{toolset.Entry{As: "file"}, `as is "file": must be tool or resource`},
		{toolset.Entry{Timeout: -1}, "timeout is -1ns: must not be negative"},
		{toolset.Entry{Args: []toolset.Arg{{Name: "a", Optional: true, About: "x"}}}, "args: a: the ? is for tools with a request, and for added arguments"},
		{toolset.Entry{Args: args(t, "a:b string")}, "args: a:b: the name of an argument has 1 to 64 letters"},
		{toolset.Entry{Request: "GET /x", Query: json.RawMessage(`{"a":1}`)}, "query is for operations of the document: write it into the request, as GET /items{?a} or GET /items?a=1"},
		{toolset.Entry{Args: []toolset.Arg{{Name: "a", Off: true, About: "x"}}}, "args: a: clients do not see it"},
		{toolset.Entry{Args: []toolset.Arg{{Name: "a", As: "b c"}}}, "args: a: as must have 1 to 64 letters"},
	} {
		test.tool.Key, test.tool.Line = "own", 3
		for i := range test.tool.Args {
			test.tool.Args[i].Line = 4
		}
		faults := test.tool.Check()
		if !slices.ContainsFunc(faults, func(f toolset.Fault) bool {
			return strings.HasPrefix(f.String(), "tools: own: "+test.want) && f.Line > 0
		}) {
			t.Errorf("%+v: %v, want %s", test.tool, faults, test.want)
		}
	}
}

// TestSecretsOfEntries finds the parts of entries that are probably secrets.
func TestSecretsOfEntries(t *testing.T) {
	for _, test := range []struct {
		tool toolset.Entry
		want string // what is masked, and the headers that are
	}{
		{toolset.Entry{Headers: map[string]string{"authorization": "Bearer the-token", "X-Kind": "nothing", "Idempotency-Key": "order-{id}"}}, "[Bearer the-token the-token] [Authorization]"},
		{toolset.Entry{Headers: map[string]string{"X-Api-Key": "{id}-the-rest", "X-Token": "{t}"}}, "[-the-rest] [X-Api-Key X-Token]"},
		{toolset.Entry{Query: json.RawMessage(`{"api_key":"the-key","author":"somebody","keyword":"anything","key":["a"]}`)}, `[a the-key] []`},
		{toolset.Entry{Request: "GET /x?access_token=a%2Fb&sort=token{&key}"}, "[a%2Fb a/b] []"},
		{toolset.Entry{Request: "GET /x?api_key=the-key{&page}"}, "[the-key] []"},
		{toolset.Entry{Request: "GET /x{?page}&api_key=the-key{&size}&sig=the-sig"}, "[the-key the-sig] []"},
		{toolset.Entry{Request: "GET /x?api%5Fkey=the-key"}, "[the-key] []"},
		{toolset.Entry{Request: "GET /x?sig={a}&q={token}"}, "[] []"},
	} {
		masked := test.tool.Masked()
		slices.Sort(masked)
		if got := fmt.Sprint(test.tool.Secrets(), masked); got != test.want {
			t.Errorf("%+v: %s, want %s", test.tool, got, test.want)
		}
	}
}
