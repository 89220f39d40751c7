package arguments_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
)

// loose is a schema with what servers make of their languages' types.
const loose = `{
  "type": "object",
  "properties": {
    "text": {"type": "string", "description": "Some\n text"},
    "n": {"type": "integer", "default": 5},
    "x": {"type": "number"},
    "on": {"type": "boolean"},
    "none": {"type": "null"},
    "list": {"type": "array", "items": {"type": "integer"}},
    "names": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": null},
    "map": {"type": "object"},
    "deep": {"type": "object", "properties": {"s": {"type": "string"}, "in": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}, "on": {"type": "boolean"}}}}},
    "any": {},
    "either": {"type": ["integer", "string"]},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "color": {"$ref": "#/$defs/Color", "description": "Which one"},
    "odd.na me~/": {"$ref": "#/$defs/odd~0~1"},
    "level": {"oneOf": [{"const": 1, "title": "low"}, {"const": 2}]},
    "loop": {"$ref": "#/properties/loop"}
  },
  "required": ["text"],
  "$defs": {"Color": {"enum": ["red", "green"]}, "odd~/": {"type": "boolean"}}
}`

func parse(text string) arguments.Schema { return arguments.Of(gjson.Parse(text)) }

func TestBuild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want, fault string }{
		{args: "", want: `{}`},
		{args: "text=5", want: `{"text":"5"}`},
		{args: "text=", want: `{"text":""}`},
		{args: "text=a=b", want: `{"text":"a=b"}`},
		{args: `text="a"`, want: `{"text":"\"a\""}`},
		{args: "text=@" + path, want: `{"text":"12\n"}`},
		{args: "n=@" + path, want: `{"n":12}`},
		{args: `text:="@home"`, want: `{"text":"@home"}`},
		{args: "text:=5", want: `{"text":5}`},
		{args: "n=12345678901234567890123", want: `{"n":12345678901234567890123}`}, // numbers keep their digits
		{args: "n=1e3", want: `{"n":1e3}`},
		{args: "n=1.5", fault: `n: "1.5" is not of the type integer`},
		{args: "n=ten", fault: `"ten" is not of the type integer`},
		{args: "n=", fault: `"" is not of the type integer`},
		{args: "x=-0.10", want: `{"x":-0.10}`},
		{args: "x=NaN", fault: "number"},
		{args: "x=01", fault: "number"},
		{args: "on=true", want: `{"on":true}`},
		{args: "on=yes", fault: "boolean"},
		{args: "none=null", want: `{"none":null}`},
		{args: "list=1 list=2", want: `{"list":[1,2]}`},
		{args: "list=[1,2]", want: `{"list":[1,2]}`},
		{args: "list=[1] list=2", fault: "given twice"},
		{args: "list=1 list=[2]", fault: "given twice"},
		{args: "list=a", fault: `"a" is not of the type integer`},
		{args: "names=a names=b,c", want: `{"names":["a","b,c"]}`},
		{args: "names:=null", want: `{"names":null}`},
		{args: `map={"a":1.0}`, want: `{"map":{"a":1.0}}`},
		{args: `map=a`, fault: "object"},
		{args: `map=[]`, fault: "object"},
		{args: "deep.s=5 text=x deep.in.list=1 deep.in.list=2 deep.in.on=true", want: `{"deep":{"s":"5","in":{"list":[1,2],"on":true}},"text":"x"}`},
		{args: "deep.x.y=1", want: `{"deep":{"x.y":1}}`},
		{args: "map.a=5 map.b=x", want: `{"map":{"a":5,"b":"x"}}`},
		{args: `deep.s=5 deep={}`, fault: "deep is given whole and by its members"},
		{args: "deep.in.on=yes", fault: `deep.in.on: "yes" is not of the type boolean`},
		{args: "text.s=5", want: `{"text.s":5}`},
		{args: `any={"a":1}`, want: `{"any":{"a":1}}`},
		{args: `any=hello`, want: `{"any":"hello"}`},
		{args: `other=1`, want: `{"other":1}`},
		{args: "either=5", want: `{"either":"5"}`},
		{args: "maybe=5", want: `{"maybe":5}`},
		{args: "maybe=null", want: `{"maybe":null}`},
		{args: "maybe=x", fault: "integer or null"},
		{args: "color=red", want: `{"color":"red"}`},
		{args: "level=2", want: `{"level":2}`},
		{args: "loop=2", want: `{"loop":2}`},
		{args: "text=a text=b", fault: "text is given twice"},
		{args: "text", fault: "is not key=value"},
		{args: `{"text":"a"}`, fault: `--json '{"text":"a"}'`},
		{args: "=x", fault: "is not key=value"},
		{args: ":=1", fault: "is not key=value"},
		{args: "text:=x", fault: "not valid JSON"},
		{args: "text=@" + path + ".none", fault: "no such file"},
	} {
		var got json.RawMessage
		all, err := arguments.Pairs(strings.Fields(test.args))
		if err == nil {
			got, err = parse(loose).Build(all)
		}
		switch {
		case test.fault == "" && err != nil:
			t.Errorf("%q: %v", test.args, err)
		case test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)):
			t.Errorf("%q: error %v, want one with %q", test.args, err, test.fault)
		case test.fault == "" && string(got) != test.want:
			t.Errorf("%q: %s, want %s", test.args, got, test.want)
		}
	}
}

func TestCheckArguments(t *testing.T) {
	for _, test := range []struct{ name, schema, args, fault string }{
		{"all well", loose, `{"text":"a","color":"red"}`, ""},
		{"missing", loose, `{}`, "the tool: missing argument: text\n  ARGUMENT"},
		{"misspelt", loose, `{"text":"a","colour":"red"}`, `the tool: unknown argument: "colour" (did you mean color?)`},
		{"not among the values", loose, `{"text":"a","color":"gren"}`, `color is "gren": did you mean green?`},
		{"a value in another spelling", loose, `{"text":"a","color":"\u0072ed"}`, ""},
		{"several", loose, `{"nn":1}`, "the tool: missing argument: text; unknown argument: \"nn\""},
		{"takes none", `{"type":"object"}`, `{"a":1}`, `unknown argument: "a" (it takes none)`},
		{"no schema", ``, `{"a":1}`, `unknown argument: "a"`},
		{"open", `{"additionalProperties":{"type":"string"}}`, `{"a":1}`, ""},
		{"open to anything", `{"additionalProperties":true}`, `{"a":1}`, ""},
		{"closed", `{"additionalProperties":false}`, `{"a":1}`, "takes none"},
		{"of many forms", `{"oneOf":[{"properties":{"a":{}}}]}`, `{"a":1}`, ""},
	} {
		err := parse(test.schema).Check("the tool", json.RawMessage(test.args))
		if test.fault == "" && err != nil || test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault)) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.fault)
		}
	}
}

func TestArgumentTable(t *testing.T) {
	s := parse(loose)
	const want = `ARGUMENT     TYPE            REQUIRED  DEFAULT  VALUES      DESCRIPTION
text         string          yes                            Some text
n            integer                   5
x            number
on           boolean
none         null
list         integer[]
names        string[]                  null
map          object
deep         object
deep.s       string
deep.in      object
any          any
either       integer|string
maybe        integer
color        string                             red, green  Which one
odd.na me~/  boolean
level        number                             1, 2
loop         any
`
	if got := s.Table(s.Arguments(), ""); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}

// Parts that refer to each other in circles have no type, and take no time.
func TestCircularSchema(t *testing.T) {
	refs := strings.Repeat(`{"$ref":"#/properties/a"},`, 50) + `{"$ref":"#/properties/a"}`
	for _, how := range []string{"anyOf", "oneOf", "allOf"} {
		s := parse(`{"properties":{"a":{"` + how + `":[` + refs + `]}}}`)
		if raw, err := s.Build([]arguments.Pair{{Key: "a", Value: "1"}}); err != nil || string(raw) != `{"a":1}` {
			t.Errorf("%s: %s, error %v", how, raw, err)
		}
	}
}

// Schemas are written by strangers: nothing of one makes a command panic or
// hang.
func FuzzSchema(f *testing.F) {
	f.Add(loose, "a", "1")
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"}]}}}`, "a", "[1]")
	f.Add(`{"$ref":"#"}`, "a", "1")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		s := parse(text)
		if raw, err := s.Build([]arguments.Pair{{Key: key, Value: value}, {Key: key, Value: value}}); err == nil {
			if !json.Valid(raw) {
				t.Errorf("%s: made %s", text, raw)
			}
			_ = s.Check("the tool", raw)
		}
		for _, a := range s.Arguments() {
			s.Options(a.Schema)
			s.TypeName(a.Schema)
		}
		s.Table(s.Arguments(), "")
	})
}

// An answer has the format that its field asks for; of formats that nobody knows
// nothing is said.
func TestReplyFormat(t *testing.T) {
	for _, test := range []struct {
		format, text string
		want         bool
	}{
		{"email", "a@example.com", true}, {"email", "A <a@example.com>", false}, {"email", "a", false},
		{"uri", "https://example.com", true}, {"uri", "example.com", false},
		{"date", "2024-02-29", true}, {"date", "2023-02-29", false}, {"date", "29.2.2024", false},
		{"date-time", "2024-02-29T12:00:00Z", true}, {"date-time", "2024-02-29", false},
		{"", "anything", true}, {"color", "anything", true},
	} {
		field := gjson.Parse(`{"type":"string","format":"` + test.format + `"}`)
		raw, err := arguments.Of(field).Reply(field, nil, test.text)
		if got := err == nil && raw == arguments.Quote(test.text); got != test.want {
			t.Errorf("%q as %q: %s, error %v, want it to fit: %t", test.text, test.format, raw, err, test.want)
		}
	}
}

// Members of objects stand in the table, and a fault names the argument that an unknown name is a
// member of. True names of arguments count, too.
func TestMembers(t *testing.T) {
	s := parse(`{"type":"object","additionalProperties":false,"required":["body"],"properties":{"match__":{"type":"array","items":{"type":"string"}},
		"body":{"$ref":"#/$defs/Pet"}},"$defs":{"Pet":{"type":"object","required":["name"],"properties":{"name":{"type":"string","description":"Its name"},"tags":{"type":"array"}}}}}`)
	want := `ARGUMENT   TYPE      REQUIRED  DESCRIPTION
match__    string[]
body       object    yes
body.name  string    yes       Its name
body.tags  array
`
	if got := s.Table(s.Arguments(), ""); got != want {
		t.Errorf("table\n%s\nwant\n%s", got, want)
	}
	err := s.Check("addPet", json.RawMessage(`{"name":"Tom","match[]":["a"]}`))
	if want := "addPet: missing argument: body; unknown argument: \"name\" (it is a member of body, as in body:='{\"name\":…}')\n"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	pairs, err := arguments.Pairs([]string{"match[]=a", "match[]=b", "body:={}"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Build(pairs); err != nil || string(got) != `{"match__":["a","b"],"body":{}}` {
		t.Errorf("%s %v", got, err)
	}
}
